/**
 * Errors of SQLite: their kind, and their form in messages between the writer thread and its callers.
 */
import {asError} from '../../lib/error.ts'
import {OutcomeUnknown, StoreDamaged, StoreUnavailable, TermOver} from '../../ports/store-errors.ts'
import {AssertionFailed} from '../../lib/assert.ts'

export type FailureKind =
  'unavailable' | 'unknown' | 'damaged' | 'term_over' | 'assertion' | 'other'

/** An error as plain data. */
export interface Failure {
  readonly kind: FailureKind
  readonly message: string
  readonly stack: string
}

/** SQLite result codes (low byte) after which a retry may succeed. */
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
/** The file is corrupt, or no database any more. A retry meets the same, and a write can make it worse. */
const DAMAGED: ReadonlySet<number> = new Set([11, 26])

/** SQLite's primary result code; `null` = not an error of SQLite. */
export function resultCode(error: unknown): number | null {
  const errcode = error instanceof Error && 'errcode' in error ? error.errcode : null
  return typeof errcode === 'number' ? errcode & 0xff : null
}

/** True if the store failed, not the statement. */
export function isUnavailable(error: unknown): boolean {
  const code = resultCode(error)
  return code !== null && UNAVAILABLE.has(code)
}

/** True if the file is corrupt. */
export function isDamaged(error: unknown): boolean {
  const code = resultCode(error)
  return code !== null && DAMAGED.has(code)
}

/** The kind of error of a failed statement or query, for its caller. */
export function failureOf(error: unknown): Failure {
  const known = asError(error)
  const stack = known.stack ?? ''
  const code = resultCode(error)
  const problem = code === null ? undefined : UNAVAILABLE.get(code)
  if (problem !== undefined)
    return {kind: 'unavailable', message: `the store ${problem}: ${known.message}`, stack}
  if (isDamaged(error))
    return {kind: 'damaged', message: `the store is damaged: ${known.message}`, stack}
  return {kind: kindOf(known), message: known.message, stack}
}

/** Error of a commit: after an I/O error the commit may be on the disk. */
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
  if (error instanceof StoreDamaged) return 'damaged'
  if (error instanceof StoreUnavailable) return 'unavailable'
  if (error instanceof AssertionFailed) return 'assertion'
  return 'other'
}

/** The error for the caller; its cause has the stack of the writer. */
export function errorOf(failure: Failure): Error {
  const cause = new Error(failure.message)
  cause.stack = failure.stack
  switch (failure.kind) {
    case 'unavailable':
      return new StoreUnavailable(failure.message, {cause})
    case 'unknown':
      return new OutcomeUnknown(failure.message, {cause})
    case 'damaged':
      return new StoreDamaged(failure.message, {cause})
    case 'term_over':
      return new TermOver(failure.message, {cause})
    case 'assertion':
      return Object.assign(new AssertionFailed(failure.message), {cause})
    case 'other':
      return new Error(`the store failed: ${failure.message}`, {cause})
  }
}
