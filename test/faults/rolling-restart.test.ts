/**
 * Every server and agent restarted in turn under load, while the next release has changed the schema beneath
 * them: nothing is missing, nothing doubled, nothing late.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {migrateToNextRelease} from '../store/next-release.ts'
import {RunningTrial} from '../../tools/faults/trial.ts'
import {assertAllLaunched, assertSound, summaryOf} from '../../tools/faults/audit.ts'

/** The aim is 2 s; the rest is for a machine that does much else. */
const LATE_MAX_MS = 15_000

test('a rolling restart under load', async (t) => {
  const trial = await RunningTrial.start(t, {agents: ['agent-1', 'agent-2']})
  const {cluster, faults} = trial
  const [first, ...others] = [...cluster.serverNames, ...cluster.agentNames]
  await faults.stop(first!)
  // As its first server does. Those that started before it work on beside those that start after it.
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
