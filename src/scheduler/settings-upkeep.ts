/**
 * Applies changed settings to all jobs, page by page. After a crash the next leader resumes.
 *
 * - Jobs without a zone of their own are planned with a new default zone.
 * - Pauses of firing whose end has come are removed, once the planned times before it are decided. Until then
 *   a leader that was away finds them, and catches up nothing that was paused.
 */
import type {Limits} from '../config/limits.ts'
import {isInForce} from '../core/firing.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {DueWork, LeaderStore} from '../ports/leader-store.ts'
import {isPassing, type JobFaults} from './job-faults.ts'

/** A job that cannot be decided keeps an ended pause: this often is enough to look. */
const EVERY_MS = 10_000

interface SettingsUpkeepParts {
  readonly store: Pick<LeaderStore, 'removeEndedPauses' | 'planZone'>
  readonly term: number
  readonly limits: Pick<Limits, 'launchBatchMax'>
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly events: Events
}

export class SettingsUpkeep {
  readonly #parts: SettingsUpkeepParts
  /** Monotonic. */
  #nextLookAt = -Infinity
  /** Jobs of the next page. */
  #pageMax: number

  constructor(parts: SettingsUpkeepParts) {
    this.#parts = parts
    this.#pageMax = parts.limits.launchBatchMax
  }

  /**
   * Plans a page of jobs. Pages shrink until a job at fault is alone: it is skipped and reported, and decided
   * as it is. Throws errors that are no fault of a job.
   */
  async planZone(faults: JobFaults): Promise<void> {
    const {store, term, limits} = this.#parts
    const limit = this.#pageMax
    try {
      await store.planZone({term, limit})
      this.#pageMax = Math.min(limits.launchBatchMax, 2 * limit)
    } catch (error) {
      if (isPassing(error)) throw error
      this.#pageMax = Math.ceil(limit / 2)
      if (limit > 1) return
      const {skipped} = await store.planZone({term, limit, isFaulty: true})
      if (skipped !== null) faults.add({...skipped, group: null}, error)
    }
  }

  /** Removes pauses that have ended; called when nothing is due. Costs nothing while no pause has ended. */
  async removeEndedPauses({now, settings}: Pick<DueWork, 'now' | 'settings'>): Promise<void> {
    const {store, term, clock, events} = this.#parts
    if (settings.pauses.every((pause) => isInForce(pause, now))) return
    if (clock.monotonicMs() < this.#nextLookAt) return
    this.#nextLookAt = clock.monotonicMs() + EVERY_MS
    const ended = await store.removeEndedPauses({term})
    for (const {jobs} of ended) events.emit('firing_resumed', {jobs, by: 'until'})
  }
}
