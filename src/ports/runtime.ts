/**
 * Time, as everything above `system/` sees it: nothing else may read a clock or set a timer, so the
 * simulator can turn time itself. A `…At` by `now()` is wall time and decides nothing on a cluster;
 * lengths are measured by `monotonicMs()`.
 */

export interface Timer {
  /** Idempotent; after it returns the callback will not run. */
  cancel(): void
}

export interface Clock {
  /** Wall clock, integer ms since the epoch. May jump. */
  now(): number
  /** Never goes back; fractional ms since some arbitrary start. */
  monotonicMs(): number
  /**
   * Calls `callback` once, no earlier than `delayMs` from now. Any length: adapters clamp and re-arm
   * beyond 2^31 ms.
   */
  after(delayMs: number, callback: () => void): Timer
}

/** Dice and ids; injected, so that a simulated run is repeatable. */
export interface Random {
  /** Uniform in [0, 1). Not for secrets. */
  fraction(): number
  /** Unguessable, URL-safe, at least 128 bits. */
  id(): string
}

/*
 * Doorbells between the steps. A ring only makes the next step look sooner; every step also polls, so
 * with every ring dropped the system is slower and nothing else. Rung after the commit, never inside
 * it.
 */

/**
 * `launch`: a request waits or a `next` moved. `run`: a pending execution waits. `cancel`: one is to be
 * ended. `lead`: the lease was let go.
 */
export type Topic = 'launch' | 'run' | 'cancel' | 'lead'

export interface Wakeup {
  notify(bell: Topic): void
  /** Returns the function that stops listening. */
  subscribe(bell: Topic, heard: () => void): () => void
}
