/**
 * Bursts: more jobs are due at once than one pass of the leader records. Pages overlap, and recording them
 * has precedence over starting commands.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {StoreUnavailable} from '../../src/ports/store-errors.ts'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND

describe('planned times', () => {
  it('of a page are loaded and decided while the page before is written', async () => {
    const world = new World()
    await world.start({launchBatchMax: 10, slots: 100})
    for (let job = 0; job < 25; job += 1)
      await world.submit(aJob(`job-${job}`).scheduled('0 * * * * *'))
    const held = Promise.withResolvers<void>()
    const seen: string[] = []
    const {loadDue, applyLaunches} = world.store
    world.store.loadDue = async (request) => {
      const loaded = await loadDue(request)
      if (loaded.jobs.length > 0) seen.push('loaded')
      return loaded
    }
    world.store.applyLaunches = async (request) => {
      seen.push('writes')
      if (seen.length < 4) await held.promise
      return await applyLaunches(request)
    }
    await world.clock.advance(MINUTE)
    assert.deepEqual(seen, ['loaded', 'loaded', 'writes', 'loaded'])
    held.resolve()
    await world.clock.advance(SECOND)
    for (let job = 0; job < 25; job += 1)
      assert.deepEqual(await world.launchLines(`job-${job}`), ['12:01:00 launched'])
  })

  it('of a page whose write fails are launched once, by a later pass', async () => {
    const world = new World()
    await world.start({launchBatchMax: 10, slots: 100})
    for (let job = 0; job < 45; job += 1)
      await world.submit(aJob(`job-${job}`).scheduled('0 * * * * *'))
    let writes = 0
    const {applyLaunches} = world.store
    world.store.applyLaunches = async (request) => {
      writes += 1
      if (writes === 2) throw new StoreUnavailable('the store is not available')
      return await applyLaunches(request)
    }
    await world.clock.advance(MINUTE + 5 * SECOND)
    for (let job = 0; job < 45; job += 1)
      assert.deepEqual(await world.launchLines(`job-${job}`), ['12:01:00 launched'])
  })
})

describe('while the leader records a burst', () => {
  async function roomsOf(world: World) {
    const rooms: number[] = []
    const {claim} = world.store
    world.store.claim = async (requests) => {
      rooms.push(...requests.map(({room}) => room))
      return await claim(requests)
    }
    return rooms
  }

  it('a node claims little at once, and the rest afterwards', async () => {
    const world = new World()
    const node = await world.start({launchBatchMax: 10, slots: 1_000})
    for (let job = 0; job < 300; job += 1)
      await world.submit(aJob(`job-${job}`).scheduled('0 * * * * *'))
    node.delayMs = () => 30
    const rooms = await roomsOf(world)
    await world.clock.advance(MINUTE + 2 * SECOND)
    const small = rooms.filter((room) => room <= 8).length
    assert.ok(small >= 2 && small <= 10, `${small} small claims`)
    assert.ok(node.executor.started.length < 300)
    await world.clock.advance(5 * SECOND)
    assert.equal(node.executor.started.length, 300)
  })

  it('that is recorded in time, claims are as large as otherwise', async () => {
    const world = new World()
    const node = await world.start({launchBatchMax: 10, slots: 1_000})
    for (let job = 0; job < 45; job += 1) await world.submit(aJob(`job-${job}`).every('1s'))
    const rooms = await roomsOf(world)
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(
      rooms.filter((room) => room <= 8),
      [],
    )
    assert.ok(node.executor.started.length >= 4 * 45)
  })
})
