/**
 * Claims on a store that replies late, loses replies and repeats calls: an execution may be claimed again
 * while the release of its previous claim is under way.
 */
import assert from 'node:assert/strict'
import {describe, it, test} from 'node:test'
import {executionId} from '../../src/core/execution.ts'
import {aJob} from '../support/fixtures.ts'
import type {StoreFault, StoreMethod} from '../support/faulty-store.ts'
import type {Script} from '../support/scripted-executor.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {World} from '../support/world.ts'

const SLOTS = 8
const SECOND = 1_000
const SEEDS = Number(process.env['BELFRY_SEEDS'] ?? 6)

/** Methods whose replies are late; each call waits before and after it is applied. */
const SLOW: ReadonlySet<StoreMethod> = new Set(['claim', 'releaseClaims', 'verifyClaims'])

/** Each wave begins with short executions: the node claims ahead. Then long ones make it release. */
const SHORT = 40
const WAVE = SHORT + 2 * SLOTS
const WAVES = 4
const STEPS = 30
const STEP_MS = 250

async function aBusyNode(seed: number) {
  const world = new World(seed)
  const random = new SeededRandom(seed)
  const pick = (max: number) => Math.floor(random.fraction() * max)
  let started = 0
  const script = () => ({ms: started++ % WAVE < SHORT ? 10 + pick(40) : 600 + pick(2_500)})
  const node = await world.start({slots: SLOTS, scripts: {job: script}})
  await world.submit(aJob('job').manual())
  node.delayMs = (method) =>
    SLOW.has(method) ? 10 + pick(method === 'releaseClaims' ? 600 : 100) : 0
  const faults: readonly StoreFault[] = ['answer_lost', 'repeated', 'late']
  node.fault = (method) =>
    SLOW.has(method) && pick(3) === 0 ? faults[pick(faults.length)]! : 'none'
  return {world, node}
}

type BusyNode = Awaited<ReturnType<typeof aBusyNode>>

/** Executions that are `running` in the store, and those with a process, both sorted. */
async function runningOf({world, node}: BusyNode) {
  const stored = (await world.executions('job')).filter(({status}) => status === 'running')
  const processes = node.executor.running.map(({run}) => run.executionId)
  return {stored: stored.map(executionId).toSorted(), processes: processes.toSorted()}
}

test('late, lost and repeated replies never lose an execution or run it twice', async () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const setup = await aBusyNode(seed)
    const {world, node} = setup
    for (let step = 0; step < WAVES * STEPS; step += 1) {
      const count = step % STEPS === 0 ? WAVE : 0
      for (let run = 0; run < count; run += 1)
        await world.store.requestRun({name: 'job', forced: false, idempotency: null})
      world.notify('launch')
      await world.clock.advance(STEP_MS)
      const pending = (await world.executions('job')).filter(({status}) => status === 'pending')
      const queued = new Set(pending.map(executionId))
      const {processes} = await runningOf(setup)
      const twice = processes.filter((id) => queued.has(id))
      assert.deepEqual(twice, [], `seed ${seed}: queued again while its process runs`)
      assert.ok(processes.length <= SLOTS, `seed ${seed}: ${processes.length} at once`)
    }
    node.executor.script('job', {ms: Infinity})
    node.fault = () => 'none'
    node.delayMs = () => 0
    await world.clock.advance(30 * SECOND)
    const {stored, processes} = await runningOf(setup)
    assert.deepEqual(stored, processes, `seed ${seed}: running in the store, and on the node`)
    assert.equal(node.runner.runningCount, processes.length, `seed ${seed}: counted`)
    for (const execution of await world.executions('job')) await world.cancel('job', execution)
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await runningOf(setup), {stored: [], processes: []}, `seed ${seed}: cancelled`)
    await world.check(['job'])
  }
})

const FOREVER = {ms: Infinity}

/** A world with one server and a job without a schedule. */
async function aServer(scripts: Readonly<Record<string, Script>>) {
  const world = new World()
  const node = await world.start({scripts})
  await world.submit(aJob('job').manual())
  return {world, node, executor: node.executor}
}

describe('claims that only the store has', () => {
  /** A node, and an execution claimed under its identity by a request that its runner does not know. */
  async function unheld() {
    const setup = await aServer({job: FOREVER})
    const {world, node} = setup
    node.fault = (method) => (method === 'claim' ? 'unavailable' : 'none')
    await world.runByHand('job')
    const {nodeId} = node
    const {incarnation} = node.settings
    await world.store.claim([{nodeId, incarnation, token: 'unknown-claim', room: 1}])
    const [execution] = await world.executions('job')
    assert.equal(execution!.status, 'running')
    node.fault = () => 'none'
    return {...setup, execution: execution!}
  }

  it('are released, and run', async () => {
    const {world, node, executor} = await unheld()
    await world.clock.advance(10 * SECOND)
    assert.deepEqual(
      executor.started.map(({run}) => run.attempt),
      [1],
    )
    assert.deepEqual([await world.statuses('job'), node.runner.runningCount], [['running'], 1])
  })

  it('end as lost when they are cancelled', async () => {
    const {world, executor, execution} = await unheld()
    assert.equal(await world.cancel('job', execution), 'requested')
    await world.clock.advance(10 * SECOND)
    const [ended] = await world.executions('job')
    assert.deepEqual([ended!.status, ended!.reason], ['lost', 'not_held'])
    assert.equal(executor.started.length, 0)
    await world.check(['job'])
  })

  it('are not released while the reply to their claim is late', async () => {
    const {world, node, executor} = await aServer({})
    node.delayMs = (method) => (method === 'claim' ? 20 * SECOND : 0)
    await world.runByHand('job')
    await world.clock.advance(60 * SECOND)
    assert.equal(node.calls.get('releaseClaims'), undefined)
    assert.equal(executor.started.length, 1)
    await world.check(['job'])
  })
})
