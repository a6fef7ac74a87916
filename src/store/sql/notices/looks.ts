/**
 * Regular looks of servers at notices: what is due, and who makes a sweep. One small read; without rules
 * and messages it says so, and servers look rarely.
 */
import {SWEEP_KINDS, type SweepKind, type SweepWork} from '../../../core/notice-sweeps.ts'
import type {NoticesState} from '../../../core/health.ts'
import type {DueNotices, DueRequest} from '../../../ports/notice-engine-store.ts'
import {all, one, type Query, together, type Transaction} from '../query.ts'
import {firstWake, oldestFact} from './evaluation.ts'
import {SWEEP_WORK} from './scopes.ts'

/** Begins the key of the instant of the newest sweep of a kind. */
const SWEPT = 'notice_swept_'

const NO_WORK: SweepWork = {rules: 0, sweeps: [], store: false}

const KEYS = [SWEEP_WORK, ...SWEEP_KINDS.map((kind) => `${SWEPT}${kind}`)]
const SELECT_LOOK = `SELECT key, value FROM meta WHERE key IN (${KEYS.map((key) => `'${key}'`).join(', ')})`

export function* noticesDue(
  tx: Transaction,
  {olderThanMs, sweepEveryMs}: DueRequest,
): Query<DueNotices> {
  const [rows, fact, wake, sendAt] = yield* together(
    all<{key: string; value: string}>(SELECT_LOOK),
    oldestFact(),
    firstWake(),
    firstMessage(),
  )
  const {now} = tx
  const stored = new Map(rows.map(({key, value}) => [key, value]))
  const text = stored.get(SWEEP_WORK)
  const work = text === undefined ? NO_WORK : (JSON.parse(text) as SweepWork)
  const sweptAt = (kind: SweepKind) => Number(stored.get(`${SWEPT}${kind}`) ?? 0)
  return {
    now,
    evaluate: [fact, wake].some((at) => at !== null && at <= now - olderThanMs),
    deliver: sendAt !== null && sendAt <= now,
    sweeps: work.sweeps.filter((kind) => isSweepDue(sweptAt(kind), now, sweepEveryMs[kind])),
    watchesStore: work.store,
    isIdle: work.rules === 0 && fact === null && wake === null && sendAt === null,
  }
}

/** A sweep in the future was made by a clock that has been set back since. */
function isSweepDue(sweptAt: number, now: number, everyMs: number): boolean {
  return sweptAt + everyMs <= now || sweptAt > now
}

/** When the first waiting message may be sent. */
function* firstMessage(): Query<number | null> {
  const row = yield* one<{send_at: number | null}>(
    `SELECT min(send_at) AS send_at FROM notice_messages WHERE message_state = 'waiting'`,
  )
  return row?.send_at ?? null
}

/** Younger dead messages are a problem that a person should see. */
const DEAD_SHOWN_MS = 86_400_000

export function* noticesState(tx: Transaction): Query<NoticesState> {
  const [failing, dead] = yield* together(
    all<{channel_name: string}>(
      `SELECT channel_name FROM notice_channels
        WHERE channel_failing_since IS NOT NULL AND channel_enabled = 1 ORDER BY channel_name`,
    ),
    one<{count: number}>(
      `SELECT count(*) AS count FROM notice_messages WHERE ended_at > ? AND message_state = 'dead'`,
      [tx.now - DEAD_SHOWN_MS],
    ),
  )
  return {failing: failing.map((row) => row.channel_name), dead: dead!.count}
}

export function* claimSweep(
  tx: Transaction,
  {kind, everyMs}: {readonly kind: SweepKind; readonly everyMs: number},
): Query<boolean> {
  const row = yield* one(
    `INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value
      WHERE CAST(meta.value AS bigint) <= ? OR CAST(meta.value AS bigint) > ? RETURNING key`,
    [`${SWEPT}${kind}`, String(tx.now), tx.now - everyMs, tx.now],
  )
  return row !== null
}
