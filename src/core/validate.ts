/**
 * Validation of a job definition by itself: name, schedule, zone, window, tags. Decoding checks only shapes,
 * and only the store knows the other jobs.
 */
import {parseLength} from '../lib/duration.ts'
import type {JobSpec} from './job.ts'
import {parseSchedule, SCHEDULE_LENGTH_MAX} from './schedule/parse.ts'
import {parseTag} from './target.ts'
import {isKnownZone} from './schedule/zone.ts'

export const NAME_LENGTH_MAX = 128
export const TAGS_MAX = 64
export const METADATA_MAX = 64

/** One character of a name. */
export const IS_NAME_CHARACTER = /^[\p{Ll}0-9_-]$/u
const ADDRESS_LIKE = /^[^\s@]+@[^\s@]+$/

export interface ValidationContext {
  /** The zone of jobs that name none. */
  readonly defaultTimezone: string
  /** ms since the epoch; affects only the phase of `@every`, never the result. */
  readonly now: number
}

/** Problems reject the job, warnings are shown. Each is a sentence that begins with the field's name. */
export interface Findings {
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

/** The error in a job's name; `null` = valid. */
export function nameProblem(name: string): string | null {
  if (name === '') return 'name: is required'
  const characters = [...name]
  if (characters.length > NAME_LENGTH_MAX)
    return `name: is ${characters.length} characters long; at most ${NAME_LENGTH_MAX} are allowed`
  const bad = characters.findIndex((character) => !IS_NAME_CHARACTER.test(character))
  if (bad === -1) return null
  return (
    `name: the character ${JSON.stringify(characters[bad])} at position ${bad + 1} is not allowed; ` +
    'use lower-case letters, digits, "_" and "-"'
  )
}

/** Validates a decoded definition. */
export function validateSpec(spec: JobSpec, context: ValidationContext): Findings {
  const found: (string | null)[] = [
    nameProblem(spec.name),
    parentProblem(spec),
    zoneProblem(spec),
    windowProblem(spec),
    latenessProblem(spec),
    ...tagProblems(spec),
  ]
  if (!found.some((problem) => problem !== null)) found.push(scheduleProblem(spec, context))
  return {problems: found.filter((problem) => problem !== null), warnings: warningsOf(spec)}
}

function parentProblem(spec: JobSpec): string | null {
  if (spec.parentJob === '') return null
  if (spec.parentJob === spec.name) return 'parent_job: a job cannot be its own parent'
  return null
}

function zoneProblem(spec: JobSpec): string | null {
  if (spec.timezone === '' || isKnownZone(spec.timezone)) return null
  const advice = 'use an IANA name such as "Europe/Berlin" or "UTC"'
  return `timezone: "${spec.timezone}" is not a known time zone; ${advice}`
}

function windowProblem(spec: JobSpec): string | null {
  if (spec.startsAt === null || spec.expiresAt === null || spec.expiresAt > spec.startsAt)
    return null
  return 'expires_at: must be later than starts_at'
}

function latenessProblem(spec: JobSpec): string | null {
  const lengthMs = parseLength(spec.maxLateness)
  if (lengthMs !== null && lengthMs > 0) return null
  return `max_lateness: "${spec.maxLateness}" is not a length of time; write it as "24h" or "90m"`
}

function tagProblems(spec: JobSpec): string[] {
  return Object.entries(spec.tags)
    .map(([key, value]) => parseTag(key, value))
    .flatMap((rule) => (rule.ok ? [] : [rule.problem]))
}

function scheduleProblem(spec: JobSpec, context: ValidationContext): string | null {
  if (spec.schedule === '') {
    return spec.parentJob === '' ? 'schedule: is required unless parent_job is set' : null
  }
  if ([...spec.schedule].length > SCHEDULE_LENGTH_MAX)
    return `schedule: is longer than ${SCHEDULE_LENGTH_MAX} characters`
  const parsed = parseSchedule(spec.schedule, {
    timezone: spec.timezone === '' ? context.defaultTimezone : spec.timezone,
    name: spec.name,
    anchorAt: spec.startsAt ?? context.now,
  })
  return parsed.ok ? null : `schedule: ${parsed.problem}`
}

function warningsOf(spec: JobSpec): string[] {
  if (spec.ownerEmail === '' || ADDRESS_LIKE.test(spec.ownerEmail)) return []
  return ['owner_email: does not look like an e-mail address']
}
