/**
 * When a failed attempt is tried again: 1 s, doubled up to 5 min, with jitter so that many failures do
 * not return as one.
 */
import type {FinalStatus} from './execution.ts'

/** Short enough that a blip costs a second, long enough that a broken dependency is not hammered. */
const FIRST_DELAY_MS = 1_000
const LONGEST_DELAY_MS = 5 * 60_000
/** The delay is spread over ± this part of itself. */
const JITTER = 0.2

/** Delay before the attempt that follows attempt number `attempt` (from 1). `dice` in [0, 1). Whole ms. */
export function retryDelayMs(attempt: number, dice: number): number {
  const delayMs = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(attempt - 1, 30))
  return Math.round(delayMs * (1 + JITTER * (2 * dice - 1)))
}

/** A cancel is somebody's will and a success needs none; everything else may be tried again. */
export function isRetried(status: FinalStatus): boolean {
  return status === 'failed' || status === 'timed_out' || status === 'lost'
}
