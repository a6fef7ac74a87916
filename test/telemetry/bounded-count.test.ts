/** Totals that are slow to count: the database is not kept busy by scrapes. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {boundedCount} from '../../src/telemetry/bounded-count.ts'
import {StoreUnavailable} from '../../src/ports/store-errors.ts'

const SECOND = 1_000

/** A store whose count takes `tookMs` and is the number of counts so far. */
function aStore() {
  const state = {now: 0, tookMs: 0, counts: 0, isUp: true}
  const refuseIfDown = () => {
    if (!state.isUp) throw new StoreUnavailable('the store is not available')
  }
  const store = {
    totals: async () => {
      state.now += state.tookMs
      refuseIfDown()
      state.counts += 1
      return {jobs: state.counts}
    },
    submissionsPaused: async () => {
      refuseIfDown()
      return false
    },
  }
  return {state, totals: boundedCount(store, {monotonicMs: () => state.now}, store.totals)}
}

describe('totals of the store', () => {
  it('are counted each time while counting is fast', async () => {
    const {state, totals} = aStore()
    state.tookMs = 50
    for (let expected = 1; expected <= 3; expected += 1)
      assert.equal((await totals()).jobs, expected)
  })

  it('that are slow to count are used for twenty times as long', async () => {
    const {state, totals} = aStore()
    state.tookMs = SECOND
    assert.equal((await totals()).jobs, 1)
    state.now += 20 * SECOND - 1
    assert.equal((await totals()).jobs, 1)
    state.now += 1
    assert.equal((await totals()).jobs, 2)
  })

  it('are counted once for requests at the same time', async () => {
    const {totals} = aStore()
    const both = await Promise.all([totals(), totals()])
    assert.deepEqual(
      both.map(({jobs}) => jobs),
      [1, 1],
    )
  })

  it('are refused while the store is down, also within that time', async () => {
    const {state, totals} = aStore()
    state.tookMs = SECOND
    await totals()
    state.isUp = false
    await assert.rejects(totals(), StoreUnavailable)
    state.now += 60 * SECOND
    await assert.rejects(totals(), StoreUnavailable)
  })

  it('outlast a count that is too slow for the store, if the store replies', async () => {
    const {state, totals} = aStore()
    state.tookMs = SECOND
    await totals()
    state.now += 60 * SECOND
    state.isUp = false
    await assert.rejects(totals(), StoreUnavailable)
    state.isUp = true
    assert.equal((await totals()).jobs, 1)
  })
})
