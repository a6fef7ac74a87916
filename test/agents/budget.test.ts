/** Budget of the work that agents ask: who waits, and who does not. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AgentBudget} from '../../src/agents/server/budget.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const LIMITS = {agentItemsPerSecond: 1_000, verifiedPerSecond: 2_000}
const isOpen = () => false

function aBudget() {
  const clock = new VirtualClock()
  const budget = new AgentBudget(clock, LIMITS)
  const counts: Record<string, number> = {}
  const count = (what: string, turn: Promise<void>, items: number) =>
    void turn.then(() => (counts[what] = (counts[what] ?? 0) + items))
  return {clock, budget, counts, count}
}

test('an agent verifies at most its budget, over all its connections', async () => {
  const {clock, budget, counts, count} = aBudget()
  for (let request = 0; request < 100; request += 1)
    count('a', budget.takeVerify('a', 100, isOpen), 100)
  await clock.advance(0)
  assert.ok(counts['a']! <= 2_000, `${counts['a']} at once`)
  await clock.advance(4_000)
  assert.ok(counts['a']! <= 2_000 + 4_000, `${counts['a']} after 4 s`)
  await clock.advance(60_000)
  assert.equal(counts['a'], 10_000)
})

test('many agents verify at most the budget of all, in turns', async () => {
  const {clock, budget, counts, count} = aBudget()
  for (let agent = 0; agent < 20; agent += 1)
    for (let request = 0; request < 20; request += 1)
      count(`agent ${agent}`, budget.takeVerify(`agent ${agent}`, 100, isOpen), 100)
  count('honest', budget.takeVerify('honest', 2, isOpen), 2)
  // The others have one request each first.
  await clock.advance(1_000)
  assert.equal(counts['honest'], 2)
  const all = Object.values(counts).reduce((sum, each) => sum + each, 0)
  assert.ok(all <= 2_000 + 400 + 100, `${all} in a second`)
})

test('results of an agent wait for no verification, of itself or of others', async () => {
  const {clock, budget, counts, count} = aBudget()
  for (const agent of ['a', 'b', 'c', 'd'])
    for (let request = 0; request < 100; request += 1)
      count('verified', budget.takeVerify(agent, 256, isOpen), 256)
  count('results', budget.take('a', 257), 257)
  await clock.advance(0)
  assert.equal(counts['results'], 257)
})

test('an agent with 256 slots starts without a wait', async () => {
  const clock = new VirtualClock()
  const budget = new AgentBudget(clock, {agentItemsPerSecond: 2_000, verifiedPerSecond: 8_000})
  let done = 0
  const asked = Array.from({length: 256}, () => budget.takeVerify('a', 2, isOpen))
  const reported = [budget.take('a', 200), budget.take('a', 257), budget.take('a', 257)]
  for (const turn of [...asked, ...reported]) void turn.then(() => (done += 1))
  await clock.advance(0)
  assert.equal(done, 256 + 3)
})

test('requests of a closed connection do not hold up later ones', async () => {
  const {clock, budget, counts, count} = aBudget()
  for (let request = 0; request < 1_000; request += 1)
    count(
      'closed',
      budget.takeVerify('a', 256, () => true),
      256,
    )
  count('open', budget.takeVerify('a', 256, isOpen), 256)
  await clock.advance(0)
  assert.equal(counts['open'], 256)
})
