/**
 * Rolling restart of every server and agent under load, after the next release has migrated the schema: no
 * planned time is missing, doubled or late.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {migrateToNextRelease} from '../store/next-release.ts'
import {RunningTrial} from '../../tools/faults/trial.ts'
import {assertAllLaunched, assertSound, summaryOf} from '../../tools/faults/audit.ts'

/** The target is 2 s; the rest is margin for a busy machine. */
const LATE_MAX_MS = 15_000

test('a rolling restart under load', async (t) => {
  const trial = await RunningTrial.start(t, {agents: ['agent-1', 'agent-2']})
  const {cluster, faults} = trial
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
  assert.equal(audit.lost, 0)
  const lateMs = audit.lagsMs.at(-1)!
  assert(lateMs < LATE_MAX_MS, `${lateMs} ms late`)
  t.diagnostic(summaryOf(audit))
})
