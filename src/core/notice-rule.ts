/**
 * Rules of notices: the definition as people write it, its checks, and the compiled form with lengths in
 * ms. `CONDITIONS` is the one table of conditions. Pure; `notice-incidents.ts` applies rules to facts.
 */
import {assert} from '../lib/assert.ts'
import {parseLength} from '../lib/duration.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {matchesText} from './access/glob.ts'
import {type Finding, FaultList} from './findings.ts'
import {jobsGlobProblem} from './firing.ts'
import {LAUNCH_REASONS} from './launch-reasons.ts'
import {SEVERITIES, type Severity} from './notice-message.ts'
import {parseSchedule, type Schedule} from './schedule/parse.ts'
import {isKnownZone} from './schedule/zone.ts'

/** Every server reads all rules at each evaluation. */
export const RULES_MAX = 200
/** Excludes `/`: keys of incidents and paths of the API name rules. */
export const RULE_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/
/** Path of a rule, as policies name it. */
export function rulePath(name: string): string {
  return `/v1/notices/rules/${name}`
}

/** Channels of one rule. */
export const RULE_CHANNELS_MAX = 10
/** Spans of quiet hours of one rule. */
export const QUIET_MAX = 20
/** Pairs of `metadata` of one rule. */
export const RULE_METADATA_MAX = 20
export const OUTPUT_LINES_MAX = 100

/** Parameters of a condition: the kind of value by its name. */
type Parameter =
  | {readonly kind: 'count'; readonly min: number; readonly max: number}
  | {readonly kind: 'length'; readonly minMs: number; readonly maxMs: number}
  | {readonly kind: 'reasons'}
  | {readonly kind: 'schedule'}
  | {readonly kind: 'zone'}

const SECOND_MS = 1_000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

const count = (min: number, max: number) => ({kind: 'count', min, max}) as const
const length = (minMs: number, maxMs: number) => ({kind: 'length', minMs, maxMs}) as const

interface ConditionRow {
  /** `job`: an incident is about a job. `cluster`: about the cluster or a node. */
  readonly subject: 'job' | 'cluster'
  /**
   * `fact`: found in the transaction of a change. `sweep`: found by regular reads. `server`: found by
   * each server in its memory.
   */
  readonly foundBy: 'fact' | 'sweep' | 'server'
  /** False: each fact is a message, and nothing opens or closes. */
  readonly hasState: boolean
  readonly parameters: Readonly<Record<string, Parameter>>
  /** Parameters without which the condition says nothing: one of each list. */
  readonly needs?: readonly (readonly string[])[]
  /** Markdown, with what opens and what closes an incident. */
  readonly means: string
}

const FACT = {subject: 'job', foundBy: 'fact', hasState: true, parameters: {}} as const
const SWEEP = {...FACT, foundBy: 'sweep'} as const
const CLUSTER = {...SWEEP, subject: 'cluster'} as const

/** Every condition of a rule. A released condition keeps its meaning. */
export const CONDITIONS = {
  failed: {
    ...FACT,
    parameters: {after: count(1, 1_000)},
    means:
      'That many launches in a row ended `failed` or `partially_failed` (1), until one succeeds',
  },
  failed_times: {
    ...FACT,
    parameters: {times: count(2, 50), within: length(MINUTE_MS, 30 * DAY_MS)},
    needs: [['times'], ['within']],
    means:
      '`times` launches failed `within` that time, in a row or not, until that time passed without one',
  },
  skipped: {
    ...FACT,
    parameters: {reasons: {kind: 'reasons'}},
    means: 'A planned time was skipped for one of these `reasons`, until the next launch',
  },
  missed: {...FACT, means: 'A planned time was missed, until the next launch'},
  lost: {...FACT, means: 'An execution was lost with its node, until the job succeeds'},
  quarantined: {
    ...FACT,
    means: 'Belfry disabled the job after two nodes died with it, until it is enabled',
  },
  disabled: {
    ...FACT,
    parameters: {for: length(0, 365 * DAY_MS)},
    means: 'The job is disabled `for` longer than this (0s), until it is enabled or deleted',
  },
  deleted: {
    ...FACT,
    means:
      'The job was deleted, until a job of that name exists again, or for 24 h; the message says who ' +
      'deleted it',
  },
  late: {
    ...SWEEP,
    parameters: {by: length(30 * SECOND_MS, 30 * DAY_MS)},
    needs: [['by']],
    means:
      'A planned time is undecided, or its first attempt not started, `by` longer than this, until it is',
  },
  running: {
    ...SWEEP,
    parameters: {for: length(30 * SECOND_MS, 365 * DAY_MS), times: count(2, 1_000)},
    needs: [['for', 'times']],
    means:
      'An execution runs `for` longer than this, or `times` its typical duration and a minute, until it ends',
  },
  no_success_for: {
    ...SWEEP,
    parameters: {for: length(MINUTE_MS, 5 * 365 * DAY_MS)},
    needs: [['for']],
    means:
      'The last success is older than this, also of disabled and paused jobs, and of a name without a job; ' +
      'until one succeeds',
  },
  expected_by: {
    ...SWEEP,
    parameters: {
      schedule: {kind: 'schedule'},
      timezone: {kind: 'zone'},
      since: length(MINUTE_MS, 5 * 365 * DAY_MS),
    },
    needs: [['schedule'], ['since']],
    means:
      'At a time of `schedule` in `timezone` there was no success within `since`, until one succeeds',
  },
  output: {...FACT, hasState: false, means: 'A launch wrote output'},
  succeeded: {...FACT, hasState: false, means: 'A launch succeeded'},
  started: {...FACT, hasState: false, means: 'A planned time or a request was launched'},
  no_leader: {
    ...CLUSTER,
    parameters: {for: length(10 * SECOND_MS, DAY_MS)},
    means: 'No server leads `for` longer than this (30s), until one does',
  },
  node_failed: {...CLUSTER, means: 'A node sends no heartbeats, until it does or is removed'},
  firing_paused: {
    ...CLUSTER,
    parameters: {for: length(MINUTE_MS, 365 * DAY_MS)},
    means: 'Firing is paused `for` longer than this (1h), until the pause ends',
  },
  undecided: {
    ...CLUSTER,
    parameters: {for: length(30 * SECOND_MS, DAY_MS)},
    means:
      'Planned times are due and undecided `for` longer than this (60s), until they are decided',
  },
  store: {
    ...CLUSTER,
    foundBy: 'server',
    parameters: {for: length(10 * SECOND_MS, DAY_MS)},
    means:
      'The store cannot be written `for` longer than this (60s), also because its disk is full, until it ' +
      'can; each server tells it from its memory, in messages with the same id',
  },
  notices_failing: {
    ...CLUSTER,
    parameters: {for: length(MINUTE_MS, 30 * DAY_MS)},
    means: 'A channel has delivered nothing `for` this time (1h) although it should, until it does',
  },
} as const satisfies Record<string, ConditionRow>

export type Condition = keyof typeof CONDITIONS

const ROWS: Readonly<Record<string, ConditionRow>> = CONDITIONS

/** All rows with their names. */
export const CONDITION_ROWS = Object.entries(ROWS) as readonly (readonly [
  Condition,
  ConditionRow,
])[]

/** True if a condition of the rule is about the cluster or its nodes. */
export function isAboutCluster({when}: Pick<RuleDefinition, 'when'>): boolean {
  return CONDITION_ROWS.some(
    ([name, {subject}]) => subject === 'cluster' && Object.hasOwn(when, name),
  )
}

/** Parameters as people write them: counts, lengths such as `15m`, lists of reason codes. */
export type ConditionParameters = Readonly<Record<string, string | number | readonly string[]>>

export const DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'] as const
export type Day = (typeof DAYS)[number]

/** Hours in which messages wait. `to` at or before `from` = on the next day. */
export interface QuietHours {
  /** Days on which the span begins; empty = every day. */
  readonly days: readonly string[]
  /** `22:00` on the wall clock of the zone. */
  readonly from: string
  readonly to: string
  readonly timezone: string
  /** Rules of this severity are sent at once; `''` = none. */
  readonly except: string
}

/** A rule as people write it: the names and texts of its JSON, with defaults filled in. */
export interface RuleDefinition {
  readonly name: string
  /** Glob over names of jobs. */
  readonly jobs: string
  /** Pairs that a job must have in its own metadata. */
  readonly metadata: Readonly<Record<string, string>>
  /** Owner of the job; `''` = any. */
  readonly owner: string
  readonly severity: string
  /** Names of channels. */
  readonly to: readonly string[]
  /** Conditions with their parameters. */
  readonly when: Readonly<Record<string, ConditionParameters>>
  /** Say also when it is over. */
  readonly recovered: boolean
  readonly group_wait: string
  /** A length, or `never`. */
  readonly repeat: string
  readonly quiet: readonly QuietHours[]
  /** Last lines of the output in a message. */
  readonly output_lines: number
}

export const RULE_DEFAULTS: Omit<RuleDefinition, 'name' | 'to' | 'when'> = {
  jobs: '*',
  metadata: {},
  owner: '',
  severity: 'error',
  recovered: true,
  group_wait: '5s',
  repeat: '24h',
  quiet: [],
  output_lines: 20,
}

const NEVER = 'never'
const GROUP_WAIT_MAX_MS = HOUR_MS
const REPEAT_MIN_MS = 5 * MINUTE_MS
const REPEAT_MAX_MS = 30 * DAY_MS

/** Faults of a definition whose shape is right. Channels are looked up by the store; empty = valid. */
export function checkRule(rule: RuleDefinition): readonly Finding[] {
  const faults = new FaultList()
  const add = (field: string, problem: string | null) => {
    if (problem !== null) faults.add(field, problem)
  }
  if (!RULE_NAME.test(rule.name))
    add('name', 'must have 1 to 64 letters, digits, ".", "_" or "-", and cannot be "." or ".."')
  add('jobs', jobsGlobProblem(rule.jobs))
  if (Object.keys(rule.metadata).length > RULE_METADATA_MAX)
    add('metadata', `must have at most ${RULE_METADATA_MAX} pairs`)
  if (!isSeverity(rule.severity)) add('severity', `must be one of ${SEVERITIES.join(', ')}`)
  add('to', channelsProblem(rule.to))
  checkConditions(rule.when, add)
  add('group_wait', lengthProblem(rule.group_wait, 0, GROUP_WAIT_MAX_MS))
  if (rule.repeat !== NEVER) {
    const problem = lengthProblem(rule.repeat, REPEAT_MIN_MS, REPEAT_MAX_MS)
    add('repeat', problem === null ? null : `${problem}, or "${NEVER}"`)
  }
  if (rule.quiet.length > QUIET_MAX) add('quiet', `must have at most ${QUIET_MAX} entries`)
  for (const [index, hours] of rule.quiet.entries())
    checkQuiet(hours, (field, problem) => add(`quiet[${index}].${field}`, problem))
  if (!isCount(rule.output_lines, 0, OUTPUT_LINES_MAX))
    add('output_lines', `must be a whole number from 0 to ${OUTPUT_LINES_MAX}`)
  return faults.all
}

type Add = (field: string, problem: string | null) => void

function channelsProblem(to: readonly string[]): string | null {
  if (to.length === 0) return 'must name at least one channel'
  if (to.length > RULE_CHANNELS_MAX) return `must name at most ${RULE_CHANNELS_MAX} channels`
  const twice = to.find((name, index) => to.indexOf(name) !== index)
  return twice === undefined ? null : `must name the channel ${quoteForMessage(twice)} once`
}

function checkConditions(when: RuleDefinition['when'], add: Add): void {
  const names = Object.keys(when)
  if (names.length === 0) add('when', `must have a condition, such as "failed": {}`)
  for (const name of names) {
    if (!Object.hasOwn(ROWS, name)) {
      add(`when.${name}`, `is no condition. Use one of ${Object.keys(ROWS).join(', ')}`)
      continue
    }
    const {parameters, needs = []} = ROWS[name]!
    const given = when[name]!
    for (const [key, value] of Object.entries(given)) {
      const field = `when.${name}.${key}`
      if (Object.hasOwn(parameters, key)) add(field, parameterProblem(parameters[key]!, value))
      else add(field, `is no parameter of ${name}`)
    }
    for (const oneOf of needs)
      if (!oneOf.some((key) => Object.hasOwn(given, key)))
        add(`when.${name}`, `must have ${oneOf.map((key) => `"${key}"`).join(' or ')}`)
  }
}

function parameterProblem(parameter: Parameter, value: unknown): string | null {
  switch (parameter.kind) {
    case 'count': {
      const {min, max} = parameter
      return isCount(value, min, max) ? null : `must be a whole number from ${min} to ${max}`
    }
    case 'length':
      return lengthProblem(value, parameter.minMs, parameter.maxMs)
    case 'reasons':
      return reasonsProblem(value)
    case 'schedule':
      return expectedProblem(value)
    case 'zone':
      return typeof value === 'string' ? zoneProblem(value) : 'must be a text'
  }
}

function isCount(value: unknown, min: number, max: number): value is number {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= max
}

function lengthProblem(value: unknown, minMs: number, maxMs: number): string | null {
  const ms = typeof value === 'string' ? parseLength(value) : null
  if (ms === null) return 'must be a length of time, such as "15m"'
  if (ms >= minMs && ms <= maxMs) return null
  return `must be from ${minMs / SECOND_MS}s to ${maxMs / SECOND_MS}s`
}

function reasonsProblem(value: unknown): string | null {
  if (!Array.isArray(value) || value.length === 0) return 'must be a list of reason codes'
  const unknown = value.find((code) => !Object.hasOwn(LAUNCH_REASONS, String(code)))
  return unknown === undefined ? null : `${quoteForMessage(String(unknown))} is no reason code`
}

function expectedProblem(value: unknown): string | null {
  if (typeof value !== 'string') return 'must be a text'
  const parsed = parseSchedule(value, {timezone: 'UTC', name: '', anchorAt: 0})
  return parsed.ok ? null : parsed.problem
}

function zoneProblem(zone: string): string | null {
  if (isKnownZone(zone)) return null
  return `${quoteForMessage(zone)} is not a known time zone; use an IANA name such as "Europe/Berlin"`
}

const CLOCK = /^([01]\d|2[0-3]):([0-5]\d)$/

function checkQuiet({days, from, to, timezone, except}: QuietHours, add: Add): void {
  if (days.some((day) => !(DAYS as readonly string[]).includes(day)))
    add('days', `must be among ${DAYS.join(', ')}`)
  for (const [field, value] of [
    ['from', from],
    ['to', to],
  ] as const)
    if (!CLOCK.test(value)) add(field, 'must be a time of day, such as "22:00"')
  add('timezone', zoneProblem(timezone))
  if (except !== '' && !isSeverity(except))
    add('except', `must be one of ${SEVERITIES.join(', ')}, or empty`)
}

function isSeverity(text: string): text is Severity {
  return (SEVERITIES as readonly string[]).includes(text)
}

/** A job as rules see it. */
export interface NoticeJob {
  readonly name: string
  readonly owner: string
  readonly metadata: Readonly<Record<string, string>>
}

/** True if the rule is about this job. */
export function covers(
  rule: Pick<RuleDefinition, 'jobs' | 'metadata' | 'owner'>,
  job: NoticeJob,
): boolean {
  if (!matchesText(rule.jobs, job.name)) return false
  if (rule.owner !== '' && rule.owner !== job.owner) return false
  return Object.entries(rule.metadata).every(
    ([key, value]) => Object.hasOwn(job.metadata, key) && job.metadata[key] === value,
  )
}

/** A rule ready for evaluation. Lengths in ms. */
export interface CompiledRule {
  readonly definition: RuleDefinition
  readonly name: string
  readonly severity: Severity
  readonly groupWaitMs: number
  /** `null` = an open incident is not repeated. */
  readonly repeatMs: number | null
  readonly quiet: readonly {readonly starts: Schedule; readonly ends: Schedule}[]
}

/** `definition` has no faults. */
export function compileRule(definition: RuleDefinition): CompiledRule {
  const {name, severity, repeat, quiet} = definition
  assert(isSeverity(severity), `${name} is checked`)
  return {
    definition,
    name,
    severity,
    groupWaitMs: lengthOf(definition.group_wait, 0),
    repeatMs: repeat === NEVER ? null : lengthOf(repeat, 0),
    quiet: quiet
      .filter(({except}) => except !== severity)
      .map(({days, from, to, timezone}) => ({
        starts: daily(from, timezone, days),
        ends: daily(to, timezone, []),
      })),
  }
}

/** The parameter of a condition as a length in ms; `otherwise` = it is not given. */
export function lengthOf(
  value: ConditionParameters[string] | undefined,
  otherwise: number,
): number {
  return typeof value === 'string' ? (parseLength(value) ?? otherwise) : otherwise
}

function daily(clock: string, timezone: string, days: readonly string[]): Schedule {
  const [, hour, minute] = CLOCK.exec(clock)!
  const text = `0 ${Number(minute)} ${Number(hour)} * * ${days.length === 0 ? '*' : days.join(',')}`
  const parsed = parseSchedule(text, {timezone, name: '', anchorAt: 0})
  assert(parsed.ok, `${text} is a schedule`)
  return parsed.schedule
}

/** End of the quiet hours that cover the instant; `null` = none do. */
export function quietUntil({quiet}: Pick<CompiledRule, 'quiet'>, at: number): number | null {
  let latest: number | null = null
  for (const {starts, ends} of quiet) {
    const began = starts.previous(at + 1)
    const end = began === null ? null : ends.next(began)
    if (end !== null && end > at) latest = Math.max(latest ?? end, end)
  }
  return latest
}
