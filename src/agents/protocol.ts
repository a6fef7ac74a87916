/**
 * Protocol between agents and servers: JSON texts over one WebSocket, each an object with a `kind`, checked
 * by the receiver (`codec.ts`) against these schemas. An agent begins with `hello`; the server replies
 * `welcome` or `refused`. Then the agent sends requests with an id that the reply repeats; the server may
 * notify.
 *
 * Versions: both sides state a protocol number, and work together only with the same one. The number changes
 * when a message changes its meaning; the peer of another number is refused with a sentence. Every number
 * keeps `kind` and `protocol` of the hello, and `refused`. Unknown fields are ignored, so a field added under
 * the same number is optional for one release. A request of unknown kind gets `failed`/`unsupported`.
 */
import {Type} from 'typebox'
import {FINAL_STATUSES, OUTPUT_START_BYTES} from '../core/execution.ts'
import {JOB_FIELD_LIST, type JobField, type JobSpec} from '../core/job-fields.ts'
import {NODE_NAME_PATTERN} from '../core/node.ts'
import {INCARNATIONS_KEPT_MAX} from '../node/incarnations.ts'
import {MAP_KEY_LENGTH_MAX} from '../wire/shapes.ts'

export const AGENT_PATH = '/v1/agent'
export const PROTOCOL = 2
/** Largest message of an agent: 24,000 claims, or some finishes with their output. */
export const AGENT_MESSAGE_BYTES_MAX = 4 * 2 ** 20
/** Largest message of a server: the reply to a claim, with the definitions of the jobs. */
export const SERVER_MESSAGE_BYTES_MAX = 32 * 2 ** 20
export const CLAIMED_MAX = 256
/** An agent with the most slots, each with a claim ahead and as many undelivered results as it may have. */
export const CLAIMS_MAX = 24_000
/** Limits of what an agent reports of its previous incarnations; beyond them it reports nothing. */
export const INCARNATIONS_MAX = 8
export const STARTED_MAX = 20_000
/** Items of one request. */
export const ITEMS_MAX = 256
/** Line added before or after the output; the sender cuts longer ones. */
export const ADDED_TEXT_MAX = 64 * 1024
export const REASON_MAX = 1024

const nullable = <Schema extends Type.TSchema>(schema: Schema) => Type.Union([schema, Type.Null()])
const Text = Type.String()
const Whole = Type.Integer({minimum: 0, maximum: Number.MAX_SAFE_INTEGER})
/** A length or a position. The sum of two is still exact. */
const Amount = Type.Integer({minimum: 0, maximum: 2 ** 52})
/** The range of any operating system. */
const ExitCode = Type.Integer({minimum: -(2 ** 31), maximum: 2 ** 32 - 1})
const Instant = nullable(Type.Integer())
const Texts = Type.Record(Type.String({maxLength: MAP_KEY_LENGTH_MAX}), Text)
/** Created by a node: identities, tokens. */
const Id = Type.String({pattern: '^[A-Za-z0-9._:-]{1,256}$'})
const NodeName = Type.String({pattern: `^${NODE_NAME_PATTERN}$`})
const TagText = Type.String({maxLength: 1024})
const MemberStatus = Type.Enum(['alive', 'leaving', 'left', 'failed'])
const FinalStatus = Type.Enum([...FINAL_STATUSES])

const Key = Type.Object({
  group: Type.Integer({minimum: 1, maximum: Number.MAX_SAFE_INTEGER}),
  node: NodeName,
  attempt: Type.Integer({minimum: 1, maximum: 1_000_000_000}),
})

/** An execution and the token that it was claimed with. */
const Claim = Type.Object({key: Key, token: Id})

/** Execution; its output is left out. */
const Execution = Type.Object({
  ...Key.properties,
  jobId: Whole,
  jobName: Text,
  status: Type.Union([Type.Enum(['pending', 'running']), FinalStatus]),
  slot: Whole,
  revision: Whole,
  createdAt: Type.Integer(),
  notBefore: Type.Integer(),
  startedAt: Instant,
  finishedAt: Instant,
  cancelRequestedAt: Instant,
  exitCode: nullable(Type.Integer()),
  reason: Text,
  outputHead: Text,
  outputFoot: Text,
  outputBytes: Whole,
  lateResult: Text,
})

/** Value of a field of a definition. */
function valueSchema(field: JobField): Type.TSchema {
  switch (field.kind) {
    case 'name':
    case 'schedule':
    case 'text':
      return Text
    case 'flag':
      return Type.Boolean()
    case 'integer':
      return Whole
    case 'choice':
      return Type.Enum([...field.choices, field.default])
    case 'instant':
      return Instant
    case 'map':
      return Texts
    case 'processors':
      return Type.Record(Text, Texts)
  }
}

/** A definition. The previous release does not send later fields: the agent gives them their default. */
const Spec = Type.Unsafe<Partial<JobSpec>>(
  Type.Object(
    Object.fromEntries(
      JOB_FIELD_LIST.map((field) => {
        const schema = valueSchema(field)
        return [field.key, field.absentWhenUnset === true ? Type.Optional(schema) : schema]
      }),
    ),
  ),
)

const Claimed = Type.Object({
  execution: Execution,
  token: Id,
  spec: Spec,
  cause: Type.Enum(['schedule', 'manual', 'create', 'parent']),
  scheduledAt: Type.Integer(),
})

/** Output bytes as base64. */
const Bytes = Type.String({
  maxLength: 512 * 1024,
  pattern: '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$',
})

/** The first bytes of a long output as base64. */
const Start = Type.Optional(
  Type.String({...Bytes, maxLength: Math.ceil(OUTPUT_START_BYTES / 3) * 4}),
)

const Append = Type.Object({
  ...Claim.properties,
  offset: Amount,
  bytes: Bytes,
  start: Start,
})

export const Finish = Type.Object({
  ...Claim.properties,
  status: FinalStatus,
  durationMs: Amount,
  startedAfterMs: Amount,
  exitCode: nullable(ExitCode),
  reason: Type.String({maxLength: REASON_MAX}),
  outputHead: Type.String({maxLength: ADDED_TEXT_MAX}),
  outputFoot: Type.String({maxLength: ADDED_TEXT_MAX}),
  output: Type.Object({offset: Amount, bytes: Bytes, totalBytes: Amount, start: Start}),
  dropOutput: Type.Boolean(),
  jitter: Type.Number({minimum: 0, exclusiveMaximum: 1}),
})

const ActiveClaims = {
  /** Made by this incarnation and not finished yet. */
  activeClaims: Type.Array(Claim, {maxItems: CLAIMS_MAX}),
  /** Token of a claim without a reply yet: the executions it took are not lost. */
  pendingToken: nullable(Id),
}

/** Claims of this incarnation above `upTo` that are not in `started` were never started. */
const Incarnation = Type.Object({
  incarnation: Id,
  upTo: Type.Integer({minimum: 0, maximum: Number.MAX_SAFE_INTEGER}),
  started: Type.Array(Type.String({maxLength: 128}), {maxItems: STARTED_MAX}),
})

/* Messages of an agent: hello, then requests. */

const Hello = Type.Object({
  kind: Type.Literal('hello'),
  protocol: Type.Integer({minimum: 1, maximum: 1_000_000}),
  /** `null` before the first join. */
  clusterId: nullable(Id),
  node: Type.Object({
    id: Id,
    incarnation: Id,
    name: NodeName,
    tags: Type.Record(TagText, TagText, {maxProperties: 128}),
    slots: Type.Integer({minimum: 1, maximum: 4000}),
    version: Type.String({maxLength: 64}),
  }),
  /** Some server has welcomed this incarnation before. */
  joined: Type.Boolean(),
  /** Incarnations as in `JoinRequest`. */
  ended: Type.Array(Id, {maxItems: INCARNATIONS_KEPT_MAX}),
  status: MemberStatus,
  ...ActiveClaims,
  /** SHA-256 digest, in base64url, of the token that the agent made; `null` without a join token. */
  ownToken: nullable(Type.String({pattern: '^[A-Za-z0-9_-]{43}$'})),
})

const RequestId = Type.Integer({minimum: 1, maximum: Number.MAX_SAFE_INTEGER})

/** A request or its reply. */
const rpc = <Kind extends string, Body extends Type.TProperties>(kind: Kind, body: Body) =>
  Type.Object({kind: Type.Literal(kind), id: RequestId, ...body})

const Requests = {
  claim: rpc('claim', {
    token: Id,
    room: Type.Integer({minimum: 0, maximum: 10_000}),
    /** `newest` of the last reply; `null` before the first. */
    after: nullable(Type.String({maxLength: 256})),
  }),
  verify: rpc('verify', {claims: Type.Array(Claim, {maxItems: ITEMS_MAX})}),
  /** Claims of executions that were not started. */
  release: rpc('release', {claims: Type.Array(Claim, {maxItems: ITEMS_MAX})}),
  append: rpc('append', {items: Type.Array(Append, {maxItems: ITEMS_MAX})}),
  finish: rpc('finish', {items: Type.Array(Finish, {maxItems: ITEMS_MAX})}),
  cancelled: rpc('cancelled', {}),
  heartbeat: rpc('heartbeat', {status: MemberStatus, ...ActiveClaims}),
  /** No process of a previous incarnation runs, and all their results are delivered. */
  end_previous_incarnations: rpc('end_previous_incarnations', {
    previous: Type.Array(Incarnation, {maxItems: INCARNATIONS_MAX}),
  }),
}

/* Messages of a server: welcome or refused, then replies and notifications. */

const Replies = {
  claim: rpc('claim', {
    claimed: Type.Array(Claimed, {maxItems: CLAIMED_MAX}),
    waiting: Type.Integer({minimum: 0}),
    nextDueInMs: nullable(Type.Number({minimum: 0})),
    newest: nullable(Type.String({maxLength: 256})),
    isCordoned: Type.Boolean(),
    /** `ClaimResult.secrets`. */
    secrets: Texts,
  }),
  verify: rpc('verify', {active: Type.Array(Type.Boolean())}),
  /** Claims that are pending again; the others were cancelled or revoked. */
  release: rpc('release', {released: Type.Array(Claim)}),
  append: rpc('append', {accepted: Type.Array(Type.Boolean())}),
  finish: rpc('finish', {
    outcomes: Type.Array(Type.Object({kind: Type.Enum(['finished', 'already', 'unknown'])})),
  }),
  cancelled: rpc('cancelled', {keys: Type.Array(Key)}),
  heartbeat: rpc('heartbeat', {
    result: Type.Enum(['ok', 'fenced', 'taken']),
    /** Claims of the agent that the store does not confirm; their processes must be stopped. */
    revoked: Type.Array(Claim),
    /** The server's wall clock, ms since 1970. */
    now: Type.Integer(),
  }),
  end_previous_incarnations: rpc('end_previous_incarnations', {
    /** Number of executions that are pending again. */
    releasedCount: Type.Integer({minimum: 0}),
  }),
}

const Failed = Type.Object({
  kind: Type.Literal('failed'),
  id: RequestId,
  /** `unavailable`: nothing was changed; `unknown`: something may be; `unsupported`: unknown kind. */
  failure: Type.String({maxLength: 64}),
  message: Type.String({maxLength: 1024}),
})

const Welcome = Type.Object({
  kind: Type.Literal('welcome'),
  protocol: Type.Integer({minimum: 1, maximum: 1_000_000}),
  clusterId: Id,
  server: Type.String({maxLength: 256}),
})

const Refused = Type.Object({
  kind: Type.Literal('refused'),
  /** A `RefusalKind`, or one of a later version. */
  code: Type.String({maxLength: 64}),
  message: Type.String({maxLength: 1024}),
})

const Notify = Type.Object({kind: Type.Literal('notify'), topic: Type.Enum(['run', 'cancel'])})
/** The reply to the hello of an agent with a join token: it connects again with its own token. */
const Issued = Type.Object({kind: Type.Literal('issued')})
const Shutdown = Type.Object({kind: Type.Literal('shutdown')})

/**
 * Why a hello is refused; all but the last two are permanent. `alive`: another process has the node id.
 * `token`: its token does not allow this agent. `server`: its data directory is that of a server.
 */
export type RefusalKind =
  | 'protocol'
  | 'cluster'
  | 'name_taken'
  | 'fenced'
  | 'alive'
  | 'token'
  | 'server'
  | 'unavailable'
  | 'malformed'

export type RequestKind = keyof typeof Requests
export type RequestOf<Kind extends RequestKind> = Type.Static<(typeof Requests)[Kind]>
export type ReplyOf<Kind extends RequestKind> = Type.Static<(typeof Replies)[Kind]>
/** A request or reply without its kind and id. */
export type BodyOf<Message> = Omit<Message, 'kind' | 'id'>

export type HelloMessage = Type.Static<typeof Hello>
export type ActiveClaimsJson = Pick<HelloMessage, 'activeClaims' | 'pendingToken'>
export type IncarnationsJson = BodyOf<RequestOf<'end_previous_incarnations'>>
export type FinishJson = Type.Static<typeof Finish>
export type AgentTopic = Type.Static<typeof Notify>['topic']
export type RequestMessage = {[Kind in RequestKind]: RequestOf<Kind>}[RequestKind]
export type AgentMessage = HelloMessage | RequestMessage
export type ReplyMessage = {[Kind in RequestKind]: ReplyOf<Kind>}[RequestKind]
export type FailedMessage = Type.Static<typeof Failed>
export type WelcomeMessage = Type.Static<typeof Welcome>
export type ServerMessage =
  | ReplyMessage
  | FailedMessage
  | WelcomeMessage
  | (Omit<Type.Static<typeof Refused>, 'code'> & {readonly code: RefusalKind | (string & {})})
  | Type.Static<typeof Notify>
  | Type.Static<typeof Shutdown>
  | Type.Static<typeof Issued>

/** Keys: kinds. */
export const AGENT_MESSAGES = {hello: Hello, ...Requests}
/** Keys: kinds. */
export const SERVER_MESSAGES = {
  ...Replies,
  failed: Failed,
  welcome: Welcome,
  refused: Refused,
  notify: Notify,
  shutdown: Shutdown,
  issued: Issued,
}
