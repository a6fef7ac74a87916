/**
 * Recovery over the real store: executions of dead nodes become lost once, those of healthy nodes never, and
 * stuck executions are reassigned.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {executionId} from '../../src/core/execution.ts'
import {markNodeLost} from '../../src/node/recover.ts'
import {aJob, aNode} from '../support/fixtures.ts'
import {SimulatedNode} from '../support/simulated-node.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const FOREVER = {job: {ms: Infinity}}
const web = {role: 'web'}

/** A leader that does not match the job, and two nodes that do. */
async function aCluster(job = aJob('job').manual().tagged({role: 'web:1'}), slots = 16) {
  const world = new World()
  const leader = await world.start({name: 'leader', incarnation: 'leader-1'})
  const settings = {tags: web, leads: false, slots, scripts: FOREVER}
  const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
  const two = await world.start({...settings, name: 'two', incarnation: 'two-1'})
  await world.submit(job)
  const statusOf = async (name: string) =>
    (await world.store.members()).find((member) => member.name === name)?.status
  return {world, leader, one, two, settings, statusOf}
}

/** Waits for the next claim of a node; the reply of a claim of 800 ms is then still in flight. */
async function untilClaimed(world: World, node: SimulatedNode): Promise<void> {
  const before = node.calls.get('claim') ?? 0
  await world.clock.until(() => (node.calls.get('claim') ?? 0) > before)
  await world.clock.advance(600)
  assert.equal((await world.statuses('job'))[0], 'running')
}

describe('marking the executions of a node as lost', () => {
  it('continues batch by batch until no execution is left', async () => {
    const requests: unknown[] = []
    const wakeup = new TestWakeup()
    const count = await markNodeLost(
      {
        random: new SeededRandom(),
        wakeup,
        events: new RecordedEvents(),
        store: {
          markLost: async (request) => {
            requests.push(request)
            const key = {group: requests.length, node: 'one', attempt: 1}
            return {finished: [{kind: 'unknown', key}], more: requests.length < 3}
          },
        },
      },
      {
        term: 4,
        nodeId: 'id-of-one',
        exceptIncarnation: 'now',
        observed: null,
        reason: 'node_restarted',
      },
    )
    assert.deepEqual([count, requests.length, wakeup.notified], [3, 3, []])
    const {jitter, limit, ...request} = requests[0] as {jitter: number; limit: number}
    assert.ok(jitter >= 0 && jitter < 1 && limit > 0)
    assert.deepEqual(request, {
      term: 4,
      nodeId: 'id-of-one',
      exceptIncarnation: 'now',
      observed: null,
      reason: 'node_restarted',
    })
  })
})

describe('a node that dies', () => {
  it('is failed after 10 s; its executions are lost after 25 s and retried elsewhere', async () => {
    const {world, one, two, statusOf} = await aCluster(
      aJob('job').manual().retrying(2).tagged({role: 'web:1'}),
    )
    await world.runByHand('job')
    await world.clock.advance(5 * SECOND)
    const [victim, other] = one.executor.started.length === 1 ? [one, two] : [two, one]
    victim.crash()
    const name = victim.settings.name
    await world.clock.advance(8 * SECOND)
    assert.equal(await statusOf(name), 'alive')
    await world.clock.advance(6 * SECOND)
    assert.equal(await statusOf(name), 'failed')
    assert.deepEqual(await world.statuses('job'), ['running'])
    await world.clock.advance(9 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['running'])
    await world.clock.advance(8 * SECOND)
    const executions = await world.executions('job')
    assert.deepEqual(
      executions.map(({status, reason, node}) => [status, reason, node]),
      [
        ['lost', 'node_lost', name],
        ['running', '', other.settings.name],
      ],
    )
    assert.equal(other.executor.started.length, 1)
    await world.check(['job'])
  })

  it('between claim and start, and restarts: the claim is released and the execution runs', async () => {
    const {world, one, two, settings} = await aCluster(aJob('job').manual().tagged({role: 'web'}))
    // The claim is stored, and its reply is in flight when the node dies.
    one.delayMs = (method) => (method === 'claim' ? 400 : 0)
    await world.runByHand('job')
    await untilClaimed(world, one)
    assert.deepEqual(one.executor.started, [])
    one.crash()
    await world.clock.advance(3 * SECOND)
    const again = await world.start({...settings, name: 'one', incarnation: 'one-2'})
    assert.equal(again.releasedCount, 1)
    assert.deepEqual(again.events.of('execution_changed'), [
      {job: 'job', execution: '1-one-1', status: 'pending'},
    ])
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(
      (await world.executions('job')).map(({node, attempt, status}) => [node, attempt, status]),
      [
        ['one', 1, 'running'],
        ['two', 1, 'running'],
      ],
    )
    assert.deepEqual([again.executor.running.length, two.executor.running.length], [1, 1])
    await world.check(['job'])
  })

  for (const [why, lose] of [
    ['without its start log', true],
    ['after the start', false],
  ] as const)
    it(`and restarts ${why}: the claimed execution is lost`, async () => {
      const {world, one, settings} = await aCluster(aJob('job').manual().tagged({role: 'web'}))
      one.delayMs = (method) => (lose && method === 'claim' ? 400 : 0)
      await world.runByHand('job')
      await untilClaimed(world, one)
      one.crash()
      if (lose) world.recordOf('one').lose()
      await world.clock.advance(3 * SECOND)
      const again = await world.start({...settings, name: 'one', incarnation: 'one-2'})
      assert.equal(again.releasedCount, 0)
      assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
      await world.check(['job'])
    })

  it('twice, the second time before its release: an execution that never started runs', async () => {
    const {world, one, settings} = await aCluster(aJob('job').manual().tagged({role: 'web'}))
    one.delayMs = (method) => (method === 'claim' ? 400 : 0)
    await world.runByHand('job')
    await untilClaimed(world, one)
    one.crash()
    const second = new SimulatedNode(world, {...settings, name: 'one', incarnation: 'one-2'})
    second.fault = (method) => (method === 'releaseClaims' ? 'dead' : 'none')
    void second.start()
    await world.clock.advance(SECOND)
    assert.equal(second.calls.get('releaseClaims'), 1)
    second.crash()
    assert.deepEqual(await world.statuses('job'), ['running', 'running'])
    const third = await world.start({...settings, name: 'one', incarnation: 'one-3'})
    assert.equal(third.releasedCount, 1)
    await world.clock.advance(2 * SECOND)
    assert.equal(third.executor.running.length, 1)
    await world.check(['job'])
  })

  it('and restarts: executions of its previous incarnation are lost, and it gets new ones', async () => {
    const {world, one, settings, statusOf} = await aCluster(
      aJob('job').manual().tagged({role: 'web'}),
    )
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    one.crash()
    await world.clock.advance(20 * SECOND)
    assert.equal(await statusOf('one'), 'failed')
    const again = await world.start({...settings, name: 'one', incarnation: 'one-2'})
    assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
    await world.runByHand('job')
    await world.clock.advance(MINUTE)
    assert.equal(again.executor.running.length, 1)
    const statuses = (await world.executions('job')).map(({node, status}) => `${node} ${status}`)
    assert.deepEqual(statuses, ['one lost', 'two running', 'one running', 'two running'])
    assert.equal(await statusOf('one'), 'alive')
    await world.check(['job'])
  })

  it('a result that arrives after the loss is stored as late_result; the status stays lost', async () => {
    const {world, one, two} = await aCluster()
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const cut = one.executor.started.length === 1 ? one : two
    cut.fault = () => 'unavailable'
    await world.clock.advance(40 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost'])
    cut.executor.running[0]!.end({outcome: 'succeeded', exitCode: 0})
    await world.clock.advance(5 * SECOND)
    cut.fault = () => 'none'
    await world.clock.advance(10 * SECOND)
    const [execution] = await world.executions('job')
    assert.equal(execution!.status, 'lost')
    assert.equal(execution!.lateResult, 'succeeded, exit status 0')
    assert.equal((await world.job('job')).counters.successCount, 0)
    await world.check(['job'])
  })

  const keep = aJob('job').manual().tagged({role: 'web:1'}).with({onDisconnect: 'keep'})
  for (const [job, keepsRunning] of [
    [keep, true],
    [keep.retrying(1), false],
    [keep.with({onDisconnect: 'stop'}), false],
  ] as const)
    it(`but reconnects: its lost execution ${keepsRunning ? 'keeps running' : 'is stopped'}`, async () => {
      const {world, one, two} = await aCluster(job)
      one.executor.script('job', {ms: Infinity, output: 'talks'})
      two.executor.script('job', {ms: Infinity, output: 'talks'})
      await world.runByHand('job')
      await world.clock.until(() => one.executor.started.length + two.executor.started.length === 1)
      const cut = one.executor.started.length === 1 ? one : two
      cut.fault = () => 'unavailable'
      await world.clock.advance(40 * SECOND)
      cut.fault = () => 'none'
      await world.clock.advance(10 * SECOND)
      assert.equal(cut.executor.running.length, keepsRunning ? 1 : 0)
      assert.equal(cut.events.of('execution_abandoned').length, keepsRunning ? 0 : 1)
      cut.executor.running[0]?.end({outcome: 'succeeded', exitCode: 0})
      await world.clock.advance(SECOND)
      const [execution] = await world.executions('job')
      const note = keepsRunning ? 'succeeded, exit status 0' : 'cancelled'
      assert.deepEqual([execution!.status, execution!.lateResult], ['lost', note])
    })
})

describe('no node is failed', () => {
  it('while the store is unavailable for all nodes', async () => {
    const {world, leader, one, two} = await aCluster(aJob('job').manual().tagged(web))
    await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    for (const node of [leader, one, two]) node.fault = () => 'unavailable'
    await world.clock.advance(MINUTE)
    for (const node of [leader, one, two]) node.fault = () => 'none'
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.statuses('job'), ['running', 'running'])
    assert.ok((await world.store.members()).every(({status}) => status === 'alive'))
  })

  it('by a leader whose read failed: every silence window starts again', async () => {
    const {world, leader, one, statusOf} = await aCluster()
    await world.clock.advance(SECOND)
    one.crash()
    await world.clock.advance(6 * SECOND)
    let refusals = 1
    leader.fault = (method) => (method === 'members' && refusals-- > 0 ? 'unavailable' : 'none')
    await world.clock.advance(8 * SECOND)
    assert.equal(await statusOf('one'), 'alive')
    await world.clock.advance(4 * SECOND)
    assert.equal(await statusOf('one'), 'failed')
  })

  it('when only the leader was frozen', async () => {
    const {world, leader, one, two} = await aCluster(aJob('job').manual().tagged(web))
    await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    leader.delayMs = () => 20 * SECOND
    await world.clock.advance(2 * MINUTE)
    leader.delayMs = () => 0
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.statuses('job'), ['running', 'running'])
    assert.equal(one.executor.running.length + two.executor.running.length, 2)
  })

  it('by a new leader for silence before its term', async () => {
    const {world, leader, one} = await aCluster(aJob('job').manual().tagged(web))
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    one.crash()
    await world.clock.advance(8 * SECOND)
    leader.crash()
    await world.start({name: 'leader', incarnation: 'leader-2'})
    // The dead leader's lease expires, then the new leader observes the whole window itself.
    await world.clock.advance(22 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['running', 'running'])
    await world.clock.advance(15 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
  })
})

describe('a node that leaves', () => {
  it('its pending executions move to another node, and the stopped ones are retried there', async () => {
    const {world, one, two, statusOf} = await aCluster(
      aJob('job').manual().retrying(1).tagged({role: 'web:1'}),
      1,
    )
    for (let launch = 0; launch < 4; launch += 1) await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.clock.finish(one.stop(0))
    assert.equal(await statusOf('one'), 'left')
    await world.clock.advance(10 * SECOND)
    assert.ok(
      (await world.executions('job')).every(
        ({node, status}) => node === 'two' || status === 'lost',
      ),
    )
    for (let run = 0; run < 5; run += 1) {
      two.executor.running[0]?.end({})
      await world.clock.advance(2 * SECOND)
    }
    const open = (await world.launches('job')).filter(({open}) => open)
    assert.deepEqual(open, [])
    await world.check(['job'])
  })
})

describe('a pending execution that its node does not claim', () => {
  it('moves to another matching node with free slots after 3 s', async () => {
    const {world, one, two} = await aCluster(aJob('job').manual().tagged({role: 'web:1'}), 2)
    // Node one is alive and cannot claim.
    one.fault = (method) => (method === 'claim' ? 'unavailable' : 'none')
    for (let launch = 0; launch < 4; launch += 1) await world.runByHand('job')
    await world.clock.advance(2 * SECOND)
    const waiting = (await world.executions('job')).filter(({node}) => node === 'one').length
    assert.ok(waiting > 0)
    await world.clock.advance(3 * SECOND)
    assert.equal(two.executor.running.length, 2, 'as many as it has slots')
    two.executor.running[0]!.end({})
    await world.clock.advance(5 * SECOND)
    assert.equal(two.executor.started.length, 3)
    await world.check(['job'])
  })

  it('stays while no other node matches', async () => {
    const {world, one, two} = await aCluster(aJob('job').manual().tagged({role: 'web'}))
    one.fault = (method) => (method === 'claim' ? 'unavailable' : 'none')
    await world.runByHand('job')
    await world.clock.advance(30 * SECOND)
    assert.equal(two.executor.started.length, 1, 'a launch uses a node once')
    one.fault = () => 'none'
    await world.clock.advance(6 * SECOND)
    assert.equal(one.executor.started.length, 1)
    await world.check(['job'])
  })

  it('moves at once if its node died, and so does a retry', async () => {
    const {world, one, two} = await aCluster(
      aJob('job').manual().retrying(3).tagged({role: 'web:1'}),
    )
    for (const node of [one, two]) node.executor.script('job', {outcome: 'failed'})
    await world.runByHand('job')
    await world.clock.advance(4 * SECOND)
    const {node} = (await world.executions('job')).at(-1)!
    const [victim, other] = node === 'one' ? [one, two] : [two, one]
    victim.crash()
    other.executor.script('job', {})
    await world.clock.advance(30 * SECOND)
    const last = (await world.executions('job')).at(-1)!
    assert.deepEqual([last.node, last.status], [other.settings.name, 'succeeded'])
    await world.check(['job'])
  })
})

describe('more stuck executions than one batch', () => {
  it('are all loaded, even if a batch ends within a launch', async () => {
    const {world, leader, one, two} = await aCluster(aJob('job').manual().tagged(web), 1)
    await world.submit(aJob('odd').manual().tagged({role: 'web:1'}))
    for (const name of ['job', 'odd', ...Array<string>(140).fill('job')])
      await world.runByHand(name)
    const loaded = new Set<string>()
    const {loadStuck} = leader.store
    leader.store.loadStuck = async (request) => {
      const found = await loadStuck(request)
      for (const {execution} of found.executions) loaded.add(executionId(execution))
      return found
    }
    for (const node of [one, two]) node.crash()
    await world.clock.advance(MINUTE)
    const waiting = (await world.executions('job')).filter(({status}) => status === 'pending')
    assert.ok(waiting.length > 256, `${waiting.length} pending`)
    assert.deepEqual(
      waiting.filter((execution) => !loaded.has(executionId(execution))),
      [],
    )
  })
})

describe('a second node of the same name', () => {
  it('is refused while the first one sends heartbeats', async () => {
    const {world} = await aCluster()
    const {record} = aNode('one').with({id: 'another-identity'})
    const joined = await world.store.join({member: record}, 10_000)
    assert.deepEqual(joined, {kind: 'taken', by: 'id-of-one'})
  })

  it('that is a restart of the same node fences its previous incarnation', async () => {
    const {world, one, settings} = await aCluster()
    await world.start({...settings, name: 'one', incarnation: 'one-2'})
    await world.clock.advance(3 * SECOND)
    assert.ok(one.replacedCount > 0)
    await world.runByHand('job')
    await world.clock.advance(2 * SECOND)
    assert.equal(one.executor.started.length, 0, 'and gets no executions any more')
  })
})
