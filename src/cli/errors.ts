/** Errors that end a client command with a message for people, and the exit codes. */

import {codeOf} from '../lib/error.ts'

export const EXIT_FAILED = 1
export const EXIT_USAGE = 2

/** The command line, or a variable in place of a flag, is invalid. Exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** The command failed. Exit code 1. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed'
}

/** The command has printed its answer, which is no. Exit code 1, without a message. */
export class NegativeResult extends Error {
  override readonly name = 'NegativeResult'
}

/** A request to the server failed. Exit code 1. */
export class CallFailed extends Error {
  override readonly name = 'CallFailed'
  /** HTTP status; `null` when there was no response. */
  readonly status: number | null
  /** The error code of the server, or of the connection. */
  readonly code: string
  /** Each problem of several, as the server sends them. */
  readonly errors: readonly unknown[] | null

  constructor(
    message: string,
    status: number | null,
    {code, errors, ...options}: ErrorOptions & {code?: string; errors?: readonly unknown[]} = {},
  ) {
    super(message, options)
    this.status = status
    this.code = code ?? 'refused'
    this.errors = errors ?? null
  }
}

/** `null` for an unexpected error. */
export function expectedMessage(error: unknown): string | null {
  return error instanceof CallFailed || error instanceof CommandFailed ? error.message : null
}

const READ_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: 'it does not exist',
  EACCES: 'this user may not read it',
  EISDIR: 'it is a directory',
  ENOTDIR: 'a part of its path is not a directory',
}

/** Why a file cannot be read, as a clause. */
export function readFailure(error: unknown): string {
  const code = codeOf(error)
  return READ_FAILURES[code] ?? code
}
