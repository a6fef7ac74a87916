/**
 * The only way back from running to pending: a claim whose execution was never started is undone. Stands
 * apart from the ends of executions: nothing ends, nothing is counted, no node died of it.
 */
import type {ExecutionKey, ExecutionRecord} from '../../core/execution.ts'
import {each, type Step} from './query.ts'
import type {FinishLedger} from './finish-ledger.ts'
import {BY_KEY, keyValues} from './rows.ts'
import {loadLedger} from './finish-rows.ts'
import type {Transaction} from './transaction.ts'

interface Claim {
  readonly key: ExecutionKey
  readonly token: string
}

/** As a row that was never claimed has them. */
const GIVE_BACK = `UPDATE executions SET status = 'pending', not_before = ?, started_at = NULL,
  revision = 0, claim_token = '', incarnation = '' WHERE ${BY_KEY}`

export function* giveBack(
  tx: Transaction,
  claims: readonly Claim[],
): Step<readonly ExecutionRecord[]> {
  // Locked as an end locks them: it is given back, or ended, or its job deleted, one after the other.
  const ledger = yield* loadLedger(
    tx,
    claims.map(({key}) => key.group),
  )
  const given = claims.flatMap((claim) => givenBack(ledger, claim, tx.now) ?? [])
  yield* each(
    GIVE_BACK,
    given.map((record) => [tx.now, ...keyValues(record)]),
  )
  return given
}

/** `null` = it stays as it is, and is ended. */
function givenBack(ledger: FinishLedger, {key, token}: Claim, now: number): ExecutionRecord | null {
  const held = ledger.find(key)
  const launch = ledger.launches.get(key.group)
  if (held === null || launch === undefined || ledger.jobOf(launch) === null) return null
  const {record} = held
  if (record.status !== 'running' || held.token !== token) return null
  const isUnwanted = record.attempt > 1 && launch.record.retriesEnded
  if (isUnwanted || record.cancelRequestedAt !== null) return null
  return {...record, status: 'pending', notBefore: now, startedAt: null, revision: 0}
}
