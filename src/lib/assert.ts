/**
 * Assertions. A failed assertion is a broken invariant: it is never caught, the process ends, and another
 * takes over. Bad input is a `DomainError` instead.
 */
export class AssertionFailed extends Error {
  override readonly name = 'AssertionFailed'
}

/** `message` states the invariant. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionFailed(message)
}

/** Ends the `default` of a switch over a union: a missing case is a compile error. */
export function unreachable(value: never): never {
  throw new AssertionFailed(`unreachable: ${String(value)}`)
}
