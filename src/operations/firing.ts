/**
 * Firing: pauses of planned times, and the pause in which a store begins that was put back from a backup.
 * Manual runs, retries and running work are not affected. `core/firing.ts` decides.
 */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {ALL_JOBS, type FiringPause, PAUSES_MAX} from '../core/firing.ts'
import {formatOptionalTime, formatTime} from '../lib/rfc3339.ts'
import type {PausedSinceRestore, PauseRequest} from '../ports/job-store.ts'
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

export interface Firing {
  /** `null` = the store was not put back, or firing was resumed since. */
  readonly store: PausedSinceRestore | null
  readonly pauses: readonly FiringPause[]
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
    request: Omit<PauseRequest, 'actor'>,
    actor: Actor,
  ): Promise<{readonly firing: Firing; readonly warnings: readonly string[]}> {
    const result = await store.pauseFiring({...request, actor})
    if (result.kind === 'past')
      throw new DomainError(
        'body_invalid',
        `The pause of firing is invalid: until: must be in the future: it is ${formatTime(result.now)}.`,
      )
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

  /** `ended` is false if there was no pause with this glob. */
  async function endPause(
    jobs: string,
    actor: Actor,
  ): Promise<{readonly ended: boolean; readonly firing: Firing}> {
    const ended = await store.endFiringPause(jobs, actor)
    if (ended !== null) {
      events.emit('firing_resumed', {jobs, by: 'request'})
      wakeup.notify('launch')
    }
    return {ended: ended !== null, firing: await firing()}
  }

  /**
   * Ends the pause after a restore: plans all jobs from now on. A crash between two batches leaves firing
   * paused; a repeated call continues. Resolves to false if firing was not paused.
   */
  async function resumeFiring(actor: Actor): Promise<boolean> {
    const was = await store.pausedSinceRestore()
    for (let after: number | null = 0; after !== null;)
      after = await store.resumeFiring({after, limit: RESUME_BATCH_MAX, actor})
    wakeup.notify('launch')
    return was !== null
  }

  return {firing, pauseFiring, endPause, resumeFiring}
}
