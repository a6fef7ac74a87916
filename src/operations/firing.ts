/**
 * Firing: pauses of planned times, and the pause in which a store begins that was put back from a backup.
 * Manual runs, retries and running work are not affected. `core/firing.ts` decides.
 */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {
  ALL_JOBS,
  type FiringPause,
  jobsGlobProblem,
  normalGlob,
  PAUSE_REASON_LENGTH_MAX,
  PAUSES_MAX,
} from '../core/firing.ts'
import {parseLength} from '../lib/duration.ts'
import {parseTime} from '../lib/rfc3339.ts'
import type {PausedSinceRestore, PauseRequest} from '../ports/job-store.ts'
import type {FiringJson} from '../wire/cluster.ts'
import {formatOptionalTime, formatTime} from '../wire/time.ts'
import type {OperationsContext} from './context.ts'

/** Jobs planned in one transaction. */
const RESUME_BATCH_MAX = 500

/** No rows: only their number. */
const ANY_JOB = {
  start: 0,
  end: 0,
  metadata: [],
  text: '',
  status: null,
  disabled: null,
  sort: 'name',
  order: 'asc',
} as const

// oxlint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x1f\x7f-\x9f]/

export interface Firing {
  /** `null` = the store was not put back, or firing was resumed since. */
  readonly store: PausedSinceRestore | null
  readonly pauses: readonly FiringPause[]
}

/** Fields that are absent have their default. */
export interface AskedPause {
  /** A glob. */
  readonly jobs?: string
  /** A time, or a duration from now. */
  readonly until?: string | null
  readonly reason?: string
}

export function createFiring({store, events, wakeup}: OperationsContext) {
  async function firing(): Promise<Firing> {
    const [putBack, pauses] = await Promise.all([store.pausedSinceRestore(), store.firingPauses()])
    return {store: putBack, pauses}
  }

  /**
   * When it resolves, no planned time of these jobs fires any more. Throws `body_invalid`,
   * `too_many_pauses`.
   */
  async function pauseFiring(
    asked: AskedPause,
    actor: Actor,
  ): Promise<{readonly firing: Firing; readonly warnings: readonly string[]}> {
    const request = readPause(asked)
    const result = await store.pauseFiring({...request, actor})
    if (result.kind === 'past')
      throw invalid(`until: must be in the future: it is ${formatTime(result.now)}`)
    if (result.kind === 'full')
      throw new DomainError(
        'too_many_pauses',
        `Firing cannot be paused: there are ${PAUSES_MAX} pauses. End some, or use a glob.`,
      )
    const {jobs, reason, until} = result.pause
    events.emit('firing_paused', {jobs, until: formatOptionalTime(until) ?? '', reason})
    wakeup.notify('launch')
    const names = [{pattern: jobs, shown: true}]
    const {total} = await store.jobs({...ANY_JOB, names})
    return {
      firing: await firing(),
      warnings:
        total === 0 && jobs !== ALL_JOBS ? [`no job matches ${JSON.stringify(jobs)} now`] : [],
    }
  }

  /** `ended` is false if there was no such pause. Throws `body_invalid`. */
  async function endPause(
    asked: Pick<AskedPause, 'jobs'>,
    actor: Actor,
  ): Promise<{readonly ended: boolean; readonly firing: Firing}> {
    const jobs = readJobs(asked)
    const ended = await store.endFiringPause(jobs, actor)
    if (ended !== null) {
      events.emit('firing_resumed', {jobs, by: 'request'})
      wakeup.notify('launch')
    }
    return {ended: ended !== null, firing: await firing()}
  }

  /**
   * Ends the pause after a restore: plans all jobs from now on. A crash between two batches leaves firing
   * paused; a repeated call continues.
   */
  async function resumeFiring(actor: Actor): Promise<FiringJson> {
    const was = await store.pausedSinceRestore()
    for (let after: number | null = 0; after !== null;)
      after = await store.resumeFiring({after, limit: RESUME_BATCH_MAX, actor})
    wakeup.notify('launch')
    return {resumed: was !== null}
  }

  return {firing, pauseFiring, endPause, resumeFiring}
}

function readPause(asked: AskedPause): Omit<PauseRequest, 'actor'> {
  return {jobs: readJobs(asked), until: readUntil(asked.until), reason: readReason(asked)}
}

function readJobs({jobs = ALL_JOBS}: Pick<AskedPause, 'jobs'>): string {
  const problem = jobsGlobProblem(jobs)
  if (problem !== null) throw invalid(`jobs: ${problem}`)
  return normalGlob(jobs)
}

function readUntil(value: AskedPause['until'] = null): PauseRequest['until'] {
  if (value === null || value === '') return null
  const at = parseTime(value)
  if (at !== null) return {at}
  const afterMs = parseLength(value)
  if (afterMs !== null) return {afterMs}
  throw invalid('until: must be a time such as "2026-05-01T08:30:00Z", or a duration such as "2h"')
}

function readReason({reason = ''}: AskedPause): string {
  if (CONTROL.test(reason)) throw invalid('reason: must be a text on one line')
  if (reason.length > PAUSE_REASON_LENGTH_MAX)
    throw invalid(`reason: must have at most ${PAUSE_REASON_LENGTH_MAX} characters`)
  return reason
}

function invalid(problem: string): DomainError {
  return new DomainError('body_invalid', `The pause of firing is invalid: ${problem}.`)
}
