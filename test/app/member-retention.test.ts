/** Member retention follows the settings of the server: from its flags to the store. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {loadConfig} from '../../src/config/server.ts'
import {MemberRetention} from '../../src/scheduler/retention.ts'
import {leaderServices} from '../../src/app/node.ts'
import {parseAddress} from '../../src/store/postgres/url.ts'
import {openMemoryStore} from '../../src/store/sqlite/store.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {beatAs} from '../support/single-calls.ts'

const MINUTE = 60_000
const HOST = {
  name: 'leader',
  cores: 1,
  timezone: 'UTC',
  directory: '/nowhere',
  readFile: () => '',
}

/** A leader with the retention of `argv`, and members that left or failed. */
async function aLeader(argv: readonly string[]) {
  const loaded = loadConfig(argv, {}, HOST, parseAddress)
  assert.ok(loaded.ok, loaded.ok ? '' : loaded.problem)
  const clock = new VirtualClock()
  const random = new SeededRandom(1)
  const store = openMemoryStore({clock, random})
  for (const name of ['leader', 'left', 'failed']) {
    const place = {address: '127.0.0.1', port: 1, tags: {}, server: true, runs: true}
    const member = {...place, id: name, name, incarnation: 'only', version: '1', slots: 1}
    assert.equal((await store.join({member}, 0)).kind, 'joined')
    const status = name === 'left' || name === 'failed' ? name : 'alive'
    await beatAs(store, {nodeId: name, incarnation: 'only', status})
  }
  const lease = await store.acquireLease({holder: 'h', nodeId: 'leader', ttlMs: 60 * MINUTE})
  const ports = {store, clock, random, wakeup: new TestWakeup(), events: new RecordedEvents()}
  const services = leaderServices({config: loaded.config, ...ports}, lease!.term, () =>
    assert.fail('the term is not over'),
  )
  const forgetting = services.find((service) => service instanceof MemberRetention)!
  forgetting.start()
  return {
    clock,
    listed: async () => (await store.members()).map(({name}) => name).toSorted(),
    stop: async () => {
      await clock.finish(forgetting.stop())
      await store.close()
    },
  }
}

test('members are removed after --keep-left and --keep-failed', async () => {
  const {clock, listed, stop} = await aLeader(['--keep-left', '2m', '--keep-failed', '1m'])
  await clock.advance(MINUTE - 1_000)
  assert.deepEqual(await listed(), ['failed', 'leader', 'left'])
  await clock.advance(20_000)
  assert.deepEqual(await listed(), ['leader', 'left'])
  await clock.advance(MINUTE)
  assert.deepEqual(await listed(), ['leader'])
  await stop()
})

test('by default, members that left are removed after 1 day, failed ones after 3 days', async () => {
  const {clock, listed, stop} = await aLeader([])
  await clock.advance(24 * 60 * MINUTE - 1_000)
  assert.deepEqual(await listed(), ['failed', 'leader', 'left'])
  await clock.advance(MINUTE)
  assert.deepEqual(await listed(), ['failed', 'leader'])
  await clock.advance(48 * 60 * MINUTE)
  assert.deepEqual(await listed(), ['leader'])
  await stop()
})
