/**
 * The whole flow while things go wrong: every call to the store refused or its answer lost once,
 * every bell dropped, a crash at every call. Nothing may be lost, nothing doubled; slower is all it
 * may be.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {StoreMethod} from '../support/faulty-store.ts'
import {aJob} from '../support/fixtures.ts'
import type {Life} from '../support/life.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const NAMES = ['every', 'only', 'parent', 'child', 'flaky', 'hand']
const SCRIPTS: Life['settings']['scripts'] = {
  every: {ms: 300, output: 'some output\n'},
  only: {ms: 1_500, output: 'some output\n'},
  flaky: ({attempt}) => (attempt < 3 ? {outcome: 'failed', exitCode: 1} : {}),
}

/** A bit of everything for twenty-one seconds, then peace. */
async function aScenario(prepare: (life: Life, world: World) => void) {
  const world = new World()
  const life = await world.start({scripts: SCRIPTS, prunes: true})
  prepare(life, world)
  await world.submit(aJob('every').every('2s'))
  await world.submit(aJob('only').every('1s').forbidding())
  await world.submit(aJob('parent').every('5s'))
  await world.submit(aJob('child').childOf('parent'))
  await world.submit(aJob('flaky').every('20s').retrying(4))
  await world.submit(aJob('hand').manual())
  await world.clock.advance(700)
  await world.runByHand('hand')
  await world.clock.advance(20 * SECOND)
  life.fault = () => 'none'
  return {world, life}
}

/** What must have become of it once all is calm again. */
async function assertWhole({world, life}: {world: World; life: Life}, at: string): Promise<void> {
  for (const name of ['every', 'only', 'parent', 'flaky']) await world.store.toggle(name)
  await world.clock.advance(40 * SECOND)
  for (const name of ['every', 'only', 'parent', 'flaky']) world.interrupted.add(name)
  await world.check(NAMES)
  const launched = async (name: string) =>
    (await world.ledger(name)).filter(({decision}) => decision === 'launched').length
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
  await world.clock.finish(life.stop())
  assert.equal(world.clock.waiting, 0, at)
}

/** Methods the flow uses while nothing is wrong, and how often. */
const plainCalls: ReadonlyMap<StoreMethod, number> = await aScenario(() => {}).then(
  ({life}) => new Map(life.calls),
)

describe('the scenario itself', () => {
  it('is whole without any fault, and uses the store as expected', async () => {
    await assertWhole(await aScenario(() => {}), 'no fault')
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

describe('one fault at a call of the store', () => {
  for (const [method, calls] of plainCalls) {
    if (method === 'join' || method === 'rescue') continue
    it(`${method}: refused, or its answer lost, early and late`, async () => {
      for (const fault of ['unavailable', 'answer_lost'] as const) {
        for (const part of [0, 0.6]) {
          const nth = Math.floor(calls * part)
          const at = `${method} ${fault} at call ${nth}`
          let seen = 0
          const scenario = await aScenario((life) => {
            life.fault = (called) => (called === method && seen++ === nth ? fault : 'none')
          })
          await assertWhole(scenario, at)
        }
      }
    })
  }
})

describe('the store away altogether', () => {
  it('for ten seconds in the middle of everything', async () => {
    for (const fault of ['unavailable', 'answer_lost'] as const) {
      const scenario = await aScenario((life, {clock}) => {
        life.fault = () => {
          const ms = clock.monotonicMs()
          return ms > 5 * SECOND && ms < 15 * SECOND ? fault : 'none'
        }
      })
      await assertWhole(scenario, fault)
    }
  })
})

describe('every bell dropped', () => {
  it('is slower, and nothing else', async () => {
    const scenario = await aScenario((life) => (life.wakeup.dropsAll = true))
    await assertWhole(scenario, 'no bells')
    const {world} = scenario
    for (const name of ['every', 'parent', 'child']) {
      for (const {startedAt, createdAt} of await world.executions(name)) {
        const waitedMs = startedAt! - createdAt
        assert.ok(waitedMs <= 1_010, `${name} waited ${waitedMs} ms`)
      }
    }
    for (const {scheduledAt, decidedAt} of await world.ledger('every'))
      assert.equal(decidedAt, scheduledAt, 'the clock needs no bell')
  })
})

describe('a crash at any call', () => {
  const counted: ReadonlySet<StoreMethod> = new Set(
    [...plainCalls.keys()].filter((method) => method !== 'join'),
  )
  it('leaves nothing lost, nothing doubled, nothing stuck', async () => {
    const total = [...plainCalls.values()].reduce((sum, calls) => sum + calls, 0)
    for (let crash = 3; crash < total; crash += 23) {
      const world = new World()
      const life = await world.start({scripts: SCRIPTS})
      await world.submit(aJob('every').every('2s').retrying(2).catchingUp('all'))
      await world.submit(aJob('only').every('1s').forbidding().retrying(2))
      await world.submit(aJob('parent').every('5s').retrying(2).catchingUp('all'))
      await world.submit(aJob('child').childOf('parent').retrying(2))
      let left = crash
      life.fault = (method) => {
        if (counted.has(method) && --left === 0) life.crash()
        return 'none'
      }
      await world.clock.advance(20 * SECOND)
      life.crash()
      world.clock.sleep(5 * SECOND)
      const next = await world.start({incarnation: 'second-life', scripts: SCRIPTS})
      await world.clock.advance(30 * SECOND)
      await world.check(['every', 'only', 'parent', 'child'])
      for (const name of ['every', 'parent']) {
        for (const {decision, group} of await world.ledger(name)) {
          assert.equal(decision, 'launched', `crash at call ${crash}`)
          const attempts = (await world.executions(name)).filter((one) => one.group === group)
          assert.ok(
            attempts.at(-1)!.status === 'succeeded' || attempts.at(-1)!.status === 'running',
            `crash at call ${crash}: ${name} ${attempts.map(({status}) => status).join(' ')}`,
          )
        }
      }
      const wells = (await world.executions('parent')).filter(({status}) => status === 'succeeded')
      assert.equal((await world.ledger('child')).length, wells.length, `crash at call ${crash}`)
      assert.ok(next.isLeading)
    }
  })
})
