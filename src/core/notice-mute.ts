/** Mutes of notices: limits. Nothing is sent about the jobs until it ends; incidents continue. */

/** Each evaluation reads all of them. */
export const MUTES_MAX = 100
const DAYS_MAX = 30
/** A mute must not hide failures for longer if no one ends it. */
export const MUTE_MAX_MS = DAYS_MAX * 24 * 60 * 60_000
export const MUTE_REASON_LENGTH_MAX = 300
