/**
 * Idempotency keys: the reply to a request with a key is kept for its repetitions. Its size is limited, for
 * clients may use many keys, and a job may take 1 MiB.
 */
import {createHash} from 'node:crypto'
import type {Idempotency, RunResult, SubmitResult} from '../../../ports/job-store.ts'
import {withDefaults} from '../../../core/job-fields.ts'
import {loadJobs} from './jobs.ts'
import {all, one, oneEach, type Query, sendEach, type Transaction} from '../query.ts'

/** Long enough for a client that repeats after an outage; the API documents it. */
export const IDEMPOTENCY_KEPT_MS = 24 * 3_600_000

/** A longer key is stored as its digest: clients choose keys, and PostgreSQL limits index rows. */
const KEY_LENGTH_MAX = 256

export function keyOf({scope, key}: Idempotency): [scope: string, key: string] {
  const kept = key.length <= KEY_LENGTH_MAX ? key : createHash('sha256').update(key).digest('hex')
  return [scope, kept]
}

/** More than the job of nearly every request takes. A larger one is kept without the lists and maps. */
const REPLY_BYTES_MAX = 16 * 1024

type Reply<Result> = Result | {readonly kind: 'idempotency_mismatch'}

/** The reply to the first request with this key; a mismatch if that was another request; `null` = new key. */
export function* findReply<Result>(
  tx: Transaction,
  idempotency: Idempotency | null,
): Query<Reply<Result> | null> {
  const [reply] = yield* findReplies<Result>(tx, [idempotency])
  return reply ?? null
}

/** Batch form of `findReply`. */
export function* findReplies<Result>(
  tx: Transaction,
  requests: readonly (Idempotency | null)[],
): Query<readonly (Reply<Result> | null)[]> {
  const keyed = requests.filter((idempotency) => idempotency !== null)
  const rows = yield* oneEach<{fingerprint: string; answer: string; created_at: number}>(
    `SELECT fingerprint, answer, created_at FROM idempotency WHERE scope = ? AND key = ?`,
    keyed.map(keyOf),
  )
  const replies = new Map<Idempotency, Reply<Result>>()
  for (const [index, idempotency] of keyed.entries()) {
    const row = rows[index] ?? null
    if (row === null || row.created_at <= tx.now - IDEMPOTENCY_KEPT_MS) continue
    const isSame = row.fingerprint === idempotency.fingerprint
    const reply = isSame ? yield* readReply(row.answer) : {kind: 'idempotency_mismatch' as const}
    replies.set(idempotency, reply as Reply<Result>)
  }
  return requests.map((idempotency) => {
    return idempotency === null ? null : (replies.get(idempotency) ?? null)
  })
}

type KeptReply = SubmitResult | RunResult

/** The previous release reads a reduced reply as a job whose lists and maps are empty. */
function keptText(reply: KeptReply): string {
  const text = JSON.stringify(reply)
  if (Buffer.byteLength(text) <= REPLY_BYTES_MAX || !('job' in reply)) return text
  const spec = {...reply.job.spec, tags: {}, metadata: {}, processors: {}, executorConfig: {}}
  return JSON.stringify({...reply, job: {...reply.job, spec, dependentJobs: []}, isReduced: true})
}

/** A reduced reply gets the definition as it is now, unless the job is deleted. */
function* readReply(text: string): Query<KeptReply> {
  const {isReduced = false, ...kept} = JSON.parse(text) as KeptReply & {isReduced?: boolean}
  if (!('job' in kept)) return kept
  const reply = {...kept, job: {...kept.job, spec: withDefaults(kept.job.spec)}}
  if (!isReduced) return reply
  const [current] = yield* loadJobs([reply.job.id])
  if (current === null || current === undefined) return reply
  const {spec, dependentJobs} = current
  return {...reply, job: {...reply.job, spec, dependentJobs}}
}

/** Read-only: a repeated request gets its reply even if a new one would be refused, as in a pause. */
export const earlierSubmit = findReply<SubmitResult>
export const earlierRun = findReply<RunResult>

/** Receipts share the table. No client has this scope. */
const RECEIPTS = 'receipt'

/**
 * Runs `query` once for each key, whose result is stored with its changes. The insert waits for an earlier
 * transaction with this key, which may still commit after its connection has broken.
 */
export function* withReceipt<Result>(
  tx: Transaction,
  key: string,
  query: () => Query<Result>,
): Query<Result> {
  const isFirst = yield* one(
    `INSERT INTO idempotency (scope, key, fingerprint, answer, created_at) VALUES (?, ?, '', '{}', ?)
      ON CONFLICT (scope, key) DO NOTHING RETURNING 1 AS stored`,
    [RECEIPTS, key, tx.now],
  )
  if (isFirst === null) {
    const row = yield* one<{answer: string}>(
      `SELECT answer FROM idempotency WHERE scope = ? AND key = ?`,
      [RECEIPTS, key],
    )
    return (JSON.parse(row!.answer) as {result: Result}).result
  }
  const result = yield* query()
  yield* all(`UPDATE idempotency SET answer = ? WHERE scope = ? AND key = ?`, [
    JSON.stringify({result}),
    RECEIPTS,
    key,
  ])
  return result
}

export interface KeyedReply {
  readonly idempotency: Idempotency | null
  readonly reply: KeptReply
}

/** Stores replies under their keys; replaces expired ones. */
export function* storeReplies(tx: Transaction, replies: readonly KeyedReply[]): Query<void> {
  yield* sendEach(
    `INSERT INTO idempotency (scope, key, fingerprint, answer, created_at) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint,
      answer = excluded.answer, created_at = excluded.created_at`,
    replies.flatMap(({idempotency, reply}) => {
      if (idempotency === null) return []
      return [[...keyOf(idempotency), idempotency.fingerprint, keptText(reply), tx.now]]
    }),
  )
}
