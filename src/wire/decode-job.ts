/**
 * Decoder for job definitions from any client. It is lenient where the API promises it: `null`, empty
 * strings, older fields, whole objects posted back. Every other problem is one sentence that names the field.
 * Only types and sizes are checked here; `core/validate.ts` and the store check the meaning.
 */
import type {TSchema} from 'typebox'
import type {JobCounters, JobSpec, StringMap} from '../core/job.ts'
import {METADATA_MAX, nameProblem, TAGS_MAX} from '../core/validate.ts'
import {parseTime} from '../lib/rfc3339.ts'
import {type Check, checkOf} from './check.ts'
import {
  CONFIG_ENTRIES_MAX,
  DEFAULT_MAX_LATENESS,
  JobDefinition,
  type JobDefinitionJson,
  PROCESSORS_MAX,
  READ_ONLY_FIELDS,
} from './job.ts'
import {isLongerThan, isObject} from './json.ts'
import {describeSchema, MAP_KEY_LENGTH_MAX, MAP_VALUE_BYTES_MAX} from './shapes.ts'
import {ZERO_TIME} from './time.ts'

export type JobResult =
  | {
      readonly ok: true
      readonly spec: JobSpec
      readonly warnings: readonly string[]
      /** Unknown fields, in the order sent. */
      readonly ignoredFields: readonly string[]
    }
  | Problem

interface Problem {
  readonly ok: false
  readonly problem: string
}

const SHELL = 'shell'
const SHOWN_LENGTH_MAX = 64

/** Fields with a reader of their own: maps name the entry in the problem; names and times have own texts. */
const CUSTOM_FIELDS: ReadonlySet<string> = new Set([
  'name',
  'tags',
  'metadata',
  'processors',
  'executor_config',
  'starts_at',
  'expires_at',
])

const CHECKS: readonly (readonly [string, TSchema, Check])[] = Object.entries(
  JobDefinition.properties as Record<string, TSchema>,
)
  .filter(([field]) => !CUSTOM_FIELDS.has(field))
  .map(([field, schema]) => [field, schema, checkOf(schema)])

/** Ends decoding with a problem. Only `problemOr` catches it. */
class ParseError extends Error {}

/** Decodes one definition. `body` is a value from `readJson`. */
export function decodeJob(body: unknown): JobResult {
  return problemOr(() => readJob(body))
}

export type CountersResult = {readonly ok: true; readonly counters: JobCounters} | Problem

/** Decodes the counters of a job in a restore file. A missing counter is 0, a missing time `null`. */
export function decodeCounters(body: unknown): CountersResult {
  const fields = isObject(body) ? body : {}
  return problemOr(() => {
    const counters = {
      successCount: readCount('success_count', fields.success_count),
      errorCount: readCount('error_count', fields.error_count),
      lastSuccess: readTime('last_success', fields.last_success),
      lastError: readTime('last_error', fields.last_error),
    }
    return {ok: true as const, counters}
  })
}

/** The result of `read`, or the problem of a `ParseError`. */
function problemOr<Result>(read: () => Result): Result | Problem {
  try {
    return read()
  } catch (error) {
    if (error instanceof ParseError) return {ok: false, problem: error.message}
    throw error
  }
}

function readCount(field: string, value: unknown): number {
  const count = value ?? 0
  if (Number.isSafeInteger(count) && Number(count) >= 0) return Number(count)
  throw new ParseError(`${field}: must be an integer of at least 0`)
}

function readJob(body: unknown): JobResult {
  if (!isObject(body)) throw new ParseError('the body must be a JSON object')
  const name = readName(body.name)
  for (const [field, schema, isValid] of CHECKS) {
    if (body[field] === undefined || isValid(body[field])) continue
    throw new ParseError(`${field}: ${describeSchema(schema)}`)
  }
  const fields = body as JobDefinitionJson
  const warnings: string[] = []
  const spec: JobSpec = {
    name,
    displayname: fields.displayname ?? '',
    schedule: (fields.schedule ?? '').trim(),
    timezone: fields.timezone ?? '',
    owner: fields.owner ?? '',
    ownerEmail: fields.owner_email ?? '',
    disabled: fields.disabled ?? false,
    tags: readMap('tags', body.tags, TAGS_MAX),
    metadata: readMap('metadata', body.metadata, METADATA_MAX),
    retries: fields.retries ?? 0,
    parentJob: fields.parent_job ?? '',
    processors: readProcessors(body.processors, warnings),
    concurrency: fields.concurrency === 'forbid' ? 'forbid' : 'allow',
    ...readExecutor(fields, warnings),
    ephemeral: fields.ephemeral ?? false,
    startsAt: readTime('starts_at', fields.starts_at),
    expiresAt: readTime('expires_at', fields.expires_at),
    catchUp: unlessEmpty(fields.catch_up) ?? 'latest',
    maxLateness: unlessEmpty(fields.max_lateness) ?? DEFAULT_MAX_LATENESS,
    onDisconnect: fields.on_disconnect ?? '',
  }
  const ignoredFields = Object.keys(body).filter(
    (field) => !READ_ONLY_FIELDS.has(field) && !(field in JobDefinition.properties),
  )
  return {ok: true, spec, warnings, ignoredFields}
}

function readName(value: unknown): string {
  if (value === undefined || value === null) throw new ParseError('name: is required')
  if (typeof value !== 'string') throw new ParseError('name: must be a string')
  const problem = nameProblem(value)
  if (problem !== null) throw new ParseError(problem)
  return value
}

/** Reads a map of strings. `field` names it in the problem, e.g. `tags` or `processors.files`. */
function readMap(field: string, value: unknown, entriesMax: number): StringMap {
  if (value === undefined || value === null) return {}
  if (!isObject(value)) throw new ParseError(`${field}: must be an object of names and strings`)
  const entries = Object.entries(value)
  if (entries.length > entriesMax)
    throw new ParseError(
      `${field}: has ${entries.length} entries; at most ${entriesMax} are allowed`,
    )
  const map: Record<string, string> = {}
  for (const [key, inner] of entries) {
    if (key.length > MAP_KEY_LENGTH_MAX)
      throw new ParseError(`${field}: a name is longer than ${MAP_KEY_LENGTH_MAX} characters`)
    if (inner === null || inner === undefined) continue
    if (typeof inner === 'object')
      throw new ParseError(
        `${field}.${key}: must be a string, a number or true/false, not a nested value`,
      )
    const text = String(inner)
    if (isLongerThan(text, MAP_VALUE_BYTES_MAX))
      throw new ParseError(`${field}.${key}: is longer than ${MAP_VALUE_BYTES_MAX} bytes`)
    map[key] = text
  }
  return map
}

/** Each processor has a map of parameters. The older form is a single string, the value of `forward`. */
function readProcessors(value: unknown, warnings: string[]): Record<string, StringMap> {
  if (value === undefined || value === null) return {}
  if (!isObject(value)) throw new ParseError('processors: must be an object of processor names')
  const entries = Object.entries(value)
  if (entries.length > PROCESSORS_MAX)
    throw new ParseError(`processors: at most ${PROCESSORS_MAX} are allowed`)
  const processors: Record<string, StringMap> = {}
  for (const [name, parameters] of entries) {
    if (parameters === null || isObject(parameters)) {
      processors[name] = readMap(`processors.${name}`, parameters, CONFIG_ENTRIES_MAX)
    } else if (Array.isArray(parameters)) {
      throw new ParseError(`processors.${name}: must be an object of parameters`)
    } else {
      const text = String(parameters)
      processors[name] = text === 'true' || text === 'false' ? {forward: text} : {}
      if (text !== '' && processors[name].forward === undefined)
        warnings.push(
          `processors.${name}: the value "${text.slice(0, SHOWN_LENGTH_MAX)}" is ignored: it is no parameter`,
        )
    }
  }
  return processors
}

/**
 * Older forms of the shell executor's parameters: `command`, `shell` and `environment_variables` at the top
 * level. A non-empty one wins over `executor_config`: no response has it, so the client has set it. The
 * `executor_config` may be what the client had read before.
 */
function readExecutor(
  fields: JobDefinitionJson,
  warnings: string[],
): {executor: string; executorConfig: StringMap} {
  const config = readMap('executor_config', fields.executor_config, CONFIG_ENTRIES_MAX)
  const older = readOlderParameters(fields)
  let executor = fields.executor ?? ''
  if (executor === '' && (older.command ?? '') + (config.command ?? '') !== '') executor = SHELL
  if (executor === SHELL) return {executor, executorConfig: {...config, ...older}}
  for (const [parameter, field] of Object.entries(OLDER_FIELDS))
    if (parameter in older && parameter !== 'shell')
      warnings.push(`${field}: is ignored: the executor is "${executor}", not "${SHELL}"`)
  return {executor, executorConfig: config}
}

/** The older top-level field of a parameter. */
const OLDER_FIELDS = {command: 'command', shell: 'shell', env: 'environment_variables'} as const

function readOlderParameters(
  fields: JobDefinitionJson,
): Partial<Record<keyof typeof OLDER_FIELDS, string>> {
  const command = fields.command ?? ''
  const shell = String(fields.shell ?? '')
  const env = (fields.environment_variables ?? []).map(escapeVariable).join(',')
  for (const text of [command, env])
    if (isLongerThan(text, MAP_VALUE_BYTES_MAX)) {
      const field = text === env ? OLDER_FIELDS.env : OLDER_FIELDS.command
      throw new ParseError(`${field}: is longer than ${MAP_VALUE_BYTES_MAX} bytes`)
    }
  return {
    ...(command === '' ? {} : {command}),
    ...(shell === '' ? {} : {shell}),
    ...(env === '' ? {} : {env}),
  }
}

/** One `NAME=value` pair as a part of the parameter `env`, in which `\,` stands for a comma. */
function escapeVariable(pair: string): string {
  if (!pair.endsWith('\\')) return pair.replaceAll(',', '\\,')
  const shown = JSON.stringify(pair.slice(0, SHOWN_LENGTH_MAX))
  throw new ParseError(`environment_variables: ${shown} must not end in a backslash`)
}

/** Typed clients send the zero time for a time that is not set. */
function readTime(field: string, value: unknown): number | null {
  if (value === undefined || value === null || value === '' || value === ZERO_TIME) return null
  const at = typeof value === 'string' ? parseTime(value) : null
  if (at === null) {
    const shown = JSON.stringify(value).slice(0, SHOWN_LENGTH_MAX)
    const advice = 'write it as "2026-05-01T08:30:00Z" or with an offset'
    throw new ParseError(`${field}: ${shown} is not a time; ${advice}`)
  }
  return at
}

function unlessEmpty<Text extends string>(value: Text | null | undefined) {
  return value === '' || value === null || value === undefined ? null : (value as Exclude<Text, ''>)
}
