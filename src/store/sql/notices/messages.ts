/**
 * Messages of notices: claimed by any server, marked after their delivery. A server that dies after its
 * claim leaves the message as claimed; another server claims it again when the claim expires, marked as a
 * repetition.
 */
import {nextAttempt} from '../../../core/notice-delivery.ts'
import type {MessageKind, NoticeMessage} from '../../../core/notice-message.ts'
import type {ClaimedNotice, NoticeEngineStore} from '../../../ports/notice-engine-store.ts'
import {recordChannelUse} from './channels.ts'
import {all, each, one, type Query, sendEach, type Transaction} from '../query.ts'

/** Longer than a delivery may take. */
const CLAIM_MS = 60_000
/** Messages of a channel that are being sent, by all servers. */
const AT_ONCE_MAX = 4
/** Channels at a time; there are at most as many. */
const CHANNELS_MAX = 100

interface MessageRow {
  readonly message_number: number
  readonly message_channel: string
  readonly message_rule: string
  readonly message_kind: MessageKind
  readonly message_data: string
  readonly message_attempt: number
  readonly send_at: number
  readonly holds_others: number
  readonly sender: string
  readonly claim_until: number | null
}

type ClaimRequest = Parameters<NoticeEngineStore['claimNotices']>[0]

export function* claimNotices(
  tx: Transaction,
  {sender, free, otherwise}: ClaimRequest,
): Query<readonly ClaimedNotice[]> {
  const channels = yield* all<{channel: string}>(
    `SELECT DISTINCT message_channel AS channel FROM notice_messages
      WHERE message_state = 'waiting' LIMIT ?`,
    [CHANNELS_MAX],
  )
  const wanted = channels.flatMap(({channel}) => {
    const count = free[channel] ?? otherwise
    return count > 0 ? [{channel, count}] : []
  })
  const found = yield* each<MessageRow>(
    `SELECT message_number, message_channel, message_rule, message_kind, message_data,
        message_attempt, send_at, holds_others, sender, claim_until FROM notice_messages
      WHERE message_channel = ? AND message_state = 'waiting'
      ORDER BY message_number LIMIT 100${tx.dialect.forUpdate}`,
    wanted.map(({channel}) => [channel]),
  )
  const claimed = found.flatMap((rows, index) => claimable(rows, tx.now, wanted[index]!.count))
  yield* sendEach(
    `UPDATE notice_messages SET sender = ?, claim_until = ?, message_attempt = ?
      WHERE message_number = ?`,
    claimed.map((row) => {
      return [sender, tx.now + CLAIM_MS, row.message_attempt + 1, row.message_number]
    }),
  )
  return claimed.map((row) => {
    const stored = JSON.parse(row.message_data) as NoticeMessage
    const repeat = stored.repeat || row.sender !== ''
    const attempt = row.message_attempt + 1
    return {channel: row.message_channel, message: {...stored, attempt, repeat, sentAt: tx.now}}
  })
}

/** Messages about incidents. The others of a rule say nothing about each other. */
const IN_ORDER: ReadonlySet<MessageKind> = new Set([
  'opened',
  'closed',
  'reminder',
  'digest',
  'flapping',
])

/** The oldest messages of a channel that may be sent now, in order. */
function claimable(rows: readonly MessageRow[], now: number, count: number): readonly MessageRow[] {
  const claimed: MessageRow[] = []
  /** Kind of the messages of each rule that are not sent; `null` = of more than one, so all others wait. */
  const unsent = new Map<string, MessageKind | null>()
  const sending = rows.filter(({claim_until: until}) => until !== null && until > now).length
  for (const row of rows) {
    const isClaimed = row.claim_until !== null && row.claim_until > now
    if (claimed.length >= Math.min(count, AT_ONCE_MAX - sending)) break
    // The receiver is away: its messages wait for the oldest one, so that they arrive in order.
    if (row.holds_others === 1 && (isClaimed || row.send_at > now)) break
    // A recovery never arrives before the message about its opening, whichever server sends that.
    const isOrdered = IN_ORDER.has(row.message_kind)
    const before = unsent.get(row.message_rule)
    const isNext = !isOrdered || before === undefined || before === row.message_kind
    if (isOrdered) unsent.set(row.message_rule, isNext ? row.message_kind : null)
    if (isClaimed || !isNext || row.send_at > now) continue
    claimed.push(row)
    if (row.holds_others === 1) break
  }
  return claimed
}

type Delivered = Parameters<NoticeEngineStore['markNotice']>[0]

export function* markNotice(tx: Transaction, delivered: Delivered): Query<boolean> {
  const {id, channel, sender, attempt, outcome, cause, retryAfterMs = 0} = delivered
  const row = yield* one<{made_at: number}>(
    `SELECT made_at FROM notice_messages WHERE message_id = ? AND sender = ?
      AND message_attempt = ? AND message_state = 'waiting'${tx.dialect.forUpdate}`,
    [id, sender, attempt],
  )
  if (row === null) return false
  const next =
    outcome === 'sent' ? null : nextAttempt(outcome, attempt, row.made_at, tx.now, retryAfterMs)
  const state = outcome === 'sent' ? 'sent' : next === null ? 'dead' : 'waiting'
  yield* all(
    `UPDATE notice_messages SET message_state = ?, send_at = ?, holds_others = ?, sender = '',
      claim_until = NULL, ended_at = ?, failure = ? WHERE message_id = ?`,
    [
      state,
      next ?? tx.now,
      outcome === 'retry' && next !== null ? 1 : 0,
      next === null ? tx.now : null,
      outcome === 'sent' ? '' : cause,
      id,
    ],
  )
  yield* recordChannelUse(tx, {name: channel, error: outcome === 'sent' ? null : cause})
  return true
}

const KEPT_MS = 30 * 24 * 3_600_000
const KEPT_MAX = 10_000
/** Rows of one transaction. */
const PRUNED_MAX = 1_000

/** Removes messages that ended and incidents that closed long ago, and the oldest beyond the bounds. */
export function* pruneNotices(tx: Transaction): Query<void> {
  const old = tx.now - KEPT_MS
  const kept = yield* one<{ended_at: number}>(
    `SELECT ended_at FROM notice_messages WHERE ended_at IS NOT NULL
      ORDER BY ended_at DESC LIMIT 1 OFFSET ?`,
    [KEPT_MAX],
  )
  yield* all(
    `DELETE FROM notice_messages WHERE message_number IN (SELECT message_number
      FROM notice_messages WHERE ended_at IS NOT NULL AND ended_at <= ?
      ORDER BY ended_at LIMIT ${PRUNED_MAX})`,
    [Math.max(old, kept?.ended_at ?? old)],
  )
  const newest = yield* one<{opened_at: number}>(
    `SELECT opened_at FROM notice_incidents ORDER BY opened_at DESC LIMIT 1 OFFSET ?`,
    [KEPT_MAX],
  )
  yield* all(
    `DELETE FROM notice_incidents WHERE incident_key IN (SELECT incident_key
      FROM notice_incidents WHERE opened_at <= ? AND incident_state = 'closed' AND has_message = 0
      ORDER BY opened_at LIMIT ${PRUNED_MAX})`,
    [Math.max(old, newest?.opened_at ?? old)],
  )
}
