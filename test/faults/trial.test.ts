/**
 * A cluster under load, and three kinds of faults in sequence: no planned time is missing or doubled.
 * `BELFRY_FAULT_ROUNDS` sets the rounds of faults of the leader; `npm run faults` runs for any time.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {assertAllLaunched, assertSound, summaryOf} from '../../tools/faults/audit.ts'
import {elapse} from '../../tools/faults/load.ts'
import {RunningTrial} from '../../tools/faults/trial.ts'
import type {Answer} from '../support/server-process.ts'
import {migrateToNextRelease} from '../store/next-release.ts'

const ROUNDS = Number(process.env['BELFRY_FAULT_ROUNDS'] ?? 1)
const AWAY_MS = 8_000
/** Jobs run for 1.5 s; the rest is margin for a busy machine. */
const RUN_MAX_MS = 10_000
/** The target is 2 s; the rest is margin for a busy machine. */
const LATE_MAX_MS = 15_000

test(`store outage, ${ROUNDS} × faults of the leader, rolling restart under load`, async (t) => {
  const trial = await RunningTrial.start(t, {agents: ['agent-1', 'agent-2']})
  const {cluster, faults} = trial

  // The store is unreachable for all servers, then for the leader alone.
  await faults.killStore(() => elapse(AWAY_MS))
  const cut = await cluster.agreedLeader()
  // Packets of the old leader arrive after another one leads.
  await faults.cut(cut, trial.replaced(cut), 'brings')

  const killedFrom = Date.now()
  for (let round = 0; round < ROUNDS; round += 1) {
    const killed = await cluster.agreedLeader()
    await faults.kill(killed, trial.replaced(killed))
    await faults.stop(await cluster.agreedLeader())
    const frozen = await cluster.agreedLeader()
    await faults.freeze(frozen, trial.replaced(frozen))
  }

  const restartedFrom = Date.now()
  const [first, ...others] = [...cluster.serverNames, ...cluster.agentNames]
  await faults.stop(first!)
  // The first new server migrates; servers started before and after work side by side.
  await migrateToNextRelease(cluster.store)
  for (const name of others) {
    await faults.stop(name)
    await cluster.agreedLeader()
  }

  const {audit} = await trial.end()
  assertSound(audit)
  assertAllLaunched(audit)
  const executions = audit.rows.flatMap((row): Answer['json'][] => row.executions)
  const lostAtOtherTimes = executions.filter(({status, started_at: at}) => {
    const claimedAt = Date.parse(at)
    const isOfLeader = claimedAt > killedFrom - RUN_MAX_MS && claimedAt < restartedFrom
    return status === 'lost' && !isOfLeader
  })
  assert.deepEqual(lostAtOtherTimes, [], 'only a killed or frozen leader loses executions')
  const lagsMs = audit.rows
    .filter(({decision, scheduled_at: at}) => {
      return decision === 'launched' && Date.parse(at) >= restartedFrom
    })
    .map(({decided_at: at, scheduled_at: from}) => Date.parse(at) - Date.parse(from))
  assert(lagsMs.length > 0)
  const lateMs = Math.max(...lagsMs)
  assert(lateMs < LATE_MAX_MS, `${lateMs} ms late during the rolling restart`)
  t.diagnostic(summaryOf(audit))
})
