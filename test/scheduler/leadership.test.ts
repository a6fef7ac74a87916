/** Leadership: services run exactly as long as a term, trust ends before the lease, a stop resigns. */
import assert from 'node:assert/strict'
import {describe, it, test} from 'node:test'
import {Leadership} from '../../src/scheduler/leadership.ts'
import type {Service} from '../../src/lib/loop.ts'
import {FakeLease} from '../support/fake-lease.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const TTL = 6_000
const RENEW = 2_000
const TRUST = 5_000
const CLOSED = 3_000

/** Service that records its start and end, and takes a while to stop. */
class Lived implements Service {
  starts = 0
  stops = 0
  living = false
  readonly term: number
  readonly over: () => void
  readonly #stopping: () => Promise<void>

  constructor(term: number, over: () => void, stopping: () => Promise<void>) {
    this.term = term
    this.over = over
    this.#stopping = stopping
  }

  start(): void {
    this.starts += 1
    this.living = true
  }

  async stop(): Promise<void> {
    this.stops += 1
    await this.#stopping()
    this.living = false
  }
}

function aNode(
  lease: FakeLease,
  clock: VirtualClock,
  holder = 'node-1',
  stopMs = () => 0,
  wakeup = new TestWakeup(),
) {
  const events = new RecordedEvents()
  const services: Lived[] = []
  const leadership = new Leadership({
    store: lease,
    clock,
    events,
    wakeup,
    nodeId: `id-of-${holder}`,
    nodeName: holder,
    holder,
    limits: {
      leaseTtlMs: TTL,
      leaseRenewMs: RENEW,
      leaseAcquireEveryMs: RENEW,
      leaseMarginMs: TTL - TRUST,
      leaseClosedMs: CLOSED,
    },
    services: (term, over) => {
      const stopping = () => {
        const ms = stopMs()
        return ms === 0
          ? Promise.resolve()
          : new Promise<void>((resolve) => void clock.after(ms, resolve))
      }
      const made = [new Lived(term, over, stopping), new Lived(term, over, stopping)]
      services.push(...made)
      return made
    },
  })
  const reasons = () => events.of('term_ended').map(({reason}) => reason)
  return {leadership, services, events, reasons}
}

function alone() {
  const clock = new VirtualClock()
  const lease = new FakeLease(clock)
  return {clock, lease, ...aNode(lease, clock)}
}

describe('a term', () => {
  it('begins when the lease is acquired and lasts while it is renewed', async () => {
    const {clock, lease, leadership, services, events} = alone()
    leadership.start()
    await clock.advance(60_000)
    assert.equal(leadership.term, 1)
    assert.deepEqual(events.of('term_began'), [{term: 1, node: 'node-1'}])
    assert.ok(services.every(({living, starts}) => living && starts === 1))
    assert.equal(services.length, 2)
    // The extra one: its own notification of the candidates wakes it too.
    assert.equal(lease.calls.filter((call) => call === 'renew').length, 31)
    await leadership.stop()
  })

  it('does not begin while another holds the lease, and begins when it expires', async () => {
    const {clock, lease, leadership, services} = alone()
    lease.takeOver('another', TTL)
    leadership.start()
    await clock.advance(TTL - 1)
    assert.deepEqual([leadership.term, services.length], [null, 0])
    await clock.advance(RENEW)
    assert.equal(leadership.term, 2)
    await leadership.stop()
  })

  it('ends with a stop, which waits for its services and then resigns the lease', async () => {
    const clock = new VirtualClock()
    const lease = new FakeLease(clock)
    const {leadership, services, reasons} = aNode(lease, clock, 'node-1', () => 700)
    leadership.start()
    await clock.advance(100)
    const stopping = leadership.stop()
    await clock.advance(699)
    assert.equal(lease.holder, 'node-1', 'not resigned while a service is running')
    assert.equal(leadership.term, null)
    await clock.finish(stopping)
    assert.ok(services.every(({living, stops}) => !living && stops === 1))
    assert.equal(lease.holder, null)
    assert.deepEqual(reasons(), ['stopped'])
    await clock.advance(60_000)
    assert.equal(clock.waiting, 0)
  })

  it('ends before the lease expires if renewals fail', async () => {
    const {clock, lease, leadership, services, reasons} = alone()
    leadership.start()
    await clock.advance(100)
    lease.fault = () => 'unavailable'
    const lastedMs = await clock.until(() => leadership.term === null)
    assert.equal(100 + lastedMs, TRUST)
    assert.deepEqual(reasons(), ['not renewed in time'])
    assert.ok(services.every(({living}) => !living))
    assert.equal(lease.holder, 'node-1', 'no other node can lead yet')
    lease.fault = () => 'none'
    await clock.advance(TTL)
    assert.equal(leadership.term, 2, 'acquired again')
    await leadership.stop()
  })

  it('counts its trust from before the request, not from the reply', async () => {
    const {clock, lease, leadership} = alone()
    lease.delayMs = () => 900
    lease.fault = (call) => (call === 'renew' ? 'unavailable' : 'none')
    leadership.start()
    await clock.until(() => leadership.term !== null)
    assert.equal(clock.monotonicMs(), 1_800)
    await clock.until(() => leadership.term === null)
    assert.equal(clock.monotonicMs(), TRUST)
    lease.delayMs = () => 0
    await clock.finish(leadership.stop())
  })

  it('does not begin if the reply took longer than the trust lasts', async () => {
    const {clock, lease, leadership, services} = alone()
    lease.delayMs = () => 2_600
    leadership.start()
    await clock.advance(5_300)
    assert.deepEqual([leadership.term, services.length], [null, 0])
    lease.delayMs = () => 0
    await clock.advance(RENEW + TTL)
    assert.equal(leadership.term, lease.term)
    await leadership.stop()
  })

  it('ends at once if a renewal is refused', async () => {
    const {clock, lease, leadership, reasons} = alone()
    leadership.start()
    await clock.advance(100)
    lease.takeOver('another', 60_000)
    await clock.advance(RENEW)
    assert.equal(leadership.term, null)
    assert.deepEqual(reasons(), ['lease lost'])
    await clock.finish(leadership.stop())
    assert.equal(lease.holder, 'another', 'its lease is unchanged')
  })

  it('ends at once when a service of it gets TermOver', async () => {
    const {clock, leadership, services, reasons} = alone()
    leadership.start()
    await clock.advance(100)
    services[0]!.over()
    assert.equal(leadership.term, null)
    await clock.advance(2 * TTL)
    const again = leadership.term
    assert.ok(again !== null && again > 1)
    services[0]!.over()
    await clock.settle()
    assert.equal(leadership.term, again, 'a late call from an old term changes nothing')
    assert.deepEqual(reasons(), ['term over'])
    await leadership.stop()
  })

  it('does not begin before every service of the previous term has stopped', async () => {
    const clock = new VirtualClock()
    const lease = new FakeLease(clock)
    const {leadership, services} = aNode(lease, clock, 'node-1', () => 9_000)
    leadership.start()
    await clock.advance(100)
    services[0]!.over()
    await clock.advance(8_900)
    assert.deepEqual([leadership.term, services.length], [null, 2])
    assert.ok(services.every(({living}) => living))
    await clock.advance(RENEW + 200)
    assert.equal(leadership.term, 2)
    assert.deepEqual(
      services.map(({living}) => living),
      [false, false, true, true],
    )
    await clock.finish(leadership.stop())
  })

  it('survives lost replies without two terms at once', async () => {
    const {clock, lease, leadership} = alone()
    lease.fault = (call) => (call === 'acquire' ? 'answer_lost' : 'none')
    leadership.start()
    await clock.advance(1_000)
    assert.equal(leadership.term, null)
    lease.fault = () => 'none'
    await clock.advance(2 * TTL)
    assert.equal(leadership.term, lease.term)
    await leadership.stop()
  })

  it('ends after a freeze longer than its trust, before any renewal', async () => {
    const {clock, lease, leadership, services} = alone()
    leadership.start()
    await clock.advance(100)
    clock.sleep(60_000)
    lease.takeOver('another', 60_000)
    await clock.settle()
    assert.equal(leadership.term, null)
    assert.ok(services.every(({living}) => !living))
    await clock.finish(leadership.stop())
  })
})

describe('two candidates', () => {
  it('hand over within one acquisition interval after a stop', async () => {
    const clock = new VirtualClock()
    const lease = new FakeLease(clock)
    const one = aNode(lease, clock, 'node-1')
    const two = aNode(lease, clock, 'node-2')
    one.leadership.start()
    two.leadership.start()
    await clock.advance(500)
    assert.equal(one.leadership.term, 1)
    assert.equal(two.leadership.term, null)
    await clock.finish(one.leadership.stop())
    await clock.advance(RENEW)
    assert.equal(two.leadership.term, 2)
    await clock.finish(two.leadership.stop())
  })

  it('never both trust a term, under random delays, lost replies and outages', async () => {
    const random = new SeededRandom(4_711)
    for (let run = 0; run < 25; run += 1) {
      const clock = new VirtualClock()
      const lease = new FakeLease(clock)
      lease.delayMs = () => (random.chance(0.1) ? random.between(0, 4_000) : random.between(0, 20))
      let away = false
      lease.fault = () =>
        away
          ? 'unavailable'
          : random.chance(0.05)
            ? 'answer_lost'
            : random.chance(0.05)
              ? 'unavailable'
              : 'none'
      const nodes = ['node-1', 'node-2', 'node-3'].map((holder) =>
        aNode(lease, clock, holder, () => 0),
      )
      for (const {leadership} of nodes) leadership.start()
      for (let round = 0; round < 60; round += 1) {
        if (random.chance(0.1)) away = !away
        await clock.advance(random.between(1, 1_500))
        const leading = nodes.filter(({leadership}) => leadership.term !== null)
        assert.ok(leading.length <= 1, `run ${run} of seed ${random.seed}: two leaders`)
        const living = nodes.flatMap(({services}) => services.filter((service) => service.living))
        assert.equal(new Set(living.map(({term}) => term)).size, leading.length)
      }
      lease.fault = () => 'none'
      lease.delayMs = () => 0
      await clock.finish(Promise.all(nodes.map(({leadership}) => leadership.stop())))
    }
  })
})

describe('a lease with a far expiry after the clock of the store was set back', () => {
  const HOUR = 3_600_000
  /** Unchanged for this long, no holder trusts it. */
  const WATCHED = TTL + (TTL - TRUST)

  /** A candidate while another node, which never renews, holds the lease. */
  function aWatcher() {
    const world = alone()
    world.lease.takeOver('another', TTL)
    world.lease.setBack(HOUR)
    world.leadership.start()
    return world
  }

  it('is acquired after it was unchanged for longer than its TTL', async () => {
    const {clock, leadership, lease} = aWatcher()
    await clock.advance(WATCHED - 1)
    assert.equal(leadership.term, null)
    await clock.advance(RENEW + 1)
    assert.deepEqual([leadership.term, lease.holder], [2, 'node-1'])
    await leadership.stop()
  })

  it('is not acquired while it is renewed', async () => {
    const {clock, leadership, lease} = aWatcher()
    for (let round = 0; round < 100; round += 1) {
      lease.setBack(HOUR)
      assert.ok(await lease.renewLease({term: 1, holder: 'another', ttlMs: TTL}))
      await clock.advance(RENEW)
    }
    assert.equal(leadership.term, null)
    await clock.finish(leadership.stop())
    assert.equal(lease.holder, 'another')
  })

  it('is not acquired if its holder renews at the same moment', async () => {
    const {clock, leadership, lease} = aWatcher()
    const asked = lease.acquireLease.bind(lease)
    let renewals = 0
    lease.acquireLease = async (request) => {
      if (request.unchanged != null) {
        renewals += 1
        await lease.renewLease({term: 1, holder: 'another', ttlMs: TTL})
      }
      return await asked(request)
    }
    await clock.advance(WATCHED + RENEW)
    assert.deepEqual([renewals, leadership.term], [1, null])
    await clock.finish(leadership.stop())
  })

  it('is watched from the beginning after a pause of the candidate or the store', async () => {
    const pauses = {
      candidate: ({clock}: ReturnType<typeof aWatcher>) => Promise.resolve(clock.sleep(60_000)),
      store: async ({clock, lease}: ReturnType<typeof aWatcher>) => {
        lease.fault = () => 'unavailable'
        await clock.advance(60_000)
        lease.fault = () => 'none'
      },
      answer: async ({clock, lease}: ReturnType<typeof aWatcher>) => {
        lease.delayMs = () => 30_000
        const {length} = lease.calls
        await clock.until(() => lease.calls.length > length)
        lease.delayMs = () => 0
        await clock.advance(30_000)
      },
    }
    for (const [what, pause] of Object.entries(pauses)) {
      const world = aWatcher()
      const {clock, lease, leadership} = world
      await clock.advance(WATCHED / 2)
      await pause(world)
      await clock.advance(WATCHED - 1)
      assert.equal(leadership.term, null, what)
      await clock.advance(2 * RENEW)
      assert.equal(leadership.term, lease.term, what)
      await clock.finish(leadership.stop())
    }
  })
})

describe('a lease whose holder has lost its connection', () => {
  /** A candidate that has seen the connection of another holder open; the lease lasts long. */
  async function aWatcher() {
    const world = alone()
    const renew = () => world.lease.renewLease({term: 1, holder: 'another', ttlMs: 60_000})
    world.lease.takeOver('another', 60_000)
    world.lease.isConnected = true
    world.leadership.start()
    await world.clock.advance(RENEW)
    return {...world, renew}
  }

  it('is acquired when the connection was closed for a while', async () => {
    const {clock, lease, leadership} = await aWatcher()
    lease.isConnected = false
    await clock.advance(CLOSED)
    assert.equal(leadership.term, null)
    // Noticed after at most one interval, and then taken without waiting for the next one.
    await clock.advance(RENEW)
    assert.deepEqual([leadership.term, lease.holder], [2, 'node-1'])
    await leadership.stop()
  })

  it('is not acquired while the connection is open', async () => {
    const {clock, leadership} = await aWatcher()
    await clock.advance(CLOSED + RENEW / 2)
    assert.equal(leadership.term, null)
    await clock.finish(leadership.stop())
  })

  it('is not acquired if the connection was never seen open, as of an earlier release', async () => {
    const {clock, lease, leadership} = alone()
    lease.takeOver('another', 60_000)
    lease.isConnected = false
    leadership.start()
    await clock.advance(TTL)
    assert.equal(leadership.term, null)
    await clock.finish(leadership.stop())
  })

  it('is not acquired if its holder opens a new connection, or renews over another', async () => {
    for (const isSeenOpen of [true, false]) {
      const {clock, lease, leadership, renew} = await aWatcher()
      for (let round = 0; round < 20; round += 1) {
        lease.isConnected = false
        await clock.advance(CLOSED - 1)
        lease.isConnected = isSeenOpen
        assert.ok(await renew())
        if (isSeenOpen) await clock.advance(RENEW)
      }
      assert.equal(leadership.term, null)
      await clock.finish(leadership.stop())
    }
  })

  it('is not acquired after a restart of the store until the connection is seen open again', async () => {
    const {clock, lease, leadership, renew} = await aWatcher()
    lease.fault = () => 'unavailable'
    await clock.advance(3 * RENEW)
    lease.fault = () => 'none'
    lease.isConnected = false
    await clock.advance(CLOSED + RENEW)
    assert.equal(leadership.term, null)
    assert.ok(await renew())
    lease.isConnected = true
    await clock.advance(RENEW)
    lease.isConnected = false
    await clock.advance(RENEW + CLOSED)
    assert.equal(leadership.term, 2)
    await leadership.stop()
  })

  it('is watched anew in each term', async () => {
    const {clock, lease, leadership} = await aWatcher()
    lease.isConnected = false
    await clock.advance(CLOSED - 1)
    lease.takeOver('a third', 60_000)
    await clock.advance(CLOSED + RENEW)
    assert.equal(leadership.term, null)
    await clock.finish(leadership.stop())
  })
})

describe('a stop at every point', () => {
  /** Runs until `turns` timers have fired, then stops; every call and every stop takes several timers. */
  async function stopAfter(turns: number, prepare: (lease: FakeLease) => void) {
    const clock = new VirtualClock()
    const lease = new FakeLease(clock)
    lease.delayMs = () => 7
    prepare(lease)
    const {leadership, services, events} = aNode(lease, clock, 'node-1', () => 5)
    leadership.start()
    await clock.until(() => clock.fired >= turns)
    let stopped = false
    const stopping = Promise.all([leadership.stop(), leadership.stop()])
    void stopping.then(() => (stopped = true))
    await clock.until(() => stopped)
    const at = `stopped after ${turns} timers`
    assert.equal(leadership.term, null, at)
    assert.ok(
      services.every(({living, stops}) => !living && stops === 1),
      at,
    )
    assert.equal(lease.holder, null, `${at}: the lease is resigned, another can lead at once`)
    assert.equal(events.of('term_began').length, events.of('term_ended').length, at)
    const calls = lease.calls.length
    await clock.advance(60_000)
    assert.equal(clock.waiting, 0, `${at}: nothing is left`)
    assert.equal(lease.calls.length, calls, `${at}: nothing is asked any more`)
  }

  it('resigns the lease and ends all services, with any call in flight', async () => {
    for (let turns = 0; turns < 40; turns += 1) await stopAfter(turns, () => {})
  })

  it('resigns the lease and ends all services, while terms begin and end', async () => {
    for (let turns = 0; turns < 60; turns += 1) {
      let calls = 0
      await stopAfter(turns, (lease) => {
        lease.fault = (call) => (call === 'renew' && ++calls % 3 === 2 ? 'answer_lost' : 'none')
        const carried = lease.renewLease.bind(lease)
        lease.renewLease = async (request) => (await carried(request)) && calls % 3 !== 0
      })
    }
  })

  it('is safe before the start, and repeatedly', async () => {
    const {clock, lease, leadership} = alone()
    await leadership.stop()
    await leadership.stop()
    assert.deepEqual([lease.calls.length, clock.waiting], [0, 0])
  })
})

test('a leader renews at once when it is notified: its connection may be lost', async () => {
  const clock = new VirtualClock()
  const lease = new FakeLease(clock)
  const wakeup = new TestWakeup()
  const {leadership} = aNode(lease, clock, 'one', () => 0, wakeup)
  leadership.start()
  await clock.advance(10)
  const before = lease.calls.length
  wakeup.notify('lead')
  await clock.advance(1)
  assert.deepEqual(lease.calls.slice(before), ['renew'])
  await leadership.stop()
})

test('a term is announced as it begins: only a connection seen open can be seen closed', async () => {
  const clock = new VirtualClock()
  const wakeup = new TestWakeup()
  const {leadership} = aNode(new FakeLease(clock), clock, 'one', () => 0, wakeup)
  leadership.start()
  await clock.until(() => leadership.term !== null)
  assert.deepEqual(wakeup.notified, ['lead'])
  await leadership.stop()
})

test('a follower acquires a resigned lease at once, by notification', async () => {
  const clock = new VirtualClock()
  const lease = new FakeLease(clock)
  const wakeup = new TestWakeup()
  const first = aNode(lease, clock, 'one', () => 0, wakeup)
  first.leadership.start()
  await clock.advance(10)
  const second = aNode(lease, clock, 'two', () => 0, wakeup)
  second.leadership.start()
  await clock.advance(10)
  assert.equal(second.leadership.term, null)
  await first.leadership.stop()
  await clock.advance(1)
  assert.notEqual(second.leadership.term, null)
  await second.leadership.stop()
})

test('a leader is elected soon after any outage of the store', async () => {
  const {clock, lease, leadership} = alone()
  lease.fault = () => 'unavailable'
  leadership.start()
  await clock.advance(61_500)
  lease.fault = () => 'none'
  await clock.advance(RENEW)
  assert.equal(leadership.term, 1)
  await leadership.stop()
})
