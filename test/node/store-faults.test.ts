/**
 * The whole flow under faults: each store call rejected or its reply lost once, every notification dropped, a
 * crash at every call. Nothing is lost and nothing runs twice; the flow may only be slower.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {StoreMethod} from '../support/faulty-store.ts'
import {aJob} from '../support/fixtures.ts'
import type {SimulatedNode} from '../support/simulated-node.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const NAMES = ['every', 'only', 'parent', 'child', 'flaky', 'hand']
const SCRIPTS: SimulatedNode['settings']['scripts'] = {
  every: {ms: 300, output: 'some output\n'},
  only: {ms: 1_500, output: 'some output\n'},
  flaky: ({attempt}) => (attempt < 3 ? {outcome: 'failed', exitCode: 1} : {}),
}

/** Runs jobs of every kind for 21 s, then ends the faults. */
async function aScenario(prepare: (node: SimulatedNode, world: World) => void) {
  const world = new World()
  const node = await world.start({scripts: SCRIPTS, prunes: true})
  prepare(node, world)
  await world.submit(aJob('every').every('2s'))
  await world.submit(aJob('only').every('1s').forbidding())
  await world.submit(aJob('parent').every('5s'))
  await world.submit(aJob('child').childOf('parent'))
  await world.submit(aJob('flaky').every('20s').retrying(4))
  await world.submit(aJob('hand').manual())
  await world.clock.advance(700)
  await world.runByHand('hand')
  await world.clock.advance(20 * SECOND)
  node.fault = () => 'none'
  return {world, node}
}

/** Asserts the final state after the faults have ended. */
async function assertComplete(
  {world, node}: {world: World; node: SimulatedNode},
  at: string,
): Promise<void> {
  for (const name of ['every', 'only', 'parent', 'flaky']) await world.store.toggle(name)
  await world.clock.advance(40 * SECOND)
  for (const name of ['every', 'only', 'parent', 'flaky']) world.interrupted.add(name)
  await world.check(NAMES)
  const launched = async (name: string) =>
    (await world.launches(name)).filter(({decision}) => decision === 'launched').length
  assert.equal(await launched('every'), 10, at)
  assert.equal(await launched('parent'), 4, at)
  assert.equal(await launched('child'), 4, at)
  assert.ok((await launched('flaky')) >= 1, at)
  assert.deepEqual(await world.statuses('hand'), ['succeeded'], at)
  for (const name of ['every', 'only', 'parent', 'child']) {
    const statuses = await world.statuses(name)
    assert.ok(
      statuses.every((status) => status === 'succeeded'),
      `${at}: ${name} ${statuses.join(' ')}`,
    )
    assert.equal(statuses.length, world.starts(name).length, at)
  }
  const flaky = (await world.statuses('flaky')).slice(0, 3)
  assert.deepEqual(flaky, ['failed', 'failed', 'succeeded'], at)
  const {running, pending, undecided} = await world.store.totals()
  assert.deepEqual([running, pending, undecided], [0, 0, 0], at)
  await world.clock.finish(node.stop())
  assert.equal(world.clock.waiting, 0, at)
}

/** Methods the flow calls without faults, with their number of calls. */
const plainCalls: ReadonlyMap<StoreMethod, number> = await aScenario(() => {}).then(
  ({node}) => new Map(node.calls),
)

describe('the scenario itself', () => {
  it('passes without faults, and calls the expected methods', async () => {
    await assertComplete(await aScenario(() => {}), 'no fault')
    for (const method of [
      'claim',
      'finish',
      'appendOutput',
      'applyLaunches',
      'prune',
      'renewLease',
    ])
      assert.ok(plainCalls.has(method as StoreMethod), method)
  })
})

describe('one fault of a store call', () => {
  for (const [method, calls] of plainCalls) {
    if (method === 'join' || method === 'markLost') continue
    it(`${method}: rejected, or its reply lost, early and late`, async () => {
      for (const fault of ['unavailable', 'answer_lost'] as const) {
        for (const part of [0, 0.6]) {
          const nth = Math.floor(calls * part)
          const at = `${method} ${fault} at call ${nth}`
          let seen = 0
          const scenario = await aScenario((node) => {
            node.fault = (called) => (called === method && seen++ === nth ? fault : 'none')
          })
          await assertComplete(scenario, at)
        }
      }
    })
  }
})

describe('an outage of the store', () => {
  it('of 10 s loses nothing', async () => {
    for (const fault of ['unavailable', 'answer_lost'] as const) {
      const scenario = await aScenario((node, {clock}) => {
        node.fault = () => {
          const ms = clock.monotonicMs()
          return ms > 5 * SECOND && ms < 15 * SECOND ? fault : 'none'
        }
      })
      await assertComplete(scenario, fault)
    }
  })
})

describe('every notification dropped', () => {
  it('only makes the flow slower', async () => {
    const scenario = await aScenario((node) => (node.wakeup.dropsAll = true))
    await assertComplete(scenario, 'no notifications')
    const {world} = scenario
    for (const name of ['every', 'parent', 'child']) {
      for (const {startedAt, createdAt} of await world.executions(name)) {
        const waitedMs = startedAt! - createdAt
        assert.ok(waitedMs <= 1_010, `${name} waited ${waitedMs} ms`)
      }
    }
    for (const {scheduledAt, decidedAt, decision} of await world.launches('every'))
      if (decision === 'launched')
        assert.equal(decidedAt, scheduledAt, 'planned times need no notification')
  })
})

describe('a crash at any call', () => {
  const counted: ReadonlySet<StoreMethod> = new Set(
    [...plainCalls.keys()].filter((method) => method !== 'join'),
  )
  it('loses nothing, runs nothing twice, leaves nothing stuck', async () => {
    const total = [...plainCalls.values()].reduce((sum, calls) => sum + calls, 0)
    for (let crash = 3; crash < total; crash += 23) {
      const world = new World()
      const node = await world.start({scripts: SCRIPTS})
      await world.submit(aJob('every').every('2s').retrying(2).catchingUp('all'))
      await world.submit(aJob('only').every('1s').forbidding().retrying(2))
      await world.submit(aJob('parent').every('5s').retrying(2).catchingUp('all'))
      await world.submit(aJob('child').childOf('parent').retrying(2))
      let left = crash
      node.fault = (method) => {
        if (counted.has(method) && --left === 0) node.crash()
        return 'none'
      }
      await world.clock.advance(20 * SECOND)
      node.crash()
      world.clock.sleep(5 * SECOND)
      const next = await world.start({incarnation: 'second-incarnation', scripts: SCRIPTS})
      await world.clock.advance(30 * SECOND)
      await world.check(['every', 'only', 'parent', 'child'])
      for (const name of ['every', 'parent']) {
        for (const {decision, group} of await world.launches(name)) {
          assert.equal(decision, 'launched', `crash at call ${crash}`)
          const attempts = (await world.executions(name)).filter((one) => one.group === group)
          assert.ok(
            attempts.at(-1)!.status === 'succeeded' || attempts.at(-1)!.status === 'running',
            `crash at call ${crash}: ${name} ${attempts.map(({status}) => status).join(' ')}`,
          )
        }
      }
      const wells = (await world.executions('parent')).filter(({status}) => status === 'succeeded')
      assert.equal((await world.launches('child')).length, wells.length, `crash at call ${crash}`)
      assert.ok(next.isLeading)
    }
  })
})
