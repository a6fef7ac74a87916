/**
 * Counts of the store for status and metrics. They count whole tables: with very many jobs that is slow, and
 * scrapes would load the database and fail. A count that was slow is used for a while.
 */
import type {Clock} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'

/** A count that took longer is slow. */
const SLOW_MS = 250
/** A slow count is used for this many times its duration: counting takes at most a twentieth of the time. */
const USED_FACTOR = 20

/** Returns a function that throws if the store does not reply, even while it need not count. */
export function boundedCount<Counts>(
  store: Pick<Store, 'submissionsPaused'>,
  clock: Pick<Clock, 'monotonicMs'>,
  read: () => Promise<Counts>,
): () => Promise<Counts> {
  let last: Counts | null = null
  let usedUntil = -Infinity
  let counting: Promise<Counts> | null = null

  async function count(): Promise<Counts> {
    const beganAt = clock.monotonicMs()
    try {
      last = await read()
    } finally {
      const endedAt = clock.monotonicMs()
      const tookMs = endedAt - beganAt
      usedUntil = tookMs > SLOW_MS ? endedAt + USED_FACTOR * tookMs : -Infinity
    }
    return last
  }

  return async () => {
    if (last !== null && clock.monotonicMs() < usedUntil) {
      await store.submissionsPaused()
      return last
    }
    counting ??= count().finally(() => (counting = null))
    return await counting
  }
}
