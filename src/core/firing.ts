/**
 * Pauses of firing: which planned times of which jobs do not run. Pure. A pause applies to jobs whose name
 * matches its glob, until a time or until it is ended. Its planned times are skipped, and never caught up.
 */
import {matchesText} from './access/glob.ts'
import type {JobSpec} from './job.ts'
import type {StoredLaunch} from './launch-record.ts'
import {reasonText} from './launch-reasons.ts'
import {dueUntil, undecidedTimes} from './next-time.ts'
import type {Schedule} from './schedule/parse.ts'
import {IS_NAME_CHARACTER} from './validate.ts'

/** Pauses in force. Each pass of the leader reads all of them, */
export const PAUSES_MAX = 100
/** and those that have ended as long as planned times before their end are undecided. */
export const PAUSES_STORED_MAX = 1_000
/** A name of a job, and some `*`. */
export const PAUSE_GLOB_LENGTH_MAX = 300
export const PAUSE_REASON_LENGTH_MAX = 300
/** The glob of all jobs. */
export const ALL_JOBS = '*'

export interface FiringPause {
  /** Glob over names of jobs: `*` is any text. One pause a glob. */
  readonly jobs: string
  readonly reason: string
  readonly pausedAt: number
  /** Name of the token. */
  readonly pausedBy: string
  /** Exclusive, by the store's clock; `null` = until it is ended. */
  readonly until: number | null
}

/** Settings that decisions about planned times depend on, besides the job. */
export interface LaunchSettings {
  /** Increases with every change of the others. */
  readonly revision: number
  /** Zone of jobs that name none. */
  readonly defaultZone: string
  /** False: jobs are still to be planned with a new default zone, before any due one is decided. */
  readonly isPlanned: boolean
  /**
   * Includes ended pauses until all planned times before their end are decided: a leader that was away must
   * not catch up what was paused.
   */
  readonly pauses: readonly FiringPause[]
}

/** Why a text is no glob over names of jobs, as the end of a sentence; `null` = it is one. */
export function jobsGlobProblem(text: string): string | null {
  if (text === '') return 'must name jobs, such as "backup-*", or "*" for all'
  if (text.length > PAUSE_GLOB_LENGTH_MAX)
    return `must have at most ${PAUSE_GLOB_LENGTH_MAX} characters`
  const isGlob = [...text].every(
    (character) => character === '*' || IS_NAME_CHARACTER.test(character),
  )
  return isGlob ? null : 'must be a name of a job, in which * is any text, such as "backup-*"'
}

/** Normal spelling of a glob: `**` is `*`. */
export function normalGlob(text: string): string {
  return text.replaceAll(/\*+/g, '*')
}

export function isInForce({until}: Pick<FiringPause, 'until'>, now: number): boolean {
  return until === null || until > now
}

/** End of a pause as a request names it: an instant, or a length from now; `null` = until it is ended. */
export type PauseEnd = {readonly at: number} | {readonly afterMs: number} | null

export function instantOfEnd(end: PauseEnd, now: number): number | null {
  if (end === null) return null
  return 'at' in end ? end.at : now + Math.ceil(end.afterMs)
}

/** True if no pause can be added to these stored ones. */
export function arePausesFull(stored: readonly FiringPause[], now: number): boolean {
  if (stored.length >= PAUSES_STORED_MAX) return true
  return stored.filter((pause) => isInForce(pause, now)).length >= PAUSES_MAX
}

/** The pause of the job that ends last; `null` = none. */
export function latestPause(pauses: readonly FiringPause[], name: string): FiringPause | null {
  let latest: FiringPause | null = null
  for (const pause of pauses)
    if (matchesText(pause.jobs, name) && (latest === null || endOf(pause) > endOf(latest)))
      latest = pause
  return latest
}

/** Undecided planned times of the job before this are paused; `-Infinity` = none is. */
export function pausedUntil(pauses: readonly FiringPause[], name: string): number {
  const latest = latestPause(pauses, name)
  return latest === null ? -Infinity : endOf(latest)
}

function endOf({until}: FiringPause): number {
  return until ?? Infinity
}

/** The stored reason of what a pause skips: with its text, its author and its end. */
export function pausedReason({reason, pausedBy, until}: FiringPause): string {
  const end = until === null ? [] : [`until ${new Date(until).toISOString()}`]
  const text = reason === '' ? [] : [JSON.stringify(reason)]
  return reasonText('firing_paused', [...text, `by ${pausedBy}`, ...end].join(', '))
}

const PAUSED_REASON =
  /^(?:("(?:[^"\\\p{Cc}]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"), )?by (.+?)(?:, until (\S+Z))?$/u

/** The parts of a stored reason after its code: `"new storage", by ops, until 2026-11-22T04:00:00.000Z`. */
export function parsePausedReason(detail: string): {
  readonly text: string
  readonly by: string
  /** `null` = until it is ended. */
  readonly until: number | null
} {
  const parts = PAUSED_REASON.exec(detail)
  const [, text = '""', by = '', until] = parts ?? []
  return {
    text: JSON.parse(text) as string,
    by,
    until: until === undefined ? null : Date.parse(until),
  }
}

/**
 * Separates the due times that a pause of firing covers, as one row, from the others. `firesFrom`: the first
 * of the others; `null` = none.
 */
export function splitPaused(
  schedule: Schedule,
  spec: JobSpec,
  from: number,
  {now, pauses}: {readonly now: number; readonly pauses: readonly FiringPause[]},
): {readonly paused: readonly StoredLaunch[]; readonly firesFrom: number | null} {
  const pause = latestPause(pauses, spec.name)
  if (pause === null || endOf(pause) <= from) return {paused: [], firesFrom: from}
  const end = dueUntil(spec, from, now)
  const pauseEnd = Math.min(endOf(pause), end)
  const times = undecidedTimes(schedule, from)
  const scheduledUntil = times.previous(pauseEnd) ?? from
  const count = times.count(from, pauseEnd)
  const covered = {scheduledAt: from, scheduledUntil, count, targets: []}
  const next = times.next(scheduledUntil)
  return {
    paused: [{...covered, decision: 'skipped', reason: pausedReason(pause)}],
    firesFrom: next !== null && next < end ? next : null,
  }
}
