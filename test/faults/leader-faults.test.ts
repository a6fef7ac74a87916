/**
 * The leader killed, stopped and frozen under load: no planned time is missing or doubled.
 * `BELFRY_FAULT_ROUNDS` sets the number of rounds; `npm run faults` runs for any time.
 */
import {test} from 'node:test'
import {RunningTrial} from '../../tools/faults/trial.ts'
import {assertAllLaunched, assertSound, summaryOf} from '../../tools/faults/audit.ts'

const ROUNDS = Number(process.env['BELFRY_FAULT_ROUNDS'] ?? 1)

test(`${ROUNDS} × the leader killed, stopped, frozen under load`, async (t) => {
  const trial = await RunningTrial.start(t, {agents: ['agent-1', 'agent-2']})
  const {cluster, faults} = trial
  for (let round = 0; round < ROUNDS; round += 1) {
    const killed = await cluster.agreedLeader()
    await faults.kill(killed, trial.replaced(killed))
    await faults.stop(await cluster.agreedLeader())
    const frozen = await cluster.agreedLeader()
    await faults.freeze(frozen, trial.replaced(frozen))
  }
  const {audit} = await trial.end()
  assertSound(audit)
  assertAllLaunched(audit)
  t.diagnostic(summaryOf(audit))
})
