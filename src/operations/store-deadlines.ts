/**
 * The store with an end to waiting: no caller hangs on a store that does not answer. A read given up is an
 * unavailable store; a write given up may still happen, and the caller is told so. It never repeats anything.
 */
import {DomainError} from '../core/errors.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Slice} from '../ports/page.ts'
import type {Store} from '../ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'

/** Longer than any healthy answer, short enough for a person and for a client's own timeout. */
export const STORE_DEADLINE_MS = 5_000
/** Reading every job there is, or all that one ever did: the answer is under way, it is only long. */
export const LONG_READ_MS = 30_000
/** Restoring a hundred thousand jobs, or copying a database, is long work and known to be. */
export const LONG_WORK_MS = 600_000

const RETRY_AFTER_SECONDS = 1

export class StoreWithDeadlines {
  readonly #store: Store
  readonly #clock: Clock

  constructor(store: Store, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** Throws `DomainError` `store_unavailable` when there is no answer in time. */
  read<Answer>(ask: (store: Store) => Promise<Answer>): Promise<Answer> {
    return this.#within(STORE_DEADLINE_MS, unavailable, ask)
  }

  /** As `read`, for what has no limit on its size. */
  longRead<Answer>(ask: (store: Store) => Promise<Answer>): Promise<Answer> {
    return this.#within(LONG_READ_MS, unavailable, ask)
  }

  /** A list: as `longRead` when it has no end. */
  readSlice<Answer>({end}: Slice, ask: (store: Store) => Promise<Answer>): Promise<Answer> {
    return end === null ? this.longRead(ask) : this.read(ask)
  }

  /** Throws `store_unavailable` when nothing was changed, `outcome_unknown` when that is not certain. */
  write<Answer>(ask: (store: Store) => Promise<Answer>): Promise<Answer> {
    return this.#within(STORE_DEADLINE_MS, outcomeUnknown, ask)
  }

  /** As `write`, for work that may take minutes. */
  longWrite<Answer>(ask: (store: Store) => Promise<Answer>): Promise<Answer> {
    return this.#within(LONG_WORK_MS, outcomeUnknown, ask)
  }

  #within<Answer>(
    limitMs: number,
    late: (cause?: unknown) => DomainError,
    ask: (store: Store) => Promise<Answer>,
  ): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(limitMs, () => reject(late()))
      const settle = (finish: () => void) => {
        timer.cancel()
        finish()
      }
      ask(this.#store).then(
        (answer) => settle(() => resolve(answer)),
        (error: unknown) => settle(() => reject(asRefusal(error))),
      )
    })
  }
}

function asRefusal(error: unknown): unknown {
  if (error instanceof StoreUnavailable) return unavailable(error)
  if (error instanceof OutcomeUnknown) return outcomeUnknown(error)
  return error
}

function unavailable(cause?: unknown): DomainError {
  return new DomainError('store_unavailable', 'The store does not answer; try again later.', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  })
}

function outcomeUnknown(cause?: unknown): DomainError {
  const advice = 'Whether the change was made is unknown; read it, or repeat with the same key.'
  return new DomainError('outcome_unknown', advice, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  })
}
