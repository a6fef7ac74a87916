/**
 * Removes pauses of firing whose end has come, once the planned times before it are decided. Until then a
 * leader that was away finds them, and catches up nothing that was paused. A crash in between leaves them to
 * the next look.
 */
import {isInForce} from '../core/firing.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {DueWork, LeaderStore} from '../ports/leader-store.ts'

/** A job that cannot be decided keeps an ended pause: this often is enough to look. */
const EVERY_MS = 10_000

interface EndedPausesParts {
  readonly store: Pick<LeaderStore, 'removeEndedPauses'>
  readonly term: number
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly events: Events
}

export class EndedPauses {
  readonly #parts: EndedPausesParts
  /** Monotonic. */
  #nextLookAt = -Infinity

  constructor(parts: EndedPausesParts) {
    this.#parts = parts
  }

  /** To be called when nothing is due. Costs nothing while no pause has ended. */
  async remove({now, settings}: Pick<DueWork, 'now' | 'settings'>): Promise<void> {
    const {store, term, clock, events} = this.#parts
    if (settings.pauses.every((pause) => isInForce(pause, now))) return
    if (clock.monotonicMs() < this.#nextLookAt) return
    this.#nextLookAt = clock.monotonicMs() + EVERY_MS
    const ended = await store.removeEndedPauses({term})
    for (const {jobs} of ended) events.emit('firing_resumed', {jobs, by: 'until'})
  }
}
