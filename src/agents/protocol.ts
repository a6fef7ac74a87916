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
import {
  Append,
  Claim,
  Claimed,
  Finish,
  Id,
  Key,
  NodeName,
  Outcome,
  Slots,
  Tags,
} from './agent-shapes.ts'

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
