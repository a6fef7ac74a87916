/**
 * Errors that a caller may see: one class, with a code of `error-codes.ts`. Operations throw them; HTTP and
 * the command line present them. Internal faults are never a `DomainError`: they stay plain errors.
 */
import type {ErrorCode} from './error-codes.ts'

interface DomainErrorOptions {
  /** Further members of the problem document, e.g. the open launch. Plain data. */
  readonly members?: Readonly<Record<string, unknown>>
  /** Name of the job that the caller asked for in its body, for the audit log. Not in the response. */
  readonly job?: string
  /** Seconds after which a retry makes sense; absent = the code's own rule. */
  readonly retryAfterSeconds?: number
  readonly cause?: unknown
}

/** `message` is one sentence for people: the cause and, where possible, the fix. */
export class DomainError extends Error {
  override readonly name = 'DomainError'
  readonly code: ErrorCode
  readonly members: Readonly<Record<string, unknown>>
  readonly job: string | null
  readonly retryAfterSeconds: number | null

  constructor(code: ErrorCode, message: string, options: DomainErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : {cause: options.cause})
    this.code = code
    this.members = options.members ?? {}
    this.job = options.job ?? null
    this.retryAfterSeconds = options.retryAfterSeconds ?? null
  }
}
