/**
 * Delivery of notices: what the answer of a receiver means, and when the next attempt is. The tables are
 * the whole rule. Pure: the sender brings the answer, the caller stores the outcome.
 */
import {backoffMs} from '../lib/backoff.ts'

/** `retry`: the receiver may accept it later. `permanent`: it refused the message or the request. */
export type DeliveryOutcome = 'sent' | 'retry' | 'permanent'

export interface Delivery {
  readonly outcome: DeliveryOutcome
  /** Status and a fixed sentence, for people. It never has a part of an answer or of the configuration. */
  readonly cause: string
  /** The receiver's own wish; absent = none. */
  readonly retryAfterMs?: number
}

type Row = readonly [matches: RegExp, outcome: DeliveryOutcome, sentence: string]

/** The first row that matches decides. */
const HTTP_ANSWERS: readonly Row[] = [
  [/^2..$/, 'sent', 'accepted'],
  [/^3..$/, 'permanent', 'the receiver redirects, which is not followed'],
  [/^(401|403)$/, 'permanent', 'the receiver refused the credentials'],
  [/^(404|410)$/, 'permanent', 'the receiver does not know this address'],
  [/^408$/, 'retry', 'the receiver waited too long for the request'],
  [/^413$/, 'permanent', 'the message is too large for the receiver'],
  [/^425$/, 'retry', 'the receiver does not accept the request yet'],
  [/^429$/, 'retry', 'the receiver accepts no more messages at the moment'],
  [/^4..$/, 'permanent', 'the receiver refused the message'],
  [/^5..$/, 'retry', 'the receiver failed'],
]

const SMTP_ANSWERS: readonly Row[] = [
  [/^2..$/, 'sent', 'accepted'],
  [/^421$/, 'retry', 'the mail server is not available'],
  [/^454$/, 'retry', 'the mail server cannot check the password at the moment'],
  [/^4..$/, 'retry', 'the mail server asks to try again later'],
  [/^(530|534|535|538)$/, 'permanent', 'the mail server refused the user or the password'],
  [/^(550|551|553)$/, 'permanent', 'the mail server refused a sender or recipient'],
  [/^552$/, 'permanent', 'the message is too large for the mail server'],
  [/^5..$/, 'permanent', 'the mail server refused the message'],
]

/** `retryAfterMs` is used when the receiver asks to try again. */
export function judgeHttp(status: number, retryAfterMs: number | null = null): Delivery {
  const delivery = judge(HTTP_ANSWERS, status, 'the answer is no answer of HTTP')
  return delivery.outcome === 'retry' && retryAfterMs !== null
    ? {...delivery, retryAfterMs}
    : delivery
}

export function judgeSmtp(code: number): Delivery {
  return judge(SMTP_ANSWERS, code, 'the answer is no answer of SMTP')
}

function judge(rows: readonly Row[], status: number, otherwise: string): Delivery {
  const row = rows.find(([matches]) => matches.test(String(status)))
  if (row === undefined) return {outcome: 'permanent', cause: `${status}: ${otherwise}`}
  const [, outcome, sentence] = row
  return {outcome, cause: `${status}: ${sentence}`}
}

/** Reads the header `Retry-After`: seconds, or a date of HTTP. `null` = it says nothing. */
export function parseRetryAfter(text: string, now: number): number | null {
  const value = text.trim()
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000
  if (!HTTP_DATE.test(value)) return null
  const at = Date.parse(value)
  return Number.isNaN(at) ? null : Math.max(0, at - now)
}

/** The only form that senders may generate (RFC 9110). */
const HTTP_DATE = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

const RETRY = {firstMs: 5_000, maxMs: 15 * 60_000}
const RETRY_FOR_MS = 24 * 60 * 60_000
/** Delays after the first, second and third attempt that was refused: a person may correct the receiver. */
const REFUSED_MS = [60_000, 10 * 60_000, 60 * 60_000] as const
const [, , REFUSED_LAST_MS] = REFUSED_MS
const REFUSED_FOR_MS = REFUSED_MS.reduce((sum, delayMs) => sum + delayMs)

/**
 * Instant of the next attempt; `null` = none, the message is dead. `attempt` (≥ 1) ended with `outcome`
 * at `now`; `firstAt` = when the first one was due. No attempt is later than 24 h after the first,
 * however long the receiver asked to wait. A message that was refused four times is dead. A receiver
 * that failed before and refuses now may be about to start, so the message is tried every hour until the
 * 24 h are over.
 */
export function nextAttempt(
  outcome: 'retry' | 'permanent',
  attempt: number,
  firstAt: number,
  now: number,
  retryAfterMs = 0,
): number | null {
  const lastAt = firstAt + RETRY_FOR_MS
  const wasRefusedBefore = attempt === REFUSED_MS.length + 1 && now - firstAt >= REFUSED_FOR_MS
  if (now >= lastAt || (outcome === 'permanent' && wasRefusedBefore)) return null
  const delayMs =
    outcome === 'retry'
      ? Math.max(backoffMs(RETRY, attempt), retryAfterMs)
      : (REFUSED_MS[attempt - 1] ?? REFUSED_LAST_MS)
  return Math.min(now + delayMs, lastAt)
}
