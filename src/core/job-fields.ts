/**
 * The fields of a job definition: one row each. Types, schemas, decoder, encoder, agent protocol, access,
 * planning and the table in docs/reference/jobs.md follow from it. A change of any field is a change of the
 * definition. CONTRIBUTING.md has the checklist "A job field".
 */
import {SCHEDULE_LENGTH_MAX} from './schedule/parse.ts'

export type StringMap = Readonly<Record<string, string>>

/** Value of a field in a `JobSpec`, by kind. Instants in ms since the epoch; `null` = not set. */
interface Values {
  name: string
  schedule: string
  text: string
  flag: boolean
  integer: number
  instant: number | null
  map: StringMap
  /** Parameters by processor, in the order of the definition, which is the order they run in. */
  processors: Readonly<Record<string, StringMap>>
}

interface Row {
  /** Name in the API. */
  readonly wire: string
  /** Description in the OpenAPI document and in docs/reference/jobs.md. */
  readonly about: string
  /** Continues the limit in docs/reference/jobs.md. */
  readonly note?: string
  /** Default in docs/reference/jobs.md, if `default` does not say it. */
  readonly unset?: string
  /** Shown to a caller who may change the job and not read it. Other fields have their default there. */
  readonly shownWithoutRead?: true
  /**
   * Left out of replies and stored definitions while it has its default, as every field that the API contract
   * did not have from the start. Agents of the previous release do not send it.
   */
  readonly absentWhenUnset?: true
  /**
   * Effect of a change on `next`; not for maps. `always`: planned anew; `phase`: also the phase of `@every`;
   * `if_set`: planned anew only when the field becomes set or unset.
   */
  readonly replans?: 'always' | 'phase' | 'if_set'
}

/** `max`: characters of a text, value of an integer, entries of a map. */
export type JobField = Row &
  (
    | {readonly kind: 'name' | 'schedule' | 'text'; readonly default: string; readonly max: number}
    | {readonly kind: 'flag'; readonly default: boolean}
    | {readonly kind: 'integer'; readonly default: number; readonly max: number}
    | {readonly kind: 'choice'; readonly default: string; readonly choices: readonly string[]}
    | {readonly kind: 'instant'; readonly default: null}
    | {readonly kind: 'map' | 'processors'; readonly default: StringMap; readonly max: number}
  )

const NAME_LENGTH_MAX = 128

/** Keys are those of a `JobSpec`; the order is that of the API. */
export const JOB_FIELDS = {
  name: {
    wire: 'name',
    kind: 'name',
    default: '',
    max: NAME_LENGTH_MAX,
    about: 'Unique name. Lower-case letters of any alphabet, digits, underscore and dash.',
    unset: 'required',
    shownWithoutRead: true,
  },
  displayname: {
    wire: 'displayname',
    kind: 'text',
    default: '',
    max: 1_024,
    about: 'Human-friendly name.',
  },
  /** `''` = the cluster's default zone. */
  timezone: {
    wire: 'timezone',
    kind: 'text',
    default: '',
    max: 64,
    about: 'IANA time zone in which the schedule is read; empty = the default zone.',
    note: ', such as `Europe/Berlin`',
    unset: "the server's default zone",
    replans: 'always',
  },
  schedule: {
    wire: 'schedule',
    kind: 'schedule',
    default: '',
    max: SCHEDULE_LENGTH_MAX,
    about: 'Cron expression of five or six fields, or a descriptor such as `@every 5m`.',
    note: ', see [schedules.md](schedules.md)',
    unset: 'required without `parent_job`',
    replans: 'phase',
  },
  owner: {wire: 'owner', kind: 'text', default: '', max: 320, about: 'Owner of the job.'},
  ownerEmail: {
    wire: 'owner_email',
    kind: 'text',
    default: '',
    max: 320,
    about: 'E-mail of the owner.',
    note: '. A value that does not look like an address is stored with a warning',
  },
  disabled: {
    wire: 'disabled',
    kind: 'flag',
    default: false,
    about: 'A disabled job is not launched by its schedule.',
    shownWithoutRead: true,
    replans: 'always',
  },
  tags: {
    wire: 'tags',
    kind: 'map',
    default: {},
    max: 64,
    about: 'Tags that select the target nodes. A value may end in `:count`.',
    note: ', see [Where a job runs](#where-a-job-runs)',
    unset: 'any one node',
  },
  metadata: {
    wire: 'metadata',
    kind: 'map',
    default: {},
    max: 64,
    about: 'Free-form data, used by the `metadata` filter of the job list.',
  },
  retries: {
    wire: 'retries',
    kind: 'integer',
    default: 0,
    max: 100,
    about: 'How many times a failed execution is retried.',
    note: ', see [Retries](#retries)',
    shownWithoutRead: true,
  },
  /** A child's own schedule never fires. */
  parentJob: {
    wire: 'parent_job',
    kind: 'text',
    default: '',
    max: 2 * NAME_LENGTH_MAX,
    about: 'Name of the job whose success launches this one.',
    note: '. The job must exist; no cycles',
    replans: 'if_set',
  },
  processors: {
    wire: 'processors',
    kind: 'processors',
    default: {},
    max: 16,
    about: 'Processors of the output: name to parameters, applied in this order.',
    note: ', see [processors.md](processors.md)',
  },
  concurrency: {
    wire: 'concurrency',
    kind: 'choice',
    default: 'allow',
    choices: ['allow', 'forbid'],
    about: 'Whether a launch may start while another launch of the job is open.',
    note: ', see [Overlapping runs](#overlapping-runs)',
    shownWithoutRead: true,
  },
  executor: {
    wire: 'executor',
    kind: 'text',
    default: '',
    max: 64,
    about: 'Name of the executor that runs the job.',
    note: ', see [executors.md](executors.md). With a `command` and no name it is `shell`',
    unset: '`""`, with a warning: runs fail',
  },
  executorConfig: {
    wire: 'executor_config',
    kind: 'map',
    default: {},
    max: 64,
    about: 'Parameters of the executor.',
    note: ', which the executor checks',
  },
  ephemeral: {
    wire: 'ephemeral',
    kind: 'flag',
    default: false,
    about: 'The job is deleted after its first successful launch.',
    note: '. Not allowed for a job with dependents',
    shownWithoutRead: true,
  },
  startsAt: {
    wire: 'starts_at',
    kind: 'instant',
    default: null,
    about: 'Nothing is planned before this time.',
    unset: 'no start',
    shownWithoutRead: true,
    replans: 'phase',
  },
  /** Exclusive. It cuts off `next` and moves it in no other way. */
  expiresAt: {
    wire: 'expires_at',
    kind: 'instant',
    default: null,
    about: 'Nothing is planned at or after this time.',
    note: 'Must be after `starts_at`',
    unset: 'no end',
    shownWithoutRead: true,
  },
  catchUp: {
    wire: 'catch_up',
    kind: 'choice',
    default: 'latest',
    choices: ['latest', 'skip', 'all'],
    about: 'Which missed planned times are launched later.',
    note: ', see [After downtime](#after-downtime)',
    shownWithoutRead: true,
  },
  /** A duration as written. */
  maxLateness: {
    wire: 'max_lateness',
    kind: 'text',
    default: '24h',
    max: 64,
    about: 'Planned times older than this are not launched.',
    note: ': a duration such as `90m`',
    shownWithoutRead: true,
  },
  /** `''` = by concurrency: `stop` for `forbid`, else `keep`. */
  onDisconnect: {
    wire: 'on_disconnect',
    kind: 'choice',
    default: '',
    choices: ['keep', 'stop'],
    about:
      'What a node without a connection to any server does with a running execution; empty = by concurrency.',
    note: ', see [Disconnected nodes](#disconnected-nodes)',
    unset: '`stop` for `forbid`, else `keep`',
    shownWithoutRead: true,
  },
} as const satisfies Readonly<Record<string, JobField>>

export type JobFields = typeof JOB_FIELDS
export type JobKey = keyof JobFields

export type ValueOf<Field extends JobField> = Field extends {
  readonly choices: readonly (infer Choice)[]
  readonly default: infer Default
}
  ? Choice | Default
  : Values[Exclude<Field['kind'], 'choice'>]

/** The normalised definition: every field present. */
export type JobSpec = {readonly [Key in JobKey]: ValueOf<JobFields[Key]>}

const JOB_KEYS = Object.keys(JOB_FIELDS) as JobKey[]

/** The rows with their keys. */
export const JOB_FIELD_LIST: readonly (JobField & {readonly key: JobKey})[] = Object.entries(
  JOB_FIELDS,
).map(([key, field]) => ({...field, key: key as JobKey}))

/** Rows of fields that are absent when unset. */
export const LATER_FIELDS = JOB_FIELD_LIST.filter((field) => field.absentWhenUnset === true)

export const DEFAULT_SPEC = Object.fromEntries(
  JOB_FIELD_LIST.map((field) => [field.key, field.default]),
) as unknown as JobSpec // each default is of the kind of its field

export function isUnset(field: JobField, value: unknown): boolean {
  if (value === field.default || value === undefined) return true
  return typeof value === 'object' && value !== null && Object.keys(value).length === 0
}

/** A stored definition. Fields that the release which stored it did not have get their default. */
export function specOf(text: string): JobSpec {
  return withDefaults(JSON.parse(text) as Partial<JobSpec>)
}

export function withDefaults(stored: Partial<JobSpec>): JobSpec {
  for (const key of JOB_KEYS) if (stored[key] === undefined) return {...DEFAULT_SPEC, ...stored}
  return stored as JobSpec
}

/** The text that `specOf` reads. An unset later field is left out: the previous release sees no change. */
export function definitionText(spec: JobSpec): string {
  if (LATER_FIELDS.length === 0) return JSON.stringify(spec)
  const stored: Partial<Record<JobKey, unknown>> = {...spec}
  for (const field of LATER_FIELDS) if (isUnset(field, spec[field.key])) delete stored[field.key]
  return JSON.stringify(stored)
}

/** The definition for a caller who may change the job and not read it. */
export function withoutDetails(spec: JobSpec): JobSpec {
  const shown = JOB_FIELD_LIST.filter((field) => field.shownWithoutRead === true)
  return {...DEFAULT_SPEC, ...Object.fromEntries(shown.map(({key}) => [key, spec[key]]))}
}
