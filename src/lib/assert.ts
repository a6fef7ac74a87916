/**
 * The one way to say "this cannot be". A failed assertion is a broken invariant: nothing catches it,
 * the process ends and another takes over. Never used for bad input; that is a `DomainError`.
 */
export class AssertionFailed extends Error {
  override readonly name = 'AssertionFailed'
}

/** Throws `AssertionFailed` unless `condition` holds; `message` says which invariant broke. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionFailed(message)
}

/** For the `default` of a switch over a union: a compile error when a case is missing. */
export function unreachable(value: never): never {
  throw new AssertionFailed(`unreachable: ${String(value)}`)
}
