/** The leader killed, stopped and frozen, again and again under load: nothing is missing, nothing doubled. */
import {test} from 'node:test'
import {untilOnTime} from './load.ts'
import {RunningTrial} from './trial.ts'
import {assertAllLaunched, assertSound, told} from './verdict.ts'

const ROUNDS = 2

test(`${ROUNDS} × the leader killed, stopped, frozen under load`, async (t) => {
  const trial = await RunningTrial.start(t, {agents: ['agent-1', 'agent-2']})
  const {cluster, faults} = trial
  /** Another server leads by the word of the others, and launches. */
  const replaced = (old: string) => async () => {
    const other = cluster.server(cluster.serverNames.find((name) => name !== old)!)
    while ((await cluster.leaderName(other)) === old);
    await untilOnTime(other)
  }
  for (let round = 0; round < ROUNDS; round += 1) {
    const killed = await cluster.agreedLeader()
    await faults.kill(killed, replaced(killed))
    await faults.stop(await cluster.agreedLeader())
    const frozen = await cluster.agreedLeader()
    await faults.freeze(frozen, replaced(frozen))
  }
  const {verdict} = await trial.end()
  assertSound(verdict)
  assertAllLaunched(verdict)
  t.diagnostic(told(verdict))
})
