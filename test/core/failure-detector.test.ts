/** Judging silence: it counts only while the judge itself listened without a break. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {FailureDetector} from '../../src/core/failure-detector.ts'
import {aNode, type NodeFixture} from '../support/fixtures.ts'

const LIMITS = {failedAfterMs: 10_000, lostAfterMs: 25_000, pauseMaxMs: 3_000}
const ID = 'id-of-node-a'

/**
 * Looks every second from `from` to `to` at nodes that do not beat; answers the instants of the
 * first verdicts.
 */
function watch(judge: FailureDetector, node: NodeFixture, from: number, to: number) {
  let failedAt: number | null = null
  let lostAt: number | null = null
  for (let now = from; now <= to; now += 1_000) {
    const {failed, lost} = judge.look([node.record], now)
    if (failed.includes(ID)) failedAt ??= now
    if (lost.includes(ID)) lostAt ??= now
  }
  return {failedAt, lostAt}
}

describe('the judge of silence', () => {
  it('fails after ten seconds and gives up after twenty-five', () => {
    const verdict = watch(new FailureDetector(LIMITS), aNode(), 500, 60_000)
    assert.deepEqual(verdict, {failedAt: 10_500, lostAt: 25_500})
  })

  it('never judges a node whose heartbeat moves, whatever its clock says', () => {
    const judge = new FailureDetector(LIMITS)
    for (let now = 0; now < 300_000; now += 1_000) {
      // A beat every 9 s, stamped by a clock that runs backward.
      const node = aNode().beaten(-Math.floor(now / 9_000))
      assert.deepEqual(judge.look([node.record], now), {failed: [], lost: []})
    }
  })

  it('counts nothing from before its own first look', () => {
    const judge = new FailureDetector(LIMITS)
    const first = judge.look([aNode().beaten(0).record], 1_000_000)
    assert.deepEqual(first, {failed: [], lost: []})
  })

  it('starts afresh when it did not look for longer than a pause may be', () => {
    const judge = new FailureDetector(LIMITS)
    assert.deepEqual(watch(judge, aNode(), 0, 24_000).lostAt, null)
    assert.deepEqual(watch(judge, aNode(), 27_001, 36_001), {failedAt: null, lostAt: null})
    assert.deepEqual(watch(judge, aNode(), 37_001, 60_000), {failedAt: 37_001, lostAt: 52_001})
  })

  it('goes on counting over a pause that is just allowed', () => {
    const judge = new FailureDetector(LIMITS)
    watch(judge, aNode(), 0, 24_000)
    assert.equal(watch(judge, aNode(), 27_000, 27_000).lostAt, 27_000)
  })

  it('starts afresh after the store was away', () => {
    const judge = new FailureDetector(LIMITS)
    watch(judge, aNode(), 0, 24_000)
    judge.interrupted()
    assert.deepEqual(watch(judge, aNode(), 25_000, 60_000), {failedAt: 35_000, lostAt: 50_000})
  })

  it('starts afresh for a node that came back', () => {
    const judge = new FailureDetector(LIMITS)
    watch(judge, aNode(), 0, 24_000)
    const verdict = watch(judge, aNode().returned('second-life'), 25_000, 60_000)
    assert.deepEqual(verdict, {failedAt: 35_000, lostAt: 50_000})
  })

  it('gives up a failed node in the same window, without failing it again', () => {
    const judge = new FailureDetector(LIMITS)
    watch(judge, aNode(), 0, 10_000)
    const verdict = watch(judge, aNode().status('failed'), 11_000, 60_000)
    assert.deepEqual(verdict, {failedAt: null, lostAt: 25_000})
  })

  it('judges a leaving node like an alive one, and gives up one that has left at once', () => {
    const judge = new FailureDetector(LIMITS)
    const leaving = watch(judge, aNode().status('leaving'), 0, 60_000)
    assert.deepEqual(leaving, {failedAt: 10_000, lostAt: 25_000})
    const left = new FailureDetector(LIMITS).look([aNode().status('left').record], 0)
    assert.deepEqual(left, {failed: [], lost: [ID]})
  })

  it('judges each node by itself and forgets those that are gone', () => {
    const judge = new FailureDetector(LIMITS)
    const other = aNode('node-b')
    for (let now = 0; now <= 9_000; now += 1_000) {
      judge.look([aNode().record, other.beaten(now).record], now)
    }
    const verdict = judge.look([aNode().record, other.beaten(10_000).record], 10_000)
    assert.deepEqual(verdict, {failed: [ID], lost: []})
    judge.look([other.beaten(11_000).record], 11_000)
    const again = judge.look([aNode().record, other.beaten(12_000).record], 12_000)
    assert.deepEqual(again, {failed: [], lost: []})
  })
})
