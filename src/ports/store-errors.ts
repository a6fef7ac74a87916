/** Errors that every method of the store may throw; expected outcomes are return values. */

/** Nothing was changed. A later retry may succeed. */
export class StoreUnavailable extends Error {
  override readonly name: string = 'StoreUnavailable'
}

/**
 * The stored data is corrupt. The store takes no further write, and this process must end: see `onDamage`.
 */
export class StoreDamaged extends StoreUnavailable {
  override readonly name = 'StoreDamaged'
}

/** The commit may or may not have happened: re-read by identity, never repeat without that. */
export class OutcomeUnknown extends Error {
  override readonly name = 'OutcomeUnknown'
}

/** A write under a term that another leader has replaced. Nothing was changed; the caller steps down. */
export class TermOver extends Error {
  override readonly name = 'TermOver'
}
