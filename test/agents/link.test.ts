/** Link and hub together, connected by function calls, on a virtual clock. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {JobSpec} from '../../src/core/job.ts'
import type {ClaimedExecution, FinishItem} from '../../src/ports/node-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import {LOCAL} from '../../src/identity/token-cache.ts'
import {PROTOCOL, STARTED_MAX} from '../../src/agents/protocol.ts'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'
import {TestAgent, TestServer, type AgentSettings} from './network.ts'

const CLUSTER = 'the-cluster'

/** A world with a leader that runs nothing, and servers with these names. */
async function aCluster<Name extends string>(...names: readonly Name[]) {
  const world = new World()
  await world.start({name: 'leader', runs: false})
  const servers = Object.fromEntries(
    names.map((name) => [name, new TestServer(world, CLUSTER, name)]),
  ) as Record<Name, TestServer>
  const agent = async (settings: Partial<AgentSettings> = {}) => {
    const made = new TestAgent(world, servers, settings)
    await world.clock.advance(1_000)
    return made
  }
  const claimed = async (by: TestAgent, token: string): Promise<ClaimedExecution> => {
    await world.runByHand('far')
    const {claimed: got} = await world.clock.finish(by.claim(token))
    assert.equal(got.length, 1)
    return got[0]!
  }
  await world.submit(aJob('far').with({schedule: '@manually', tags: {place: 'far:1'}}))
  return {world, servers, agent, claimed, clock: world.clock}
}

function aFinish({execution, token}: ClaimedExecution): FinishItem {
  const {group, node, attempt} = execution
  return {
    key: {group, node, attempt},
    token,
    status: 'succeeded',
    durationMs: 5,
    startedAfterMs: 0,
    exitCode: 0,
    reason: '',
    outputHead: '',
    outputFoot: '',
    output: {offset: 0, bytes: Buffer.from([0, 255, 10]), totalBytes: 3},
    dropOutput: false,
    jitter: 0.5,
  }
}

test('an agent joins, claims, verifies, appends, heartbeats and finishes', async () => {
  const {world, agent, claimed, clock, servers} = await aCluster('one')
  const far = await agent()
  assert.deepEqual([far.joins, far.cluster], [['one'], CLUSTER])
  const [known] = (await world.store.members()).filter(({name}) => name === 'agent-a')
  assert.deepEqual(
    [known?.server, known?.address, known?.slots, known?.tags['server']],
    [false, '192.0.2.7', 4, 'false'],
  )
  const mine = await claimed(far, 'token-1')
  const {key, token, output} = aFinish(mine)
  assert.deepEqual(await clock.finish(far.store.verifyClaims([{key, token}])), ['active'])
  const append = {key, token, offset: 0, bytes: output.bytes}
  assert.deepEqual(await clock.finish(far.store.appendOutput([append])), [true])
  const emitted = servers.one.events.all.find(({name}) => name === 'execution_output')
  assert.deepEqual(emitted?.data, {job: 'far', execution: '1-agent-a-1', total_bytes: 3})
  assert.equal(await clock.finish(far.beat()), 'ok')
  const [outcome] = await clock.finish(far.finish(aFinish(mine)))
  assert.equal(outcome?.kind, 'finished')
  assert.equal(far.claims.size, 0)
  const [again] = await clock.finish(far.finish(aFinish(mine)))
  assert.equal(again?.kind, 'already')
  const execution = await world.store.execution('far', key, 10)
  assert.deepEqual([...execution!.output], [0, 255, 10])
})

test('new work notifies only the agent that has it', async () => {
  const {world, agent, servers} = await aCluster('one')
  const far = await agent()
  const idle = await agent({name: 'agent-b'})
  await world.runByHand('far')
  servers.one.wakeup.notify('run')
  await world.clock.advance(100)
  const notified = [...far.notified, ...idle.notified]
  assert.deepEqual(notified, ['run'])
})

test('an agent leaves a silent server after 4 s and a dead one at once', async () => {
  const {agent, servers, clock, world} = await aCluster('one', 'two')
  const far = await agent()
  const first = far.joins[0] as 'one' | 'two'
  const other = first === 'one' ? 'two' : 'one'
  servers[first].isSilent = true
  const sentAt = clock.monotonicMs()
  await assert.rejects(clock.finish(far.beat()), OutcomeUnknown)
  assert.ok(clock.monotonicMs() - sentAt >= 4_000 && clock.monotonicMs() - sentAt < 4_100)
  await clock.advance(1_500)
  assert.deepEqual(far.joins, [first, other])
  servers[first].isSilent = false
  servers[other].die()
  await clock.advance(1_500)
  assert.deepEqual(far.joins, [first, other, first])
  const members = await world.store.members()
  assert.equal(members.filter(({name}) => name === 'agent-a').length, 1)
})

test('an agent leaves a server without its store after 4 s', async () => {
  const {agent, servers, clock} = await aCluster('one', 'two')
  const far = await agent()
  const first = far.joins[0] as 'one' | 'two'
  const other = first === 'one' ? 'two' : 'one'
  assert.equal(await clock.finish(far.beat()), 'ok')
  assert.ok(far.link.disconnectedMs < 1_000)
  servers[first].isDisconnected = true
  await clock.advance(3_000)
  await assert.rejects(clock.finish(far.beat()), StoreUnavailable)
  assert.equal(far.link.isConnected, true, 'one failed heartbeat is no reason to leave')
  await clock.advance(1_000)
  await assert.rejects(clock.finish(far.beat()), StoreUnavailable)
  assert.equal(far.link.isConnected, false)
  assert.ok(far.link.disconnectedMs > 4_000, 'replies without the store do not count')
  await clock.advance(1_500)
  assert.deepEqual(far.joins, [first, other])
  assert.equal(await clock.finish(far.beat()), 'ok')
  assert.ok(far.link.disconnectedMs < 1_000)
})

test('an agent is disconnected while no server reaches the store, and joins when one does', async () => {
  const {agent, servers, clock} = await aCluster('one', 'two')
  const far = await agent()
  for (const server of Object.values(servers)) server.isDisconnected = true
  for (let beat = 0; beat < 3; beat += 1) {
    await clock.advance(3_000)
    await assert.rejects(clock.finish(far.beat()), StoreUnavailable)
  }
  await clock.advance(10_000)
  assert.ok(far.link.disconnectedMs > 12_000, `disconnected for ${far.link.disconnectedMs} ms`)
  servers.two.isDisconnected = false
  await clock.advance(20_000)
  assert.equal(far.joins.at(-1), 'two')
})

test('an agent that shuts down does not wait for a server', async () => {
  const {agent, servers, clock} = await aCluster('one')
  const far = await agent()
  servers.one.die()
  await clock.advance(10)
  const beat = far.beat()
  const before = clock.monotonicMs()
  far.link.leaving()
  await assert.rejects(clock.finish(beat), StoreUnavailable)
  await assert.rejects(clock.finish(far.beat()), StoreUnavailable)
  assert.ok(clock.monotonicMs() - before < 100)
})

test('without a server an agent retries with backoff for ever, and logs it once a minute', async () => {
  const {world, agent, servers, clock} = await aCluster('one')
  const far = await agent()
  servers.one.die()
  await clock.advance(60_000)
  assert.ok(far.link.disconnectedMs >= 60_000)
  await assert.rejects(clock.finish(far.claim('token-1')), StoreUnavailable)
  assert.match(far.reports[0]!, /^lost the connection to/)
  // The agent's timers are the only ones from here on.
  world.nodes[0]!.crash()
  const before = clock.fired
  await clock.advance(3_600_000)
  assert.ok(clock.fired - before < 3_600 * 2, `${clock.fired - before} timers: two a second`)
  assert.ok(far.reports.length >= 45 && far.reports.length <= 62, `${far.reports.length} reports`)
  assert.match(far.reports.at(-1)!, /^cannot join .*; retrying all servers, for 6\d min now$/)
  servers.one.isGone = false
  await clock.advance(16_000)
  assert.deepEqual(far.joins, ['one', 'one'])
  assert.ok(far.link.disconnectedMs < 20_000)
})

test('an agent reports a refused token at once, then once a minute', async () => {
  const {agent, servers, clock} = await aCluster('one', 'two')
  const far = await agent()
  for (const server of [servers.one, servers.two]) {
    server.die()
    server.isGone = false
    server.refusesWith = 401
  }
  await clock.advance(5_000)
  assert.equal(far.reports.length, 2)
  assert.match(far.reports[0]!, /^lost the connection to/)
  const refusal = /it refuses the token\. Set the right one with --token or --token-file\./
  assert.match(far.reports[1]!, refusal)
  await clock.advance(10 * 60_000)
  assert.ok(far.reports.length >= 9 && far.reports.length <= 12, `${far.reports.length} reports`)
  assert.ok(far.reports.slice(2).every((sentence) => refusal.test(sentence)))
  for (const server of [servers.one, servers.two]) server.refusesWith = null
  await clock.advance(16_000)
  assert.ok(far.joins.length > 1, 'it joins when the token is right again')
})

test('a claim whose reply was lost is repeated at another server with the same result', async () => {
  const {agent, servers, clock, world} = await aCluster('one', 'two')
  const far = await agent()
  const first = far.joins[0] as 'one' | 'two'
  await world.runByHand('far')
  const claim = far.claim('token-1')
  await assert.rejects(async () => {
    await clock.until(() => servers[first].received.some((text) => text.includes('"claim"')))
    servers[first].die()
    await clock.finish(claim)
  }, OutcomeUnknown)
  await clock.advance(2_000)
  assert.equal(await clock.finish(far.beat()), 'ok', 'a pending claim is not lost')
  const again = await clock.finish(far.claim('token-1'))
  assert.equal(again.claimed.length, 1)
  assert.equal(await clock.finish(far.beat()), 'ok')
  assert.deepEqual(await world.statuses('far'), ['running'])
})

test('a claim missing at the agent becomes lost; one missing in the store is revoked', async () => {
  const {agent, claimed, clock, world} = await aCluster('one')
  const far = await agent()
  const mine = await claimed(far, 'token-1')
  far.claims.remove({key: mine.execution, token: mine.token})
  // The store is read before the agent makes its list: newer claims are compared with the next list.
  for (let beat = 0; beat < 2; beat += 1) assert.equal(await clock.finish(far.beat()), 'ok')
  const [lost] = await world.executions('far')
  assert.deepEqual([lost?.status, lost?.reason], ['lost', 'not_held'])

  const unknown = {...mine, token: 'nobodys'}
  far.claims.add([unknown])
  assert.equal(await clock.finish(far.beat()), 'ok')
  assert.deepEqual(far.notified, ['revoked'])
  const {group, node, attempt} = mine.execution
  assert.deepEqual(far.store.revokedClaims(), [{key: {group, node, attempt}, token: 'nobodys'}])
  assert.deepEqual(far.store.revokedClaims(), [], 'returned once')
})

test('a claim released by a lost reply, and made again, is kept when the old one is verified', async () => {
  const {agent, servers, claimed, clock, world} = await aCluster('one', 'two')
  const far = await agent()
  const first = far.joins[0] as 'one' | 'two'
  const mine = await claimed(far, 'token-1')
  const {group, node, attempt} = mine.execution
  const old = {key: {group, node, attempt}, token: mine.token}
  const release = far.store.releaseClaims([old])
  // Killed between the commit and the reply.
  const dies = async () => {
    await clock.until(() => servers[first].received.some((text) => text.includes('"release"')))
    servers[first].die()
    await clock.finish(release)
  }
  await assert.rejects(dies, OutcomeUnknown)
  await clock.advance(2_000)
  assert.deepEqual(await world.statuses('far'), ['pending'])
  const again = await clock.finish(far.claim('token-2'))
  assert.equal(again.claimed.length, 1)
  assert.deepEqual(await clock.finish(far.store.verifyClaims([old])), ['revoked'])
  for (let beat = 0; beat < 3; beat += 1) assert.equal(await clock.finish(far.beat()), 'ok')
  assert.deepEqual(await world.statuses('far'), ['running'], 'the process of the second claim runs')
  assert.deepEqual(far.store.revokedClaims(), [])
  const finished = aFinish({...mine, token: 'token-2'})
  await clock.finish(far.finish(finished))
  assert.deepEqual(await world.statuses('far'), ['succeeded'])
})

/** Number of claims that are revoked when an agent is back after its run became lost. */
async function revokedAfterAbsence(over: Partial<JobSpec>): Promise<number> {
  const {world, agent, claimed, clock, servers} = await aCluster('one')
  const {spec} = await world.job('far')
  await world.submit(aJob('far').with({...spec, ...over}))
  const far = await agent()
  const mine = await claimed(far, 'token-1')
  assert.equal(await clock.finish(far.beat()), 'ok')
  servers.one.isSilent = true
  await clock.advance(40_000)
  assert.equal((await world.statuses('far'))[0], 'lost')
  servers.one.isSilent = false
  await clock.advance(20_000)
  assert.equal(await clock.finish(far.beat()), 'ok')
  const revoked = far.store.revokedClaims()
  if (revoked.length === 0) {
    await clock.finish(far.finish(aFinish(mine)))
    const [execution] = await world.executions('far')
    assert.deepEqual(
      [execution?.status, execution?.lateResult],
      ['lost', 'succeeded, exit status 0'],
    )
  }
  return revoked.length
}

test('a lost run continues when its agent is back, unless a later attempt exists', async () => {
  assert.equal(await revokedAfterAbsence({onDisconnect: 'keep'}), 0)
  assert.equal(await revokedAfterAbsence({onDisconnect: 'keep', retries: 1}), 1)
  assert.equal(await revokedAfterAbsence({onDisconnect: 'stop'}), 1)
})

test('a claim missing at the agent becomes lost with its first heartbeat at another server', async () => {
  const {agent, claimed, clock, world, servers} = await aCluster('one', 'two')
  const far = await agent()
  const mine = await claimed(far, 'token-1')
  far.claims.remove({key: mine.execution, token: mine.token})
  servers[far.joins[0] as 'one' | 'two'].die()
  await clock.advance(2_000)
  assert.equal(far.joins.length, 2)
  assert.equal(await clock.finish(far.beat()), 'ok')
  assert.deepEqual(await world.statuses('far'), ['lost'])
})

test('a delayed heartbeat ends no execution claimed through another server since', async () => {
  const {agent, claimed, clock, world, servers} = await aCluster('one', 'two')
  const far = await agent()
  const near = servers[far.joins[0] as 'one' | 'two']
  near.isFrozen = true
  const unacknowledged = assert.rejects(far.beat(), OutcomeUnknown)
  await clock.advance(8_000)
  await unacknowledged
  assert.equal(far.joins.length, 2)
  await claimed(far, 'token-1')
  near.wake()
  await clock.advance(1_000)
  assert.deepEqual(await world.statuses('far'), ['running'])
})

test('another identity cannot take the name of an alive agent, and can once it is silent', async () => {
  const {agent, clock} = await aCluster('one')
  const far = await agent()
  const stranger = await agent({id: 'a-stranger-indeed'})
  assert.equal(stranger.joins.length, 0)
  assert.match(stranger.refusals.join(), /^other: The node name agent-a cannot be used/)
  far.link.stop()
  await clock.advance(11_000)
  const later = await agent({id: 'a-stranger-indeed'})
  assert.deepEqual(later.joins, ['one'])
})

test('the same identity joins again at once, and its previous incarnation is fenced for good', async () => {
  const {agent, claimed, clock, world} = await aCluster('one', 'two')
  const far = await agent()
  await claimed(far, 'token-1')
  const next = await agent({incarnation: 'second-incarnation'})
  assert.equal(next.joins.length, 1)
  if (far.refusals.length === 0) assert.equal(await clock.finish(far.beat()), 'fenced')
  else assert.match(far.refusals[0]!, /^fenced: /)
  assert.deepEqual(await world.statuses('far'), ['running'])
  await clock.finish(next.store.endPreviousIncarnations([]))
  const [lost] = await world.executions('far')
  assert.deepEqual([lost?.status, lost?.reason], ['lost', 'node_restarted'])
  assert.equal(await clock.finish(next.beat()), 'ok', 'the new incarnation stays')
})

test('claims of a previous incarnation that never started are released, the others are lost', async () => {
  const {agent, claimed, clock, world, servers} = await aCluster('one')
  const far = await agent()
  for (const token of ['token-1', 'token-2', 'token-3']) await claimed(far, token)
  const next = await agent({incarnation: 'second-incarnation'})
  const started = new Set(['2-agent-a-1'])
  const previous = [
    {incarnation: 'first-incarnation', upTo: 1, started},
    {incarnation: 'an-older-incarnation', upTo: 0, started: new Set<string>()},
  ]
  assert.equal(await clock.finish(next.store.endPreviousIncarnations(previous)), 1)
  assert.deepEqual(await world.statuses('far'), ['lost', 'lost', 'pending'])
  assert.equal(await clock.finish(next.store.endPreviousIncarnations(previous)), 0, 'repeated')
  const {claimed: again} = await clock.finish(next.claim('token-4'))
  assert.deepEqual(
    again.map(({execution: {group, attempt}}) => [group, attempt]),
    [[3, 1]],
  )
  assert.equal(servers.one.events.of('execution_changed').length, 1)
})

test('start logs too large for one message are not sent, and their claims become lost', async () => {
  const {agent, claimed, clock, world, servers} = await aCluster('one')
  await claimed(await agent(), 'token-1')
  const next = await agent({incarnation: 'second-incarnation'})
  const started = new Set(
    Array.from({length: STARTED_MAX + 1}, (_each, index) => `${index + 9}-a-1`),
  )
  const previous = [{incarnation: 'first-incarnation', upTo: 0, started}]
  assert.equal(await clock.finish(next.store.endPreviousIncarnations(previous)), 0)
  assert.deepEqual(await world.statuses('far'), ['lost'])
  assert.equal(servers.one.received.at(-1)?.includes('"previous":[]'), true)
})

test('a replaced incarnation that reconnects does not fence its successor', async () => {
  const {agent, clock, servers} = await aCluster('one')
  const far = await agent()
  for (const wire of servers.one.wires) wire.connection?.closed()
  const next = await agent({incarnation: 'second-incarnation'})
  servers.one.die()
  servers.one.isGone = false
  await clock.advance(5_000)
  assert.match(far.refusals.join(), /^fenced: /)
  assert.equal(await clock.finish(next.beat()), 'ok')
})

test('a server of another cluster is refused', async () => {
  const {agent, servers} = await aCluster('one')
  const elsewhere = await agent({clusterId: 'another-cluster', name: 'agent-b'})
  assert.match(
    elsewhere.refusals.join(),
    /^setting: The server one cannot be joined: it belongs to another cluster/,
  )
  assert.equal(servers.one.hub.agentCount, 0)
})

test('malformed, unknown and premature messages are refused', async () => {
  const {servers, clock} = await aCluster('one')
  const sent: string[] = []
  let closed = 0
  const connect = () =>
    servers.one.hub.connect({
      address: '192.0.2.8',
      port: 1,
      caller: LOCAL,
      send: (message) => sent.push(JSON.stringify(message)),
      close: () => (closed += 1),
    })
  for (const text of [
    'nonsense',
    '[]',
    '{"kind":"claim","id":1,"token":"t","room":1,"after":null}',
  ]) {
    await clock.finish(connect().receive(text))
    assert.match(sent.pop()!, /"refused","code":"malformed"/)
  }
  assert.equal(closed, 3)
  const node = {id: 'an-id', incarnation: 'life', name: 'n', tags: {}, slots: 1, version: '1'}
  const hello = {kind: 'hello', protocol: PROTOCOL, clusterId: null, node, joined: false, ended: []}
  const claims = {activeClaims: [], pendingToken: null}
  const whole = {...hello, status: 'alive', ...claims, ownToken: null, later: 'field'}
  const next = connect()
  await clock.finish(next.receive(JSON.stringify(whole)))
  assert.match(sent.pop()!, /"welcome"/, 'an unknown field is ignored')
  await clock.finish(next.receive('{"kind":"dance","id":7}'))
  assert.match(sent.pop()!, /"failed","id":7,"failure":"unsupported"/)
  assert.equal(closed, 3, 'the connection stays')
})

test('an agent or server of another protocol is refused with what to update', async () => {
  const {world, servers, clock} = await aCluster('one')
  const sent: unknown[] = []
  const receive = (text: object) =>
    servers.one.hub
      .connect({
        address: '192.0.2.8',
        port: 1,
        caller: LOCAL,
        send: (message) => sent.push(message),
        close: () => undefined,
      })
      .receive(JSON.stringify(text))
  await clock.finish(receive({kind: 'hello', protocol: PROTOCOL - 1, held: []}))
  await clock.finish(receive({kind: 'hello', protocol: PROTOCOL + 1}))
  const why = (protocol: number, fix: string) => {
    const versions = `it speaks version ${protocol} of the agent protocol, one version ${PROTOCOL}`
    return `The agent cannot join: ${versions}. Update ${fix}.`
  }
  assert.deepEqual(sent, [
    {kind: 'refused', code: 'protocol', message: why(PROTOCOL - 1, 'the agent')},
    {kind: 'refused', code: 'protocol', message: why(PROTOCOL + 1, 'one')},
  ])
  for (const [protocol, fix] of [
    [PROTOCOL - 1, 'server'],
    [PROTOCOL + 1, 'agent'],
  ] as const) {
    const dialled: TestServer['dialled'] = (_clock, handlers) => {
      clock.after(1, () => handlers.onMessage(JSON.stringify({kind: 'welcome', protocol})))
      return {bufferedBytes: 0, send: () => undefined, terminate: () => undefined}
    }
    const {refusals} = new TestAgent(world, {other: {dialled} as TestServer})
    await clock.advance(10)
    assert.match(
      refusals.join(),
      new RegExp(`speaks version ${protocol} .* this agent ${PROTOCOL}\\. Update the ${fix}\\.$`),
    )
  }
})

test('an agent with the node id of a server is refused', async () => {
  const {agent, world} = await aCluster('one')
  const [leader] = await world.store.members()
  const thief = await agent({id: leader!.id, name: 'thief'})
  assert.deepEqual(thief.joins, [])
})
