/**
 * How a store fails: what a caller can count on after each. Thrown by every method of the port; everything
 * expected is a return value.
 */
/** Nothing was changed; trying again later may work. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable'
}

/** The commit may or may not have happened: re-read by identity, never repeat blindly. */
export class OutcomeUnknown extends Error {
  override readonly name = 'OutcomeUnknown'
}

/** A leader write under a term that is over. The caller steps down. */
export class TermOver extends Error {
  override readonly name = 'TermOver'
}
