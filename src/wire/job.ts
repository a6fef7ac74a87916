/**
 * Jobs in JSON: the schemas of requests and responses, and the encoder. The definition is that of
 * `core/job-fields.ts`; the order of the fields of a reply belongs to the API contract. `decode-job.ts`
 * decodes definitions.
 */
import {Type, type Static, type TSchema} from 'typebox'
import type {JobSpec, ShownJob} from '../core/job.ts'
import {
  isUnset,
  JOB_FIELD_LIST,
  type JobField,
  type JobFields,
  type JobKey,
  LATER_FIELDS,
  type ValueOf,
} from '../core/job-fields.ts'
import {MayBeUnset, OptionalTime, TextMap, TextMapInput, Time} from './shapes.ts'
import {formatOptionalTime} from '../lib/rfc3339.ts'

export const CONFIG_ENTRIES_MAX = 64
const TIME_LENGTH_MAX = 64

/** Value of a field in a reply. */
type JsonOf<Field extends JobField> = Field extends {readonly kind: 'instant'}
  ? string | null
  : ValueOf<Field>

type SchemaOf<Field extends JobField> = Field extends {readonly absentWhenUnset: true}
  ? Type.TOptional<Type.TUnsafe<JsonOf<Field>>>
  : Type.TUnsafe<JsonOf<Field>>

type ReplySchemas = {
  readonly [Key in JobKey as JobFields[Key]['wire']]: SchemaOf<JobFields[Key]>
}

function replySchema(field: JobField): TSchema {
  const {about: description} = field
  switch (field.kind) {
    case 'name':
    case 'schedule':
    case 'text':
      return Type.String({description})
    case 'flag':
      return Type.Boolean({description})
    case 'integer':
      return Type.Integer({description})
    case 'choice': {
      const {choices} = field
      return Type.Enum(field.default === '' ? ['', ...choices] : [...choices], {description})
    }
    case 'instant':
      return OptionalTime(description)
    case 'map':
      return TextMap(description)
    case 'processors':
      return Type.Record(Type.String(), Type.Record(Type.String(), Type.String()), {description})
  }
}

const REPLY_FIELDS = Object.fromEntries(
  JOB_FIELD_LIST.map((field) => {
    const schema = replySchema(field)
    return [field.wire, field.absentWhenUnset === true ? Type.Optional(schema) : schema]
  }),
) as unknown as ReplySchemas // each schema is that of its field

/** A job in every response. Fields of the API contract are never left out. */
export const Job = Type.Object(
  {
    id: Type.String({description: 'The same as `name`.'}),
    ...REPLY_FIELDS,
    success_count: Type.Integer({description: 'Executions that succeeded since the last reset.'}),
    error_count: Type.Integer({
      description: 'Executions that ended in another state since the last reset.',
    }),
    last_success: OptionalTime('When an execution last succeeded.'),
    last_error: OptionalTime('When an execution last ended in another state.'),
    dependent_jobs: Type.Array(Type.String(), {
      description: 'Names of the jobs whose parent is this job.',
    }),
    status: Type.Enum(['', 'success', 'failed', 'partially_failed'], {
      description: 'How the newest finished launch ended; empty = none has finished yet.',
    }),
    next: OptionalTime('The next planned time.'),
    firing_paused: Type.Optional(
      Type.Boolean({
        description: 'Firing of the job is paused, so `next` will be skipped. Absent otherwise.',
      }),
    ),
    waits_for_node: Type.Optional(
      Type.Boolean({
        description: 'A launch waits for a node that matches the tags. Absent otherwise.',
      }),
    ),
  },
  {$id: 'Job', description: 'A job: its definition, counters and status.'},
)
export type JobJson = Static<typeof Job>

/** Schema of a field in a request, where it is optional unless it is the name. */
function inputSchema(field: JobField): TSchema {
  const {about: description} = field
  switch (field.kind) {
    case 'name':
      return Type.String({description, minLength: 1, maxLength: field.max})
    case 'schedule': {
      const required = 'Required unless `parent_job` is set.'
      return Type.String({description: `${description} ${required}`, maxLength: field.max})
    }
    case 'text': {
      const preset = field.default === '' ? {} : {default: field.default}
      return Type.String({description, maxLength: field.max, ...preset})
    }
    case 'flag':
      return Type.Boolean({description, default: field.default})
    case 'integer':
      return Type.Integer({description, minimum: 0, maximum: field.max, default: field.default})
    case 'choice':
      return Type.Enum([...field.choices, ''], {description, default: field.default})
    case 'instant':
      return Type.String({...Time(description), format: 'date-time', maxLength: TIME_LENGTH_MAX})
    case 'map':
      return TextMapInput(description, field.max)
    case 'processors':
      return Type.Record(
        Type.String(),
        Type.Union([
          TextMapInput('Parameters of the processor.', CONFIG_ENTRIES_MAX),
          Type.String({description: 'An older form: `true` or `false` for `forward`.'}),
          Type.Null(),
        ]),
        {description, maxProperties: field.max},
      )
  }
}

const INPUT_FIELDS: Readonly<Record<string, TSchema>> = Object.fromEntries(
  JOB_FIELD_LIST.map((field) => {
    const schema = inputSchema(field)
    return [field.wire, field.kind === 'name' ? schema : MayBeUnset(schema)]
  }),
)

/** Older forms of parameters of the shell executor. */
export const OLDER_FIELDS = {
  command: MayBeUnset(
    Type.String({
      description: 'An older form of `executor_config.command`, which it replaces.',
      deprecated: true,
    }),
  ),
  shell: MayBeUnset(
    Type.Union([Type.Boolean(), Type.Enum(['true', 'false', ''])], {
      description: 'An older form of `executor_config.shell`, which it replaces.',
      deprecated: true,
    }),
  ),
  environment_variables: MayBeUnset(
    Type.Array(Type.String(), {
      description: 'An older form of `executor_config.env`, which it replaces: `NAME=value` pairs.',
      deprecated: true,
    }),
  ),
}
export type OlderFieldsJson = Static<Type.TObject<typeof OLDER_FIELDS>>

/**
 * A definition in a request. `null` means not set in every field; an empty string does in fields whose schema
 * allows it. Read-only and unknown fields are ignored.
 */
export const JobDefinition = Type.Object(
  {...INPUT_FIELDS, ...OLDER_FIELDS},
  {$id: 'JobDefinition', description: 'A request to create or replace a job.'},
)
/** Merge patch of a definition: no field is required. */
export const JobPatch = Type.Partial(JobDefinition, {
  $id: 'JobPatch',
  description: 'Fields of a job to change. `null` removes a field, or a member of a map.',
})

/** Read-only fields. Clients send them back with the object that they have read. */
export const READ_ONLY_FIELDS: ReadonlySet<string> = new Set(
  Object.keys(Job.properties).filter((field) => !(field in JobDefinition.properties)),
)

type Encoded = Pick<
  ShownJob,
  'spec' | 'counters' | 'dependentJobs' | 'status' | 'nextAt' | 'conditions'
>

/**
 * Names the fields of the API contract one by one, which takes half the time of a loop over the table. The
 * compiler finds a missing one.
 */
export function encodeJob(job: Encoded): JobJson {
  const {spec, counters} = job
  const json: JobJson = {
    id: spec.name,
    name: spec.name,
    displayname: spec.displayname,
    timezone: spec.timezone,
    schedule: spec.schedule,
    owner: spec.owner,
    owner_email: spec.ownerEmail,
    success_count: counters.successCount,
    error_count: counters.errorCount,
    last_success: formatOptionalTime(counters.lastSuccess),
    last_error: formatOptionalTime(counters.lastError),
    disabled: spec.disabled,
    tags: spec.tags,
    metadata: spec.metadata,
    retries: spec.retries,
    dependent_jobs: [...job.dependentJobs],
    parent_job: spec.parentJob,
    processors: spec.processors,
    concurrency: spec.concurrency,
    executor: spec.executor,
    executor_config: spec.executorConfig,
    status: job.status,
    next: formatOptionalTime(job.nextAt),
    ephemeral: spec.ephemeral,
    starts_at: formatOptionalTime(spec.startsAt),
    expires_at: formatOptionalTime(spec.expiresAt),
    catch_up: spec.catchUp,
    max_lateness: spec.maxLateness,
    on_disconnect: spec.onDisconnect,
    ...(job.conditions?.isPaused === true ? {firing_paused: true} : {}),
    ...(job.conditions?.waitsForNode === true ? {waits_for_node: true} : {}),
  }
  return LATER_FIELDS.length === 0 ? json : {...json, ...encodeLater(spec)}
}

function encodeLater(spec: JobSpec): Partial<JobJson> {
  const set = LATER_FIELDS.filter((field) => !isUnset(field, spec[field.key]))
  return Object.fromEntries(
    set.map(({key, kind, wire}) => {
      const value = spec[key]
      return [wire, kind === 'instant' ? formatOptionalTime(value as number | null) : value]
    }),
  )
}

const NO_COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

/** The definition alone, as a request has it. */
export function encodeDefinition(spec: JobSpec): Record<string, unknown> {
  const nothing = {counters: NO_COUNTERS, dependentJobs: [], status: '', nextAt: null} as const
  const fields = Object.entries(encodeJob({spec, ...nothing}))
  return Object.fromEntries(fields.filter(([field]) => !READ_ONLY_FIELDS.has(field)))
}
