/**
 * Reading a job's definition from JSON that any client may have written: lenient where the interface promises
 * it (null, empty texts, older fields, whole objects posted back), and one sentence that names the field
 * where it is not. It knows shapes only; whether the definition makes sense is for `core/validate.ts` and the
 * store.
 */
import type {TSchema} from 'typebox'
import {Compile, type Validator} from 'typebox/compile'
import type {JobCounters, JobSpec, StringMap} from '../core/job.ts'
import {METADATA_MAX, nameProblem, TAGS_MAX} from '../core/validate.ts'
import {
  CONFIG_ENTRIES_MAX,
  JobDefinition,
  type JobDefinitionJson,
  PROCESSORS_MAX,
  READ_ONLY_FIELDS,
} from './job.ts'
import {isObject} from './json.ts'
import {describeSchema, MAP_KEY_LENGTH_MAX, MAP_VALUE_BYTES_MAX} from './shapes.ts'
import {parseTime, ZERO_TIME} from './time.ts'

export type JobReading =
  | {
      readonly ok: true
      readonly spec: JobSpec
      readonly warnings: readonly string[]
      /** Fields nobody knows, in the order sent. */
      readonly ignoredFields: readonly string[]
    }
  | {readonly ok: false; readonly problem: string}

const DEFAULT_MAX_LATENESS = '24h'
const SHELL = 'shell'
const SHOWN_LENGTH_MAX = 64

/**
 * Maps are read by hand, so that the sentence can name the entry; names and times have sentences of their
 * own.
 */
const READ_BY_HAND: ReadonlySet<string> = new Set([
  'name',
  'tags',
  'metadata',
  'processors',
  'executor_config',
  'starts_at',
  'expires_at',
])

const CHECKS: readonly (readonly [string, TSchema, Validator])[] = Object.entries(
  JobDefinition.properties as Record<string, TSchema>,
)
  .filter(([field]) => !READ_BY_HAND.has(field))
  .map(([field, schema]) => [field, schema, Compile(schema)])

/** A refusal on its way out of the decoder; never leaves this file. */
class ParseError extends Error {}

/** Reads one definition. `body` is what `readJson` answered. */
export function decodeJob(body: unknown): JobReading {
  try {
    return readJob(body)
  } catch (error) {
    if (error instanceof ParseError) return {ok: false, problem: error.message}
    throw error
  }
}

export type CountersReading =
  | {readonly ok: true; readonly counters: JobCounters}
  | {readonly ok: false; readonly problem: string}

/** The counters of a job in a restore file; what is not there counts as nothing. */
export function decodeCounters(body: unknown): CountersReading {
  const fields = isObject(body) ? body : {}
  try {
    const counters = {
      successCount: readCount('success_count', fields.success_count),
      errorCount: readCount('error_count', fields.error_count),
      lastSuccess: readTime('last_success', fields.last_success),
      lastError: readTime('last_error', fields.last_error),
    }
    return {ok: true, counters}
  } catch (error) {
    if (error instanceof ParseError) return {ok: false, problem: error.message}
    throw error
  }
}

function readCount(field: string, value: unknown): number {
  const count = value ?? 0
  if (Number.isSafeInteger(count) && Number(count) >= 0) return Number(count)
  throw new ParseError(`${field}: must be a whole number from 0 on`)
}

function readJob(body: unknown): JobReading {
  if (!isObject(body)) throw new ParseError('the body must be a JSON object')
  const name = readName(body.name)
  for (const [field, schema, validator] of CHECKS) {
    if (body[field] === undefined || validator.Check(body[field])) continue
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
  if (typeof value !== 'string') throw new ParseError('name: must be a text')
  const problem = nameProblem(value)
  if (problem !== null) throw new ParseError(problem)
  return value
}

function readMap(field: string, value: unknown, entriesMax: number): StringMap {
  if (value === undefined || value === null) return {}
  const reading = readTextMap(field, value, entriesMax)
  if (!reading.ok) throw new ParseError(reading.problem)
  return reading.map
}

/**
 * Each processor has a map of parameters; the older form is a single text, which can only have meant
 * `forward`.
 */
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
          `processors.${name}: the text "${text.slice(0, 64)}" is not a parameter and is ignored`,
        )
    }
  }
  return processors
}

/**
 * `command` and `shell` at the top are the older form of the shell executor; what `executor_config` says goes
 * first.
 */
function readExecutor(
  fields: JobDefinitionJson,
  warnings: string[],
): {executor: string; executorConfig: StringMap} {
  const config = readMap('executor_config', fields.executor_config, CONFIG_ENTRIES_MAX)
  let executor = fields.executor ?? ''
  const older: Record<string, string> = {}
  if (typeof fields.command === 'string' && fields.command !== '') older.command = fields.command
  const shell = fields.shell ?? ''
  if (shell !== '') older.shell = String(shell)
  if (executor === '' && (older.command ?? '') + (config.command ?? '') !== '') executor = SHELL
  if (Object.keys(older).length === 0) return {executor, executorConfig: config}
  if (executor !== SHELL) {
    if (older.command !== undefined)
      warnings.push(`command: is ignored, since the executor is "${executor}" and not "${SHELL}"`)
    return {executor, executorConfig: config}
  }
  const said = Object.entries(config).filter(([key, value]) => !(key in older) || value !== '')
  return {executor, executorConfig: {...older, ...Object.fromEntries(said)}}
}

/** The zero time is what typed clients send for a time that is not set. */
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

/*
 * Reading maps of string to string from JSON that may hold booleans, numbers and nulls, and the sentence when
 * it holds worse. Apart from the job's decoder because tags, metadata, parameters and processors share it.
 */

export type MapReading =
  | {readonly ok: true; readonly map: Record<string, string>}
  | {readonly ok: false; readonly problem: string}

/** Reads one map. `field` names it in the sentence, e.g. `tags` or `processors.files`. */
export function readTextMap(field: string, value: unknown, entriesMax: number): MapReading {
  if (!isObject(value)) return refuse(`${field}: must be an object of names and texts`)
  const entries = Object.entries(value)
  if (entries.length > entriesMax)
    return refuse(`${field}: has ${entries.length} entries; at most ${entriesMax} are allowed`)
  const map: Record<string, string> = {}
  for (const [key, inner] of entries) {
    if (key.length > MAP_KEY_LENGTH_MAX)
      return refuse(`${field}: a name is longer than ${MAP_KEY_LENGTH_MAX} characters`)
    if (inner === null || inner === undefined) continue
    if (typeof inner === 'object')
      return refuse(`${field}.${key}: must be a text, a number or true/false, not a nested value`)
    const text = String(inner)
    if (longerThan(text, MAP_VALUE_BYTES_MAX))
      return refuse(`${field}.${key}: is longer than ${MAP_VALUE_BYTES_MAX} bytes`)
    map[key] = text
  }
  return {ok: true, map}
}

/** True when the text takes more than `bytesMax` bytes of UTF-8. Cheap for texts far from the limit. */
export function longerThan(text: string, bytesMax: number): boolean {
  if (text.length > bytesMax) return true
  return text.length * 3 > bytesMax && new TextEncoder().encode(text).length > bytesMax
}

function refuse(problem: string): MapReading {
  return {ok: false, problem}
}
