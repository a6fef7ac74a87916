/** Caught values: a library may throw any value, and codes are not part of the type of errors. */

export function asError(caught: unknown): Error {
  return caught instanceof Error ? caught : new Error(String(caught))
}

export function messageOf(caught: unknown): string {
  return caught instanceof Error ? caught.message : String(caught)
}

/** The code of an error of the system, such as `ENOENT`, or the error as text. */
export function codeOf(caught: unknown): string {
  return caught instanceof Error && 'code' in caught ? String(caught.code) : String(caught)
}
