/**
 * Jobs in JSON: the schemas of requests and responses, and the encoder. Field names and their order belong to
 * the API contract. `decode-job.ts` decodes definitions.
 */
import {Type, type Static} from 'typebox'
import type {JobSpec, ShownJob} from '../core/job.ts'
import {SCHEDULE_LENGTH_MAX} from '../core/schedule/parse.ts'
import {METADATA_MAX, NAME_LENGTH_MAX, TAGS_MAX} from '../core/validate.ts'
import {MayBeUnset, OptionalTime, TextMap, TextMapInput, Time} from './shapes.ts'
import {formatOptionalTime} from './time.ts'

export const RETRIES_MAX = 100
export const CONFIG_ENTRIES_MAX = 64
export const PROCESSORS_MAX = 16
export const DEFAULT_MAX_LATENESS = '24h'
const DISPLAYNAME_LENGTH_MAX = 1_024
const OWNER_LENGTH_MAX = 320
const ZONE_LENGTH_MAX = 64
const TIME_LENGTH_MAX = 64
const EXECUTOR_LENGTH_MAX = 64
const DURATION_LENGTH_MAX = 64

const ABOUT = {
  name: 'Unique name. Lower-case letters of any alphabet, digits, underscore and dash.',
  displayname: 'Human-friendly name.',
  timezone: 'IANA time zone in which the schedule is read; empty = the default zone.',
  schedule: 'Cron expression of five or six fields, or a descriptor such as `@every 5m`.',
  owner: 'Owner of the job.',
  owner_email: 'E-mail of the owner.',
  disabled: 'A disabled job is not launched by its schedule.',
  tags: 'Tags that select the target nodes. A value may end in `:count`.',
  metadata: 'Free-form data, used by the `metadata` filter of the job list.',
  retries: 'How many times a failed execution is retried.',
  parent_job: 'Name of the job whose success launches this one.',
  processors: 'Processors of the output: name to parameters, applied in this order.',
  concurrency: 'Whether a launch may start while another launch of the job is open.',
  executor: 'Name of the executor that runs the job.',
  executor_config: 'Parameters of the executor.',
  ephemeral: 'The job is deleted after its first successful launch.',
  starts_at: 'Nothing is planned before this time.',
  expires_at: 'Nothing is planned at or after this time.',
  catch_up: 'Which missed planned times are launched later.',
  max_lateness: 'Planned times older than this are not launched.',
  on_disconnect:
    'What a node without a connection to any server does with a running execution; empty = by concurrency.',
}

/** A job in every response. Fields of the API contract are never left out. */
export const Job = Type.Object(
  {
    id: Type.String({description: 'The same as `name`.'}),
    name: Type.String({description: ABOUT.name}),
    displayname: Type.String({description: ABOUT.displayname}),
    timezone: Type.String({description: ABOUT.timezone}),
    schedule: Type.String({description: ABOUT.schedule}),
    owner: Type.String({description: ABOUT.owner}),
    owner_email: Type.String({description: ABOUT.owner_email}),
    success_count: Type.Integer({description: 'Executions that succeeded since the last reset.'}),
    error_count: Type.Integer({
      description: 'Executions that ended in another state since the last reset.',
    }),
    last_success: OptionalTime('When an execution last succeeded.'),
    last_error: OptionalTime('When an execution last ended in another state.'),
    disabled: Type.Boolean({description: ABOUT.disabled}),
    tags: TextMap(ABOUT.tags),
    metadata: TextMap(ABOUT.metadata),
    retries: Type.Integer({description: ABOUT.retries}),
    dependent_jobs: Type.Array(Type.String(), {
      description: 'Names of the jobs whose parent is this job.',
    }),
    parent_job: Type.String({description: ABOUT.parent_job}),
    processors: Type.Record(Type.String(), Type.Record(Type.String(), Type.String()), {
      description: ABOUT.processors,
    }),
    concurrency: Type.Enum(['allow', 'forbid'], {description: ABOUT.concurrency}),
    executor: Type.String({description: ABOUT.executor}),
    executor_config: TextMap(ABOUT.executor_config),
    status: Type.Enum(['', 'success', 'failed', 'partially_failed'], {
      description: 'How the newest finished launch ended; empty = none has finished yet.',
    }),
    next: OptionalTime('The next planned time.'),
    ephemeral: Type.Boolean({description: ABOUT.ephemeral}),
    starts_at: OptionalTime(ABOUT.starts_at),
    expires_at: OptionalTime(ABOUT.expires_at),
    catch_up: Type.Enum(['latest', 'skip', 'all'], {description: ABOUT.catch_up}),
    max_lateness: Type.String({description: ABOUT.max_lateness}),
    on_disconnect: Type.Enum(['', 'keep', 'stop'], {description: ABOUT.on_disconnect}),
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

/**
 * A definition in a request. `null` means not set in every field; an empty string does in fields whose schema
 * allows it. Read-only and unknown fields are ignored.
 */
export const JobDefinition = Type.Object(
  {
    name: Type.String({
      description: ABOUT.name,
      minLength: 1,
      maxLength: NAME_LENGTH_MAX,
    }),
    displayname: MayBeUnset(
      Type.String({description: ABOUT.displayname, maxLength: DISPLAYNAME_LENGTH_MAX}),
    ),
    timezone: MayBeUnset(Type.String({description: ABOUT.timezone, maxLength: ZONE_LENGTH_MAX})),
    schedule: MayBeUnset(
      Type.String({
        description: `${ABOUT.schedule} Required unless \`parent_job\` is set.`,
        maxLength: SCHEDULE_LENGTH_MAX,
      }),
    ),
    owner: MayBeUnset(Type.String({description: ABOUT.owner, maxLength: OWNER_LENGTH_MAX})),
    owner_email: MayBeUnset(
      Type.String({description: ABOUT.owner_email, maxLength: OWNER_LENGTH_MAX}),
    ),
    disabled: MayBeUnset(Type.Boolean({description: ABOUT.disabled, default: false})),
    tags: MayBeUnset(TextMapInput(ABOUT.tags, TAGS_MAX)),
    metadata: MayBeUnset(TextMapInput(ABOUT.metadata, METADATA_MAX)),
    retries: MayBeUnset(
      Type.Integer({description: ABOUT.retries, minimum: 0, maximum: RETRIES_MAX, default: 0}),
    ),
    parent_job: MayBeUnset(
      Type.String({description: ABOUT.parent_job, maxLength: 2 * NAME_LENGTH_MAX}),
    ),
    processors: MayBeUnset(
      Type.Record(
        Type.String(),
        Type.Union([
          TextMapInput('Parameters of the processor.', CONFIG_ENTRIES_MAX),
          Type.String({description: 'An older form: `true` or `false` for `forward`.'}),
          Type.Null(),
        ]),
        {description: ABOUT.processors, maxProperties: PROCESSORS_MAX},
      ),
    ),
    concurrency: MayBeUnset(
      Type.Enum(['allow', 'forbid', ''], {description: ABOUT.concurrency, default: 'allow'}),
    ),
    executor: MayBeUnset(
      Type.String({description: ABOUT.executor, maxLength: EXECUTOR_LENGTH_MAX}),
    ),
    executor_config: MayBeUnset(TextMapInput(ABOUT.executor_config, CONFIG_ENTRIES_MAX)),
    ephemeral: MayBeUnset(Type.Boolean({description: ABOUT.ephemeral, default: false})),
    starts_at: MayBeUnset(TimeInput(ABOUT.starts_at)),
    expires_at: MayBeUnset(TimeInput(ABOUT.expires_at)),
    catch_up: MayBeUnset(
      Type.Enum(['latest', 'skip', 'all', ''], {description: ABOUT.catch_up, default: 'latest'}),
    ),
    max_lateness: MayBeUnset(
      Type.String({
        description: ABOUT.max_lateness,
        maxLength: DURATION_LENGTH_MAX,
        default: DEFAULT_MAX_LATENESS,
      }),
    ),
    on_disconnect: MayBeUnset(
      Type.Enum(['keep', 'stop', ''], {description: ABOUT.on_disconnect, default: ''}),
    ),
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
        description:
          'An older form of `executor_config.env`, which it replaces: `NAME=value` pairs.',
        deprecated: true,
      }),
    ),
  },
  {$id: 'JobDefinition', description: 'A request to create or replace a job.'},
)
/** Merge patch: no field is required. */
export const JobPatch = Type.Partial(JobDefinition, {
  $id: 'JobPatch',
  description: 'Fields of a job to change. `null` removes a field, or a member of a map.',
})
export type JobDefinitionJson = Static<typeof JobDefinition>

function TimeInput(description: string) {
  return Type.String({...Time(description), format: 'date-time', maxLength: TIME_LENGTH_MAX})
}

/** Read-only fields. Clients send them back with the object that they have read. */
export const READ_ONLY_FIELDS: ReadonlySet<string> = new Set(
  Object.keys(Job.properties).filter((field) => !(field in JobDefinition.properties)),
)

type Encoded = Pick<
  ShownJob,
  'spec' | 'counters' | 'dependentJobs' | 'status' | 'nextAt' | 'conditions'
>

export function encodeJob(job: Encoded): JobJson {
  const {spec, counters} = job
  return {
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
}

const NO_COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

/** The definition alone, as a request has it. */
export function encodeDefinition(spec: JobSpec): Record<string, unknown> {
  const nothing = {counters: NO_COUNTERS, dependentJobs: [], status: '', nextAt: null} as const
  const fields = Object.entries(encodeJob({spec, ...nothing}))
  return Object.fromEntries(fields.filter(([field]) => !READ_ONLY_FIELDS.has(field)))
}
