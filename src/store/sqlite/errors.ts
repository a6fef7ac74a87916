/**
 * Errors as they travel between the writer and its callers, and which of SQLite's mean that the store is
 * not available.
 */
import {OutcomeUnknown, StoreUnavailable, TermOver} from '../../ports/store-errors.ts'
import {AssertionFailed} from '../../lib/assert.ts'

export type FailureKind = 'unavailable' | 'unknown' | 'term_over' | 'assertion' | 'other'

/** An error as plain data. */
export interface Failure {
  readonly kind: FailureKind
  readonly message: string
  readonly stack: string
}

/** SQLite result codes (low byte) after which trying again later may work. */
const UNAVAILABLE: ReadonlyMap<number, string> = new Map([
  [5, 'is busy'],
  [6, 'is locked'],
  [7, 'is out of memory'],
  [8, 'is read-only'],
  [10, 'cannot be read or written'],
  [13, 'has no space left'],
  [14, 'cannot be opened'],
])
const IO_ERROR = 10

/** SQLite's primary result code of an error, or `null` when it is not one of SQLite's. */
export function resultCode(error: unknown): number | null {
  const errcode = error instanceof Error && 'errcode' in error ? error.errcode : null
  return typeof errcode === 'number' ? errcode & 0xff : null
}

/** True when the fault is the store's and not the statement's. */
export function isUnavailable(error: unknown): boolean {
  const code = resultCode(error)
  return code !== null && UNAVAILABLE.has(code)
}

/** What a failed statement or step means to its caller. */
export function failureOf(error: unknown): Failure {
  const known = error instanceof Error ? error : new Error(String(error))
  const stack = known.stack ?? ''
  const code = resultCode(error)
  const trouble = code === null ? undefined : UNAVAILABLE.get(code)
  if (trouble !== undefined)
    return {kind: 'unavailable', message: `the store ${trouble}: ${known.message}`, stack}
  return {kind: kindOf(known), message: known.message, stack}
}

/** A commit that failed: after an I/O error it may yet be found on the disk. */
export function commitFailureOf(error: unknown): Failure {
  const failure = failureOf(error)
  if (resultCode(error) !== IO_ERROR) return failure
  return {
    ...failure,
    kind: 'unknown',
    message: `the outcome of the commit is unknown: ${failure.message}`,
  }
}

function kindOf(error: Error): FailureKind {
  if (error instanceof TermOver) return 'term_over'
  if (error instanceof StoreUnavailable) return 'unavailable'
  if (error instanceof AssertionFailed) return 'assertion'
  return 'other'
}

/** The error a caller gets; its cause is where it happened. */
export function errorOf(failure: Failure): Error {
  const cause = new Error(failure.message)
  cause.stack = failure.stack
  switch (failure.kind) {
    case 'unavailable':
      return new StoreUnavailable(failure.message, {cause})
    case 'unknown':
      return new OutcomeUnknown(failure.message, {cause})
    case 'term_over':
      return new TermOver(failure.message, {cause})
    case 'assertion':
      return Object.assign(new AssertionFailed(failure.message), {cause})
    case 'other':
      return new Error(`the store failed: ${failure.message}`, {cause})
  }
}
