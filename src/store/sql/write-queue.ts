/**
 * Queue of an engine's writes: those requested during a transaction go together into the next one. Memory is
 * bounded, and each caller gets only the result of its own write, after the commit.
 */
import {BatchQueue, type BatchQueueOptions} from '../../lib/batch-queue.ts'
import type {Events} from '../../ports/events.ts'
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'

/** Writes in one transaction at most: one slow batch must not delay the next for long. */
const COMMIT_ITEMS_MAX = 256
/** Backpressure: with more than this the store cannot keep up, and waiting longer would only cost memory. */
const WAITING_MAX = 20_000

export interface WriteQueueOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  /**
   * Writes in one transaction at most; default 256. A batch never waits for more writes: it holds those
   * requested during the previous commit.
   */
  readonly commitItemsMax?: number
  /** Receives `store_committed` after each commit. */
  readonly events?: Pick<Events, 'emit'>
}

/** `commit`: one result per write, in order; an `Error` rejects its write. */
export function writeQueue<Write>(
  {clock, commitItemsMax = COMMIT_ITEMS_MAX, events}: WriteQueueOptions,
  commit: (writes: readonly Write[]) => Promise<readonly unknown[]>,
  options: Pick<BatchQueueOptions<Write, unknown>, 'flushesMax' | 'shared' | 'isUrgent'> = {},
): BatchQueue<Write, unknown> {
  return new BatchQueue({
    ...options,
    itemsMax: commitItemsMax,
    waitingMax: WAITING_MAX,
    refusal: (why) =>
      new StoreUnavailable(
        why === 'closed' ? 'the store is closed' : 'too many writes wait for the store',
      ),
    flush: commit,
    onFlush: (items) => {
      const startedAt = clock.monotonicMs()
      return () => {
        const duration_ms = clock.monotonicMs() - startedAt
        events?.emit('store_committed', {items, duration_ms})
      }
    },
  })
}
