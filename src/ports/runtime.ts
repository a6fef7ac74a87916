/**
 * Ports to the runtime: clock, randomness and wakeups. Only `platform/` reads a clock or sets a timer, so
 * that the simulator controls time. A `…At` from `now()` is wall time and decides nothing on a cluster.
 * Durations are measured with `monotonicMs()`.
 */

export interface Timer {
  /** Idempotent; the callback does not run after it returns. */
  cancel(): void
}

export interface Clock {
  /** Wall clock, integer ms since the epoch. May jump. */
  now(): number
  /** Never decreases; fractional ms since an arbitrary start. */
  monotonicMs(): number
  /**
   * Calls `callback` once, no earlier than `delayMs` from now. Any length: adapters re-arm timers beyond
   * 2^31 ms.
   */
  after(delayMs: number, callback: () => void): Timer
}

/** Randomness and ids; injected, so that a simulated run is repeatable. */
export interface Random {
  /** Uniform in [0, 1). Not for secrets. */
  fraction(): number
  /** Unguessable, URL-safe, at least 128 bits. */
  id(): string
}

/**
 * Topics of wakeups. `launch`: a request is pending or a `next` moved. `run`: an execution is pending.
 * `cancel`: an execution must end. `lead`: the lease was released. `burst`: far more planned times are due
 * than one pass of the leader records, and nodes claim little for a moment. `access`: a token or a policy
 * changed. `notices`: a rule changed, or a message waits.
 */
export type Topic = 'launch' | 'run' | 'cancel' | 'lead' | 'burst' | 'access' | 'notices'

/**
 * Wakeups between services: a notification only makes the next step run sooner. Every service also polls, so
 * a lost notification costs latency and nothing else. Sent after the commit, never inside it.
 */
export interface Wakeup {
  notify(topic: Topic): void
  /** Returns the function that unsubscribes. */
  subscribe(topic: Topic, listener: () => void): () => void
}
