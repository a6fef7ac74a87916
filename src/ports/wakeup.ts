/**
 * Doorbells between the steps. A ring only makes the next step look sooner; every step also polls, so
 * with every ring dropped the system is slower and nothing else. Rung after the commit, never inside
 * it.
 */

/**
 * `launch`: a request waits or a `next` moved. `run`: a pending execution waits. `cancel`: one is to be
 * ended. `lead`: the lease was let go.
 */
export type Bell = 'launch' | 'run' | 'cancel' | 'lead'

export interface Wakeup {
  ring(bell: Bell): void
  /** Returns the function that stops listening. */
  listen(bell: Bell, heard: () => void): () => void
}
