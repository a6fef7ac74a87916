/**
 * Validation of a job definition by itself: name, schedule, zone, window, tags. Decoding checks only shapes,
 * and only the store knows the other jobs.
 */
import {parseLength} from '../lib/duration.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {type Finding, type Findings, rootOf} from './findings.ts'
import {JOB_FIELDS, type JobSpec} from './job-fields.ts'
import {nextPlanned, scheduleOf} from './next-time.ts'
import {parseSchedule, type Schedule} from './schedule/parse.ts'
import {parseTag} from './target.ts'
import {isKnownZone} from './schedule/zone.ts'

/** A character of a name. */
export const IS_NAME_CHARACTER = /^[\p{Ll}0-9_-]$/u
const ADDRESS_LIKE = /^[^\s@]+@[^\s@]+$/

export interface ValidationContext {
  /** The zone of jobs that name none. */
  readonly defaultTimezone: string
  /** ms since the epoch; affects only the phase of `@every`, never the result. */
  readonly now: number
  /** Fields that could not be decoded: their values in the definition are defaults, and not checked. */
  readonly faulty: ReadonlySet<string>
  /** Says that an unknown field may be this one, which is missing; `''` = there is none. */
  readonly misspelt: (field: string) => string
}

/** The error in a job's name; `null` = valid. */
export function nameProblem(name: string): string | null {
  if (name === '') return 'is required'
  const characters = [...name]
  const {max} = JOB_FIELDS.name
  if (characters.length > max)
    return `is ${characters.length} characters long; at most ${max} are allowed`
  const bad = characters.findIndex((character) => !IS_NAME_CHARACTER.test(character))
  if (bad === -1) return null
  return (
    `the character ${quoteForMessage(characters[bad])} at position ${bad + 1} is not allowed; ` +
    'use lower-case letters, digits, "_" and "-"'
  )
}

/** Validates a decoded definition. */
export function validateSpec(spec: JobSpec, context: ValidationContext): Findings {
  const found = [
    at('name', nameProblem(spec.name)),
    at('parent_job', parentProblem(spec)),
    at('timezone', zoneProblem(spec)),
    at('expires_at', windowProblem(spec)),
    at('max_lateness', latenessProblem(spec)),
    ...tagFaults(spec),
    at('schedule', scheduleProblem(spec, context)),
  ]
  const faults = found.filter((fault) => fault !== null)
  return {
    faults: faults.filter((fault) => !context.faulty.has(rootOf(fault))),
    warnings: [...addressWarnings(spec), ...(faults.length > 0 ? [] : planWarnings(spec, context))],
  }
}

function at(field: string, problem: string | null): Finding | null {
  return problem === null ? null : {field, problem}
}

function parentProblem(spec: JobSpec): string | null {
  const isOwn = spec.parentJob !== '' && spec.parentJob === spec.name
  return isOwn ? 'a job cannot be its own parent' : null
}

function zoneProblem(spec: JobSpec): string | null {
  if (spec.timezone === '' || isKnownZone(spec.timezone)) return null
  const advice = 'use an IANA name such as "Europe/Berlin" or "UTC"'
  return `${quoteForMessage(spec.timezone)} is not a known time zone; ${advice}`
}

function windowProblem(spec: JobSpec): string | null {
  if (spec.startsAt === null || spec.expiresAt === null || spec.expiresAt > spec.startsAt)
    return null
  return 'must be later than starts_at'
}

function latenessProblem(spec: JobSpec): string | null {
  const lengthMs = parseLength(spec.maxLateness)
  if (lengthMs !== null && lengthMs > 0) return null
  return `${quoteForMessage(spec.maxLateness)} is not a length of time; write it as "24h" or "90m"`
}

function tagFaults(spec: JobSpec): Finding[] {
  return Object.entries(spec.tags)
    .map(([key, value]) => parseTag(key, value))
    .flatMap((rule) => (rule.ok ? [] : [rule.fault]))
}

function scheduleProblem(spec: JobSpec, context: ValidationContext): string | null {
  const {defaultTimezone, faulty, misspelt} = context
  if (spec.schedule === '') {
    if (spec.parentJob !== '' || faulty.has('parent_job')) return null
    return `is required unless parent_job is set${misspelt('schedule')}`
  }
  const {max} = JOB_FIELDS.schedule
  if ([...spec.schedule].length > max) return `is longer than ${max} characters`
  // An unknown zone is a fault of its own field.
  const timezone = spec.timezone !== '' && isKnownZone(spec.timezone) ? spec.timezone : ''
  const parsed = parseSchedule(spec.schedule, {
    timezone: timezone === '' ? defaultTimezone : timezone,
    name: spec.name,
    anchorAt: spec.startsAt ?? context.now,
  })
  return parsed.ok ? null : parsed.problem
}

function addressWarnings(spec: JobSpec): Finding[] {
  if (spec.ownerEmail === '' || ADDRESS_LIKE.test(spec.ownerEmail)) return []
  return [{field: 'owner_email', problem: 'does not look like an e-mail address'}]
}

const YEAR_MS = 366 * 24 * 3_600_000

/** A schedule that plans nothing, or not for long, and fields that have no effect on it. */
function planWarnings(spec: JobSpec, {defaultTimezone, now, faulty}: ValidationContext): Finding[] {
  if (spec.disabled || ['schedule', 'parent_job'].some((field) => faulty.has(field))) return []
  const anchorAt = spec.startsAt ?? now
  const schedule = scheduleOf({...spec, parentJob: ''}, anchorAt, defaultTimezone)
  if (schedule === null || schedule.kind === 'manual') return []
  if (spec.parentJob !== '') {
    const parent = quoteForMessage(spec.parentJob)
    return [
      {field: 'schedule', problem: `has no effect: the success of ${parent} launches this job`},
    ]
  }
  const next = nextPlanned(spec, anchorAt, now, defaultTimezone)
  if (next === null) return neverFires(spec, schedule, now)
  if (next - now <= YEAR_MS) return []
  const problem = `fires next at ${new Date(next).toISOString()}, in more than a year`
  return [{field: 'schedule', problem}]
}

function neverFires(spec: JobSpec, schedule: Schedule, now: number): Finding[] {
  if (spec.expiresAt !== null && spec.expiresAt <= now)
    return [{field: 'expires_at', problem: 'is in the past, so nothing is planned'}]
  if (schedule.kind !== 'at')
    return [
      {field: 'schedule', problem: 'has no planned time before expires_at, so it never fires'},
    ]
  // A new job catches up with a time that is not older than this.
  const at = schedule.previous(now + 1)
  const isCaughtUp = at !== null && now - at <= (parseLength(spec.maxLateness) ?? 0)
  if (isCaughtUp && spec.catchUp !== 'skip') return []
  const problem = at === null ? 'is not between starts_at and expires_at' : 'is in the past'
  return [{field: 'schedule', problem: `${problem}, so it never fires`}]
}
