/**
 * Decoder for job definitions from any client. It is lenient where the API promises it: `null`, empty
 * strings, older fields, whole objects posted back. Every other problem is a fault of its field; all of them
 * are collected. Only types and sizes are checked here; `core/validate.ts` and the store check the meaning.
 */
import type {TSchema} from 'typebox'
import type {JobCounters, JobSpec, JobStatus, StringMap} from '../core/job.ts'
import {DEFAULT_SPEC, JOB_FIELD_LIST, type JobField} from '../core/job-fields.ts'
import {nameProblem} from '../core/validate.ts'
import {FaultList, type Finding} from '../core/findings.ts'
import {didYouMean, meantBy} from '../lib/nearest.ts'
import {parseTime} from '../lib/rfc3339.ts'
import {escapeInvisible, quoteForMessage} from '../lib/quote.ts'
import {type Check, checkOf} from './check.ts'
import {
  CONFIG_ENTRIES_MAX,
  JobDefinition,
  OLDER_FIELDS,
  type OlderFieldsJson,
  READ_ONLY_FIELDS,
} from './job.ts'
import {isLongerThan, isObject} from './json.ts'
import {describeSchema, MAP_KEY_LENGTH_MAX, MAP_VALUE_BYTES_MAX, ZERO_TIME} from './shapes.ts'

/** A field with a fault has its default in `spec`, so that the others can be checked. */
export interface DecodedJob {
  /** Name that was sent, valid or not; `''` = none. */
  readonly name: string
  /** `null` = the body is no object. To be stored only without faults. */
  readonly spec: JobSpec | null
  readonly faults: readonly Finding[]
  readonly warnings: readonly Finding[]
  /** Unknown fields, in the order sent. */
  readonly ignoredFields: readonly string[]
}

const SHELL = 'shell'

/** A value of these is never shown: it may hold a password. */
const HIDDEN_FIELDS: ReadonlySet<string> = new Set(['command', 'environment_variables'])

type Values = Record<string, unknown>

/** A field whose values a schema checks. `key`: where its value is kept. */
interface CheckedField {
  readonly key: string
  readonly field: string
  readonly schema: TSchema
  readonly isValid: Check
}

/** A field with a reader of its own: maps name the entry in the problem; names and times have own texts. */
interface ReadField {
  readonly key: string
  readonly field: string
  readonly read: (value: unknown, warnings: Finding[], faults: FaultList) => unknown
}

const CHECKED_FIELDS: CheckedField[] = []
const READ_FIELDS: ReadField[] = []
for (const field of JOB_FIELD_LIST) {
  const read = readerOf(field)
  const {key, wire} = field
  if (read !== null) READ_FIELDS.push({key, field: wire, read})
  else if (field.kind !== 'name') CHECKED_FIELDS.push(checkedField(key, wire))
}
const OLDER_CHECKED_FIELDS = Object.keys(OLDER_FIELDS).map((field) => checkedField(field, field))

function checkedField(key: string, field: string): CheckedField {
  const schema = (JobDefinition.properties as Readonly<Record<string, TSchema>>)[field]!
  return {key, field, schema, isValid: checkOf(schema)}
}

function readerOf(field: JobField): ReadField['read'] | null {
  const {wire, kind} = field
  if (kind === 'map') return (value, _warnings, faults) => readMap(wire, value, field.max, faults)
  if (kind === 'processors')
    return (value, warnings, faults) => readProcessors(value, field.max, warnings, faults)
  if (kind === 'instant') return (value, _warnings, faults) => readTime(wire, value, faults)
  return null
}

/** Decodes one definition. `body` is a value from `readJson`. */
export function decodeJob(body: unknown): DecodedJob {
  const faults = new FaultList()
  if (isObject(body)) return readJob(body, faults)
  const advice = Array.isArray(body)
    ? '; for a list of jobs use POST /v1/restore, or belfry jobs apply'
    : ''
  faults.add('', `the body must be a JSON object${advice}`)
  return {name: '', spec: null, faults: faults.all, warnings: [], ignoredFields: []}
}

/** Decodes the counters of a job in a restore file. A missing counter is 0, a missing time `null`. */
export function decodeCounters(body: unknown): {
  readonly counters: JobCounters
  readonly faults: readonly Finding[]
} {
  const fields = isObject(body) ? body : {}
  const faults = new FaultList()
  const counters = {
    successCount: readCount('success_count', fields.success_count, faults),
    errorCount: readCount('error_count', fields.error_count, faults),
    lastSuccess: readTime('last_success', fields.last_success, faults),
    lastError: readTime('last_error', fields.last_error, faults),
  }
  return {counters, faults: faults.all}
}

const STATUSES: readonly JobStatus[] = ['', 'success', 'failed', 'partially_failed']

/** Status of a job in a restore file. Another text, such as that of a run in progress, counts as none. */
export function decodeStatus(body: unknown): JobStatus {
  const status: unknown = isObject(body) ? body.status : ''
  return STATUSES.find((known) => known === status) ?? ''
}

function readCount(field: string, value: unknown, faults: FaultList): number {
  const count = value ?? 0
  if (Number.isSafeInteger(count) && Number(count) >= 0) return Number(count)
  faults.add(field, `must be an integer of at least 0, not ${quoteForMessage(value)}`)
  return 0
}

function readJob(body: Readonly<Record<string, unknown>>, faults: FaultList): DecodedJob {
  const ignoredFields = Object.keys(body).filter(
    (field) => !READ_ONLY_FIELDS.has(field) && !(field in JobDefinition.properties),
  )
  const read: Values = {...DEFAULT_SPEC, name: readName(body.name, ignoredFields, faults)}
  const older: Values = {}
  readChecked(CHECKED_FIELDS, body, read, faults)
  readChecked(OLDER_CHECKED_FIELDS, body, older, faults)
  const warnings: Finding[] = []
  for (const each of READ_FIELDS) read[each.key] = each.read(body[each.field], warnings, faults)
  const spec = read as unknown as JobSpec // each value is of the kind of its field
  read['schedule'] = spec.schedule.trim()
  readOlderForms(read, spec, older, warnings, faults)
  const name = typeof body.name === 'string' ? body.name : ''
  return {name, spec, faults: faults.all, warnings, ignoredFields}
}

/** Reads the fields that are set into `values`. A field of a wrong type is a fault. */
function readChecked(
  fields: readonly CheckedField[],
  body: Readonly<Values>,
  values: Values,
  faults: FaultList,
): void {
  for (const {key, field, schema, isValid} of fields) {
    const value = body[field]
    if (value === undefined) continue
    if (isValid(value)) {
      if (value !== null && value !== '') values[key] = value
    } else {
      const sent = HIDDEN_FIELDS.has(field) ? '' : `, not ${quoteForMessage(value)}`
      faults.add(field, `${describeSchema(schema)}${sent}`)
    }
  }
}

function readName(value: unknown, ignored: readonly string[], faults: FaultList): string {
  if (value === undefined || value === null) {
    faults.add('name', `is required${misspelt('name', ignored)}`)
    return ''
  }
  const problem = typeof value === 'string' ? nameProblem(value) : 'must be a string'
  if (problem !== null) faults.add('name', problem)
  return typeof value === 'string' ? value : ''
}

const FIELDS: readonly string[] = Object.keys(JobDefinition.properties)

/** Says that an unknown field may be a required one that is missing; `''` = there is none. */
export function misspelt(field: string, ignoredFields: readonly string[]): string {
  const found = ignoredFields.find((each) => meantBy(each, FIELDS) === field)
  return found === undefined ? '' : `; the unknown field ${quoteForMessage(found)} may be meant`
}

/** True if an unknown field is probably a misspelt one. */
export function isMisspelt(field: string): boolean {
  return meantBy(field, FIELDS) !== ''
}

/** Finding about an unknown field: a fault of a strict request, otherwise a warning. */
export function unknownField(field: string): Finding {
  return {
    field: escapeInvisible(field.slice(0, MAP_KEY_LENGTH_MAX)),
    problem: `is not a field of a job${didYouMean(field, FIELDS)}`,
    code: 'field_unknown',
  }
}

/** Reads a map of strings. `field` names it in the problem, e.g. `tags` or `processors.files`. */
function readMap(field: string, value: unknown, entriesMax: number, faults: FaultList): StringMap {
  if (value === undefined || value === null) return {}
  if (!isObject(value)) {
    faults.add(field, 'must be an object of names and strings, such as {"name": "value"}')
    return {}
  }
  const entries = Object.entries(value)
  if (entries.length > entriesMax) {
    faults.add(field, `has ${entries.length} entries; at most ${entriesMax} are allowed`)
    return {}
  }
  const map: Record<string, string> = {}
  for (const [key, inner] of entries) {
    if (key.length > MAP_KEY_LENGTH_MAX)
      faults.add(field, `a name is longer than ${MAP_KEY_LENGTH_MAX} characters`)
    else if (inner === null || inner === undefined) continue
    else if (typeof inner === 'object')
      faults.add(`${field}.${key}`, 'must be a string, a number or true/false, not a nested value')
    else if (isLongerThan(String(inner), MAP_VALUE_BYTES_MAX))
      faults.add(`${field}.${key}`, `is longer than ${MAP_VALUE_BYTES_MAX} bytes`)
    else map[key] = String(inner)
  }
  return map
}

/** Each processor has a map of parameters. The older form is a single string, the value of `forward`. */
function readProcessors(
  value: unknown,
  max: number,
  warnings: Finding[],
  faults: FaultList,
): Record<string, StringMap> {
  if (value === undefined || value === null) return {}
  if (!isObject(value)) {
    faults.add('processors', 'must be an object of processor names')
    return {}
  }
  const entries = Object.entries(value)
  if (entries.length > max) {
    faults.add('processors', `at most ${max} are allowed`)
    return {}
  }
  const processors: Record<string, StringMap> = {}
  for (const [name, parameters] of entries) {
    const field = `processors.${name}`
    if (parameters === null || isObject(parameters)) {
      processors[name] = readMap(field, parameters, CONFIG_ENTRIES_MAX, faults)
    } else if (Array.isArray(parameters)) {
      faults.add(field, 'must be an object of parameters')
    } else {
      const text = String(parameters)
      processors[name] = text === 'true' || text === 'false' ? {forward: text} : {}
      if (text !== '' && processors[name].forward === undefined)
        warnings.push({
          field,
          problem: `the value ${quoteForMessage(text)} is ignored: it is no parameter`,
        })
    }
  }
  return processors
}

/**
 * Older forms of the shell executor's parameters: `command`, `shell` and `environment_variables` at the top
 * level. A non-empty one wins over `executor_config`: no response has it, so the client has set it. The
 * `executor_config` may be what the client had read before.
 */
function readOlderForms(
  values: Values,
  {executor: name, executorConfig: config}: JobSpec,
  fields: OlderFieldsJson,
  warnings: Finding[],
  faults: FaultList,
): void {
  const older = readOlderParameters(fields, faults)
  const hasCommand = (older.command ?? '') + (config['command'] ?? '') !== ''
  const executor = name === '' && hasCommand ? SHELL : name
  if (executor === SHELL) {
    values['executor'] = executor
    values['executorConfig'] = {...config, ...older}
    return
  }
  for (const [parameter, field] of Object.entries(FIELD_OF_PARAMETER))
    if (parameter in older && parameter !== 'shell')
      warnings.push({field, problem: `is ignored: the executor is "${executor}", not "${SHELL}"`})
}

/** The older top-level field of a parameter. */
const FIELD_OF_PARAMETER = {
  command: 'command',
  shell: 'shell',
  env: 'environment_variables',
} as const

function readOlderParameters(
  fields: OlderFieldsJson,
  faults: FaultList,
): Partial<Record<keyof typeof FIELD_OF_PARAMETER, string>> {
  const command = fields.command ?? ''
  const shell = String(fields.shell ?? '')
  const variables = fields.environment_variables ?? []
  const at = variables.findIndex((pair) => pair.endsWith('\\'))
  if (at !== -1) faults.add(FIELD_OF_PARAMETER.env, `entry ${at + 1} must not end in a backslash`)
  const env = variables.map((pair) => pair.replaceAll(',', '\\,')).join(',')
  for (const parameter of ['command', 'env'] as const)
    if (isLongerThan(parameter === 'env' ? env : command, MAP_VALUE_BYTES_MAX))
      faults.add(FIELD_OF_PARAMETER[parameter], `is longer than ${MAP_VALUE_BYTES_MAX} bytes`)
  return {
    ...(command === '' ? {} : {command}),
    ...(shell === '' ? {} : {shell}),
    ...(env === '' ? {} : {env}),
  }
}

/** Typed clients send the zero time for a time that is not set. */
function readTime(field: string, value: unknown, faults: FaultList): number | null {
  if (value === undefined || value === null || value === '' || value === ZERO_TIME) return null
  const at = typeof value === 'string' ? parseTime(value) : null
  if (at === null) {
    const advice = 'write it as "2026-05-01T08:30:00Z" or with an offset'
    faults.add(field, `${quoteForMessage(value)} is not a time; ${advice}`)
  }
  return at
}
