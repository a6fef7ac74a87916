/**
 * The language of agents and servers: JSON texts over one WebSocket, each an object with a `kind`, described
 * by the schemas below and checked by whoever receives it. An agent begins with `hello`, the server answers
 * `welcome` or `refused`; from then on the agent asks (each question with a number that its answer repeats),
 * and the server may ring. Nothing is decided here.
 *
 * Versions: both sides state a protocol number; numbers one apart work together. Fields that are not known
 * are ignored; a question of a kind that is not known is answered with `failed`, `unsupported`.
 */
import Type from 'typebox'
import {Compile} from 'typebox/compile'
import {MAP_KEY_LENGTH_MAX} from '../wire/shapes.ts'

/*
 * The shapes that messages between agents and servers share: what an execution, a definition and an end look
 * like as they travel. Apart from the messages, so that those can be read as a list. Fields a reader does not
 * know are ignored; a field added later is optional for one release: versions one apart work together.
 */

const ID = /^[A-Za-z0-9._:-]{1,256}$/
const NODE = /^[A-Za-z0-9._-]{1,63}$/
/** Line added before or after the output; longer ones are cut by who sends them. */
export const ADDED_TEXT_MAX = 64 * 1024
export const REASON_MAX = 1024
/** Output of one execution that a message carries: the tail that is kept, as base64. */
const OUTPUT_TEXT_MAX = 512 * 1024
const TAGS_MAX = 128
const TAG_TEXT_MAX = 1024

const Text = Type.String()
const Whole = Type.Integer({minimum: 0, maximum: Number.MAX_SAFE_INTEGER})
/** A length or a position: two of them added are still exact. */
const Amount = Type.Integer({minimum: 0, maximum: 2 ** 52})
/** As far as any system has them. */
const ExitCode = Type.Integer({minimum: -(2 ** 31), maximum: 2 ** 32 - 1})
const Instant = Type.Union([Type.Integer(), Type.Null()])
const Texts = Type.Record(Type.String({maxLength: MAP_KEY_LENGTH_MAX}), Text)

/** What a node minted: identities, tokens. */
export const Id = Type.String({pattern: ID.source})
export const NodeName = Type.String({pattern: NODE.source})
export const Slots = Type.Integer({minimum: 1, maximum: 4000})
export const Tags = Type.Record(
  Type.String({maxLength: TAG_TEXT_MAX}),
  Type.String({maxLength: TAG_TEXT_MAX}),
  {maxProperties: TAGS_MAX},
)

export const Key = Type.Object({
  group: Type.Integer({minimum: 1, maximum: Number.MAX_SAFE_INTEGER}),
  node: NodeName,
  attempt: Type.Integer({minimum: 1, maximum: 1_000_000_000}),
})

/** A claim: the execution and the token it was claimed with. */
export const Claim = Type.Object({key: Key, token: Id})

const Final = Type.Union([
  Type.Literal('succeeded'),
  Type.Literal('failed'),
  Type.Literal('timed_out'),
  Type.Literal('cancelled'),
  Type.Literal('lost'),
])

/** An execution as it is stored, without its output. */
export const Execution = Type.Object({
  ...Key.properties,
  jobId: Whole,
  jobName: Text,
  status: Type.Union([Type.Literal('pending'), Type.Literal('running'), Final]),
  slot: Whole,
  revision: Whole,
  createdAt: Type.Integer(),
  notBefore: Type.Integer(),
  startedAt: Instant,
  finishedAt: Instant,
  cancelRequestedAt: Instant,
  exitCode: Type.Union([Type.Integer(), Type.Null()]),
  reason: Text,
  outputHead: Text,
  outputFoot: Text,
  outputBytes: Whole,
  lateResult: Text,
})

/** A definition, in the form it is stored in. */
export const Spec = Type.Object({
  name: Text,
  displayname: Text,
  schedule: Text,
  timezone: Text,
  owner: Text,
  ownerEmail: Text,
  disabled: Type.Boolean(),
  tags: Texts,
  metadata: Texts,
  retries: Whole,
  parentJob: Text,
  processors: Type.Record(Text, Texts),
  concurrency: Type.Union([Type.Literal('allow'), Type.Literal('forbid')]),
  executor: Text,
  executorConfig: Texts,
  ephemeral: Type.Boolean(),
  startsAt: Instant,
  expiresAt: Instant,
  catchUp: Type.Union([Type.Literal('latest'), Type.Literal('skip'), Type.Literal('all')]),
  maxLateness: Text,
  onDisconnect: Type.Union([Type.Literal('keep'), Type.Literal('stop'), Type.Literal('')]),
})

export const Cause = Type.Union([
  Type.Literal('schedule'),
  Type.Literal('manual'),
  Type.Literal('create'),
  Type.Literal('parent'),
])

export const Claimed = Type.Object({
  execution: Execution,
  token: Id,
  spec: Spec,
  cause: Cause,
  scheduledAt: Type.Integer(),
})

/** Bytes as base64. */
const Bytes = Type.String({
  maxLength: OUTPUT_TEXT_MAX,
  pattern: '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$',
})

export const Append = Type.Object({
  ...Claim.properties,
  /** Told to whoever follows the output. */
  job: Type.String({maxLength: 512}),
  offset: Amount,
  bytes: Bytes,
})

export const Finish = Type.Object({
  ...Claim.properties,
  status: Final,
  durationMs: Amount,
  exitCode: Type.Union([ExitCode, Type.Null()]),
  reason: Type.String({maxLength: REASON_MAX}),
  outputHead: Type.String({maxLength: ADDED_TEXT_MAX}),
  outputFoot: Type.String({maxLength: ADDED_TEXT_MAX}),
  output: Type.Object({offset: Amount, bytes: Bytes, totalBytes: Amount}),
  dropOutput: Type.Boolean(),
  dice: Type.Number({minimum: 0, exclusiveMaximum: 1}),
})

/** What finishing did. */
export const Outcome = Type.Union([
  Type.Object({
    kind: Type.Literal('finished'),
    execution: Execution,
    retry: Type.Union([Type.Object({key: Key, notBefore: Type.Integer()}), Type.Null()]),
    closed: Type.Union([
      Type.Object({
        status: Type.Union([
          Type.Literal('success'),
          Type.Literal('failed'),
          Type.Literal('partially_failed'),
        ]),
        dependents: Type.Array(Text),
      }),
      Type.Null(),
    ]),
    jobDisabled: Type.Boolean(),
    jobDeleted: Type.Boolean(),
    endedRetries: Type.Optional(Type.Array(Execution)),
  }),
  Type.Object({kind: Type.Literal('already'), key: Key, status: Final}),
  Type.Object({kind: Type.Literal('unknown'), key: Key}),
])

export type FinishJson = Type.Static<typeof Finish>

export const AGENT_PATH = '/v1/agent'
export const PROTOCOL = 1
/** What an agent may send at once: 20,000 executions held, or some ends with their output. */
export const AGENT_MESSAGE_BYTES_MAX = 4 * 2 ** 20
/** What a server may send at once: the most that a claim can bring, definitions and all. */
export const SERVER_MESSAGE_BYTES_MAX = 32 * 2 ** 20
/** A definition has at most 1 MiB, so this many fit into a message. */
export const CLAIM_ROOM_MAX = 16
/** An agent of most slots, each with as many ends that wait for a server as it may have. */
export const HELD_MAX = 20_000
/** What an agent tells of its earlier lives, all together; what is more is not told. */
export const LIVES_MAX = 8
export const BEGUN_MAX = 20_000
/** Items of one question. */
export const ITEMS_MAX = 256

const Status = Type.Union([
  Type.Literal('alive'),
  Type.Literal('leaving'),
  Type.Literal('left'),
  Type.Literal('failed'),
])
const QuestionId = Type.Integer({minimum: 1, maximum: Number.MAX_SAFE_INTEGER})

/** What the agent has in hand when it sends this. */
const InHand = {
  /** Claimed by this life of the agent and not finished yet. */
  held: Type.Array(Claim, {maxItems: HELD_MAX}),
  /** Token of a claim that is not answered yet: what it took is no loss. */
  claiming: Type.Union([Id, Type.Null()]),
}

const Hello = Type.Object({
  kind: Type.Literal('hello'),
  protocol: Type.Integer({minimum: 1, maximum: 1_000_000}),
  /** The cluster the agent belongs to; `null` before its first. */
  clusterId: Type.Union([Id, Type.Null()]),
  node: Type.Object({
    id: Id,
    incarnation: Id,
    name: NodeName,
    tags: Tags,
    slots: Slots,
    version: Type.String({maxLength: 64}),
  }),
  /** This life was welcomed before, by any server. */
  joined: Type.Boolean(),
  status: Status,
  ...InHand,
})

/** What an earlier life of the agent had claimed above `upTo` and not begun was never started. */
const Life = Type.Object({
  incarnation: Id,
  upTo: Type.Integer({minimum: 0, maximum: Number.MAX_SAFE_INTEGER}),
  begun: Type.Array(Type.String({maxLength: 128}), {maxItems: BEGUN_MAX}),
})

const ask = <Kind extends string, Body extends Type.TProperties>(kind: Kind, body: Body) =>
  Type.Object({kind: Type.Literal(kind), id: QuestionId, ...body})

const Questions = {
  claim: ask('claim', {
    token: Id,
    room: Type.Integer({minimum: 0, maximum: 10_000}),
    /** `newest` of the last answer. */
    after: Type.Optional(Type.String({maxLength: 256})),
  }),
  verify: ask('verify', {claims: Type.Array(Claim, {maxItems: ITEMS_MAX})}),
  append: ask('append', {items: Type.Array(Append, {maxItems: ITEMS_MAX})}),
  finish: ask('finish', {items: Type.Array(Finish, {maxItems: ITEMS_MAX})}),
  cancelled: ask('cancelled', {}),
  beat: ask('beat', {status: Status, ...InHand}),
  /** Nothing of earlier lives of this agent runs any more, and their results have been delivered. */
  earlier_over: ask('earlier_over', {
    lives: Type.Optional(Type.Array(Life, {maxItems: LIVES_MAX})),
  }),
}

const Answers = {
  claim: ask('claim', {
    claimed: Type.Array(Claimed, {maxItems: CLAIM_ROOM_MAX * 2}),
    waiting: Type.Integer({minimum: 0}),
    nextDueInMs: Type.Union([Type.Number({minimum: 0}), Type.Null()]),
    newest: Type.Optional(Type.String({maxLength: 256})),
  }),
  verify: ask('verify', {hold: Type.Array(Type.Boolean())}),
  append: ask('append', {taken: Type.Array(Type.Boolean())}),
  finish: ask('finish', {outcomes: Type.Array(Outcome)}),
  cancelled: ask('cancelled', {keys: Type.Array(Key)}),
  /** `end`: held by the agent and not running under its claim; to be ended. */
  beat: ask('beat', {
    answer: Type.Union([Type.Literal('ok'), Type.Literal('fenced'), Type.Literal('taken')]),
    end: Type.Array(Key),
  }),
  /** How many executions are pending again. */
  earlier_over: ask('earlier_over', {givenBack: Type.Optional(Type.Integer({minimum: 0}))}),
}

const Failed = Type.Object({
  kind: Type.Literal('failed'),
  id: QuestionId,
  /** `unavailable`: nothing was changed; `unknown`: it may have been; `unsupported`: not known here. */
  failure: Type.String({maxLength: 64}),
  message: Type.String({maxLength: 1024}),
})

const Welcome = Type.Object({
  kind: Type.Literal('welcome'),
  protocol: Type.Integer({minimum: 1, maximum: 1_000_000}),
  clusterId: Id,
  /** Name of the server. */
  server: Type.String({maxLength: 256}),
})

const Refused = Type.Object({
  kind: Type.Literal('refused'),
  /** One of `RefusalKind`, or one that a later version has. */
  code: Type.String({maxLength: 64}),
  /** One sentence for people. */
  message: Type.String({maxLength: 1024}),
})

const Ring = Type.Object({
  kind: Type.Literal('ring'),
  bell: Type.Union([Type.Literal('run'), Type.Literal('cancel')]),
})

/** The server ends; the agent goes to another. */
const Goodbye = Type.Object({kind: Type.Literal('goodbye')})

/** Why a hello is refused. The first four do not pass by themselves. */
export type RefusalKind =
  'protocol' | 'cluster' | 'name_taken' | 'fenced' | 'unavailable' | 'malformed'

export type QuestionKind = keyof typeof Questions
export type QuestionOf<Kind extends QuestionKind> = Type.Static<(typeof Questions)[Kind]>
export type AnswerOf<Kind extends QuestionKind> = Type.Static<(typeof Answers)[Kind]>
/** A question without its kind and number. */
export type BodyOf<Kind extends QuestionKind> = Omit<QuestionOf<Kind>, 'kind' | 'id'>

export type HelloMessage = Type.Static<typeof Hello>
export type InHandJson = Pick<HelloMessage, 'held' | 'claiming'>
export type QuestionMessage = {[Kind in QuestionKind]: QuestionOf<Kind>}[QuestionKind]
export type AgentMessage = HelloMessage | QuestionMessage
export type AnswerMessage = {[Kind in QuestionKind]: AnswerOf<Kind>}[QuestionKind]
export type FailedMessage = Type.Static<typeof Failed>
export type ServerMessage =
  | AnswerMessage
  | FailedMessage
  | Type.Static<typeof Welcome>
  | (Omit<Type.Static<typeof Refused>, 'code'> & {readonly code: RefusalKind | (string & {})})
  | Type.Static<typeof Ring>
  | Type.Static<typeof Goodbye>

export type Decoded<Message> =
  | {readonly ok: true; readonly message: Message}
  /** A kind that this version does not know; `id` of the question, if it is one. */
  | {readonly ok: false; readonly why: 'unsupported'; readonly id: number | null}
  | {readonly ok: false; readonly why: 'malformed'}

interface Check {
  Check(value: unknown): boolean
}

const compiled = (schemas: Readonly<Record<string, Type.TSchema>>): ReadonlyMap<string, Check> =>
  new Map(Object.entries(schemas).map(([kind, schema]) => [kind, Compile(schema)]))

const FROM_AGENT = compiled({hello: Hello, ...Questions})
const FROM_SERVER = compiled({
  ...Answers,
  failed: Failed,
  welcome: Welcome,
  refused: Refused,
  ring: Ring,
  goodbye: Goodbye,
})

/** Reads a text that an agent sent. Total. */
export function decodeAgentMessage(text: string): Decoded<AgentMessage> {
  return decode(text, FROM_AGENT)
}

/** Reads a text that a server sent. Total. */
export function decodeServerMessage(text: string): Decoded<ServerMessage> {
  return decode(text, FROM_SERVER)
}

function decode<Message>(text: string, checks: ReadonlyMap<string, Check>): Decoded<Message> {
  const value = parse(text)
  if (value === null || typeof value['kind'] !== 'string') return {ok: false, why: 'malformed'}
  const check = checks.get(value['kind'])
  if (check === undefined) {
    const {id} = value
    return {ok: false, why: 'unsupported', id: Number.isSafeInteger(id) ? Number(id) : null}
  }
  // Checked against the schema of its kind, from which the type is made.
  return check.Check(value)
    ? {ok: true, message: value as unknown as Message}
    : {ok: false, why: 'malformed'}
}

function parse(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null
  } catch {
    return null // no JSON: malformed like any other
  }
}

/** Numbers one apart work together. */
export function isSpoken(protocol: number): boolean {
  return Math.abs(protocol - PROTOCOL) <= 1
}
