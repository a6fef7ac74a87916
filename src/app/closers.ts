/** Order of a start and its undoing, for servers and agents. */

/** Stack of what a start has opened: closed newest first, when the start fails or the process stops. */
export class Closers {
  readonly #closers: (() => unknown)[] = []

  add(close: () => unknown): void {
    this.#closers.push(close)
  }

  /** Idempotent: each is called once. */
  async closeAll(): Promise<void> {
    for (const close of this.#closers.splice(0).toReversed()) await close()
  }
}

/** Waits for both even if one fails: what the other has opened must be closed. Throws the first error. */
export async function settleBoth(...steps: readonly [Promise<void>, Promise<void>]): Promise<void> {
  const failed = (await Promise.allSettled(steps)).find(({status}) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}
