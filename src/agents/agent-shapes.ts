/**
 * The shapes that messages between agents and servers share: what an execution, a definition and an end look
 * like as they travel. Apart from the messages, so that those can be read as a list. Fields a reader does not
 * know are ignored; a field added later is optional for one release: versions one apart work together.
 */
import Type from 'typebox'
import {MAP_KEY_LENGTH_MAX} from '../wire/shapes.ts'

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
