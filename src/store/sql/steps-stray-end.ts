/**
 * The end of pending executions that no node may take. Stands apart from giving them to other nodes because
 * it is an end, by the ledger and the rule of all ends.
 */
import {lostLine} from '../../core/execution.ts'
import type {MemberStatus} from '../../core/node.ts'
import type {LeaderStore} from '../../ports/leader-store.ts'
import type {FinishOutcome} from '../../ports/node-store.ts'
import {oneEach, type Step} from './query.ts'
import {fence} from './lease.ts'
import {loadLedger, writeLedger} from './finish-rows.ts'
import type {Transaction} from './transaction.ts'

/** No retry follows, so there is nothing to roll for. */
const END = {
  status: 'lost',
  reason: 'no_target',
  dice: 0,
  with: {outputFoot: lostLine('no_target')},
} as const

export function* endStrays(
  tx: Transaction,
  {term, strays}: Parameters<LeaderStore['endStrays']>[0],
): Step<readonly FinishOutcome[]> {
  yield* fence(tx, term)
  // Members first, as a claim locks them: a node that is back has its work, or comes too late for it.
  const busy = yield* takingWork(
    tx,
    strays.map(({nodeId}) => nodeId),
  )
  const ending = strays.filter(({nodeId}) => !busy.has(nodeId))
  const ledger = yield* loadLedger(
    tx,
    ending.map(({key}) => key.group),
  )
  const ended = ending.flatMap(({key, nodeId}): FinishOutcome[] => {
    const held = ledger.find(key)
    if (held === null || held.record.status !== 'pending' || held.nodeId !== nodeId) return []
    if (ledger.jobOf(ledger.launches.get(key.group)!) === null) return []
    return [ledger.end(held, {...END, finishedAt: tx.now})]
  })
  yield* writeLedger(tx, ledger)
  return ended
}

/** Which of the nodes may claim, or will be back at work when they have stopped. */
function* takingWork(tx: Transaction, nodeIds: readonly string[]): Step<ReadonlySet<string>> {
  const sorted = [...new Set(nodeIds)].toSorted()
  const rows = yield* oneEach<{id: string; status: MemberStatus; runs: number}>(
    `SELECT id, status, runs FROM members WHERE id = ?${tx.dialect.forUpdate}`,
    sorted.map((id) => [id]),
  )
  const taking = rows.filter((row) => {
    return row?.runs === 1 && (row.status === 'alive' || row.status === 'leaving')
  })
  return new Set(taking.map((row) => row!.id))
}
