/**
 * Sessions of browsers: when one ends. The statement of `recordTokenUse` repeats `sessionExpiry` in SQL,
 * because its condition keeps a later use of another server.
 */

/** End of a new session, however much it is used: it never outlives its token. */
export function sessionEnd(openedAt: number, maxMs: number, tokenExpiresAt: number | null): number {
  return Math.min(openedAt + maxMs, tokenExpiresAt ?? Infinity)
}

/** Expiry of a session after a use: its idle time later, and never after its end. Instants of one clock. */
export function sessionExpiry(
  usedAt: number,
  {idleMs, endsAt}: {readonly idleMs: number; readonly endsAt: number},
): number {
  return Math.min(usedAt + idleMs, endsAt)
}
