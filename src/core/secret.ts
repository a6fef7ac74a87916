/** Secrets of jobs: names and limits. Pure; how values are stored and who gets them is elsewhere. */

/** Excludes `.` and `..`: clients resolve them in a path. */
export const SECRET_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/

/** A shorter value is found everywhere in an output, so it cannot be redacted. */
export const SECRET_LENGTH_MIN = 6
/** Holds a private key with its certificates. Each execution that names it holds it in memory. */
export const SECRET_BYTES_MAX = 8 * 1024
/** With the length of a value, bounds the reply to a claim. */
export const SECRETS_MAX = 1_000

/** For policies. */
export function secretPath(name: string): string {
  return `/v1/secrets/${name}`
}
