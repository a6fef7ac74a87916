/** Heartbeats: on time, with the current status, joining again after a removal, ending when replaced. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {Membership} from '../../src/node/membership.ts'
import type {MemberStatus} from '../../src/core/node.ts'
import type {BeatReply} from '../../src/ports/node-store.ts'
import {StoreUnavailable} from '../../src/ports/store-errors.ts'
import {aNode} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function aMembership() {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const beats: {status: MemberStatus; at: number}[] = []
  const world = {
    reply: 'ok' as BeatReply,
    down: false,
    delayMs: (_status: MemberStatus) => 0,
    replaced: [] as string[],
    reachability: [] as string[],
    joins: 0,
    joinFails: false,
    nameIsTaken: false,
    /** Status in the store. */
    stored: null as MemberStatus | null,
  }
  const {record} = aNode('node-a')
  const membership = new Membership({
    store: {
      beat: async ([heartbeat]) => {
        const {nodeId, incarnation, status} = heartbeat!
        assert.deepEqual([nodeId, incarnation], [record.id, record.incarnation])
        beats.push({status, at: clock.monotonicMs()})
        const delayMs = world.delayMs(status)
        if (delayMs > 0) await new Promise<void>((resolve) => void clock.after(delayMs, resolve))
        if (world.down) throw new StoreUnavailable('away')
        if (world.reply === 'ok') world.stored = status
        return [world.reply]
      },
    },
    clock,
    events,
    member: record,
    limits: {heartbeatMs: 2_000},
    rejoin: async () => {
      world.joins += 1
      if (world.joinFails) throw new StoreUnavailable('away')
      if (world.nameIsTaken) return {kind: 'taken', by: 'another'}
      world.reply = 'ok'
      return {kind: 'joined'}
    },
    onReplaced: (why) => world.replaced.push(why),
    onReachability: (problem) => world.reachability.push(problem?.message ?? 'again'),
  })
  return {clock, events, beats, world, membership}
}

describe('a membership', () => {
  it('sends a heartbeat at once and every 2 s', async () => {
    const {clock, beats, membership} = aMembership()
    membership.start()
    await clock.advance(6_000)
    assert.deepEqual(
      beats.map(({at, status}) => [at, status]),
      [0, 2_000, 4_000, 6_000].map((at) => [at, 'alive']),
    )
    await membership.stop()
    assert.equal(clock.waiting, 0)
  })

  it('reports an unreachable store once, and its return once', async () => {
    const {clock, world, membership} = aMembership()
    membership.start()
    await clock.advance(3_000)
    assert.deepEqual(world.reachability, [])
    for (let outage = 1; outage <= 2; outage += 1) {
      world.down = true
      await clock.advance(20_000)
      assert.equal(membership.isUnreachable, true)
      world.down = false
      await clock.advance(5_000)
      assert.equal(membership.isUnreachable, false)
    }
    assert.deepEqual(world.reachability, ['away', 'again', 'away', 'again'])
    await membership.stop()
  })

  it('reports failed heartbeats and sends one soon after an outage of the store', async () => {
    const {clock, beats, events, world, membership} = aMembership()
    world.down = true
    membership.start()
    await clock.advance(10_000)
    assert.ok(events.of('step_failed').length >= 5)
    world.down = false
    const before = beats.length
    await clock.until(() => beats.length > before, 5_000)
    await membership.stop()
  })

  it('counts its silence from the last acknowledged heartbeat', async () => {
    const {clock, world, membership} = aMembership()
    world.delayMs = () => 500
    membership.start()
    await clock.advance(600)
    assert.equal(membership.silentMs, 600, 'from when it was sent')
    world.down = true
    await clock.advance(20_000)
    assert.equal(membership.silentMs, 20_600, 'failed heartbeats do not count')
    world.down = false
    await clock.advance(3_000)
    assert.ok(membership.silentMs <= 3_000, 'acknowledged within one interval')
    world.reply = 'fenced'
    await clock.advance(5_000)
    assert.ok(membership.silentMs > 5_000)
    await clock.finish(membership.stop())
  })

  it('stores a new status at once, and repeats it in later heartbeats', async () => {
    const {clock, beats, events, world, membership} = aMembership()
    membership.start()
    await clock.advance(500)
    await clock.finish(membership.become('leaving'))
    assert.equal(world.stored, 'leaving')
    assert.deepEqual(events.of('member_changed'), [{node: 'node-a', status: 'leaving'}])
    await clock.advance(4_000)
    assert.equal(beats.at(-1)!.status, 'leaving')
    await membership.stop()
  })

  it('a heartbeat in flight does not overwrite a newer status', async () => {
    const {clock, world, membership} = aMembership()
    world.delayMs = (status) => (status === 'alive' ? 800 : 0)
    membership.start()
    await clock.advance(100)
    await clock.finish(membership.become('left'))
    await clock.finish(membership.stop())
    await clock.advance(5_000)
    assert.equal(world.stored, 'left')
  })

  it('rejects when a new status cannot be stored', async () => {
    const {clock, world, membership} = aMembership()
    world.down = true
    await assert.rejects(clock.finish(membership.become('left')), StoreUnavailable)
  })

  it('reports once that it was replaced, and by which kind of node', async () => {
    for (const reply of ['fenced', 'taken'] as const) {
      const {clock, world, membership} = aMembership()
      membership.start()
      await clock.advance(100)
      assert.deepEqual(world.replaced, [])
      world.reply = reply
      await clock.advance(6_000)
      await clock.finish(membership.become('left'))
      assert.deepEqual(world.replaced, [reply])
      await membership.stop()
    }
  })

  it('joins again after the store removed it', async () => {
    const {clock, beats, events, world, membership} = aMembership()
    membership.start()
    await clock.advance(1_000)
    world.reply = 'unknown'
    await clock.advance(1_000)
    assert.equal(world.joins, 1)
    assert.deepEqual(events.of('member_changed'), [{node: 'node-a', status: 'alive'}])
    assert.deepEqual(
      beats.map(({at}) => at),
      [0, 2_000, 2_000],
    )
    await clock.advance(2_000)
    assert.deepEqual([world.joins, world.replaced, membership.silentMs], [1, [], 0])
    await membership.stop()
  })

  it('removed while leaving, stores `leaving` as soon as it has joined again', async () => {
    const {clock, beats, world, membership} = aMembership()
    world.reply = 'unknown'
    await clock.finish(membership.become('leaving'))
    assert.deepEqual([world.joins, world.stored, beats.length], [1, 'leaving', 2])
  })

  it('removed after it left, does not join again', async () => {
    const {clock, world, membership} = aMembership()
    world.reply = 'unknown'
    await clock.finish(membership.become('left'))
    assert.deepEqual([world.joins, world.replaced], [0, []])
  })

  it('ends when its name was taken after its removal', async () => {
    const {clock, world, membership} = aMembership()
    world.reply = 'unknown'
    world.nameIsTaken = true
    membership.start()
    await clock.advance(4_000)
    assert.deepEqual(world.replaced, ['taken'])
    await membership.stop()
  })

  it('retries the join until the store is reachable', async () => {
    const {clock, world, membership} = aMembership()
    world.reply = 'unknown'
    world.joinFails = true
    membership.start()
    await clock.advance(10_000)
    assert.deepEqual([world.reply, world.replaced], ['unknown', []])
    world.joinFails = false
    await clock.advance(3_000)
    assert.deepEqual([world.reply, world.replaced], ['ok', []])
    await membership.stop()
  })
})
