/**
 * Answers given to requests that carried a key, kept 24 h, so that a repeated request gets the first one's
 * answer.
 */
import {createHash} from 'node:crypto'
import type {Idempotency, RunResult, SubmitResult} from '../../ports/job-store.ts'
import {all, one, type Step} from './query.ts'
import type {Transaction} from './transaction.ts'

/** Long enough for any client that repeats after an outage; the interface promises it. */
export const IDEMPOTENCY_KEPT_MS = 24 * 3_600_000

/** Longer keys are kept by their digest: a key comes from outside, and an index holds only so much. */
const KEY_LENGTH_MAX = 256

function keyOf({scope, key}: Idempotency): [scope: string, key: string] {
  const kept = key.length <= KEY_LENGTH_MAX ? key : createHash('sha256').update(key).digest('hex')
  return [scope, kept]
}

/** The earlier answer, a mismatch when the key was used for another request, or `null` when it is new. */
export function* recall<Result>(
  tx: Transaction,
  idempotency: Idempotency | null,
): Step<Result | {readonly kind: 'idempotency_mismatch'} | null> {
  if (idempotency === null) return null
  const row = yield* one<{fingerprint: string; answer: string}>(
    `SELECT fingerprint, answer FROM idempotency WHERE scope = ? AND key = ? AND created_at > ?`,
    [...keyOf(idempotency), tx.now - IDEMPOTENCY_KEPT_MS],
  )
  if (row === null) return null
  if (row.fingerprint !== idempotency.fingerprint) return {kind: 'idempotency_mismatch'}
  return JSON.parse(row.answer) as Result
}

/** Looks without writing: for what a repeated request is not held to any more, such as a pause since. */
export const earlierSubmit = recall<SubmitResult>
export const earlierRun = recall<RunResult>

/** Keeps `answer`; one older than 24 h under the same key is replaced. */
export function* remember(
  tx: Transaction,
  idempotency: Idempotency | null,
  answer: unknown,
): Step<void> {
  if (idempotency === null) return
  yield* all(
    `INSERT INTO idempotency (scope, key, fingerprint, answer, created_at) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint,
      answer = excluded.answer, created_at = excluded.created_at`,
    [...keyOf(idempotency), idempotency.fingerprint, JSON.stringify(answer), tx.now],
  )
}
