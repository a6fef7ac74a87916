/**
 * A refused start: Belfry cannot start now, for a reason outside the program. Composition roots throw it; the
 * entry prints its message and exits with code 1, without waiting or retrying.
 */

/** The message tells the operator the cause and the fix. */
export class StartRefused extends Error {
  override readonly name = 'StartRefused'
}

/** A setting that only the start can find invalid. Exit code 2: a supervisor need not try again. */
export class SettingRefused extends StartRefused {}

/** Returns a successful result; throws `StartRefused` with the problem of a failed one. */
export function orRefuse<Result extends {readonly ok: boolean}>(
  result: Result | {readonly ok: false; readonly problem: string},
): Extract<Result, {readonly ok: true}> {
  if (!result.ok) throw new StartRefused((result as {readonly problem: string}).problem)
  return result as Extract<Result, {readonly ok: true}>
}
