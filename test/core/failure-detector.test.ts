/** The failure detector: missing heartbeats count only while the detector itself ran without a pause. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {FailureDetector} from '../../src/core/failure-detector.ts'
import {aNode, type NodeFixture} from '../support/fixtures.ts'

const LIMITS = {failedAfterMs: 10_000, lostAfterMs: 25_000, failureDetectorPauseMaxMs: 3_000}
const ID = 'id-of-node-a'

/** Runs the detector every second on a node without new heartbeats; returns the first detections. */
function watch(detector: FailureDetector, node: NodeFixture, from: number, to: number) {
  let failedAt: number | null = null
  let lostAt: number | null = null
  for (let now = from; now <= to; now += 1_000) {
    const {failed, lost} = detector.look([node.record], now)
    if (failed.includes(ID)) failedAt ??= now
    if (lost.includes(ID)) lostAt ??= now
  }
  return {failedAt, lostAt}
}

describe('the failure detector', () => {
  it('marks a node as failed after 10 s and its executions as lost after 25 s', () => {
    const detected = watch(new FailureDetector(LIMITS), aNode(), 500, 60_000)
    assert.deepEqual(detected, {failedAt: 10_500, lostAt: 25_500})
  })

  it('never fails a node whose heartbeats arrive, even if its clock runs backward', () => {
    const detector = new FailureDetector(LIMITS)
    for (let now = 0; now < 300_000; now += 1_000) {
      // A heartbeat every 9 s, with timestamps of a clock that runs backward.
      const node = aNode().beaten(-Math.floor(now / 9_000))
      assert.deepEqual(detector.look([node.record], now), {failed: [], lost: []})
    }
  })

  it('ignores the time before its own first look', () => {
    const detector = new FailureDetector(LIMITS)
    const first = detector.look([aNode().beaten(0).record], 1_000_000)
    assert.deepEqual(first, {failed: [], lost: []})
  })

  it('restarts every window after a pause longer than the limit', () => {
    const detector = new FailureDetector(LIMITS)
    assert.deepEqual(watch(detector, aNode(), 0, 24_000).lostAt, null)
    assert.deepEqual(watch(detector, aNode(), 27_001, 36_001), {failedAt: null, lostAt: null})
    assert.deepEqual(watch(detector, aNode(), 37_001, 60_000), {failedAt: 37_001, lostAt: 52_001})
  })

  it('continues every window after a pause of exactly the limit', () => {
    const detector = new FailureDetector(LIMITS)
    watch(detector, aNode(), 0, 24_000)
    assert.equal(watch(detector, aNode(), 27_000, 27_000).lostAt, 27_000)
  })

  it('restarts every window after the store was unavailable', () => {
    const detector = new FailureDetector(LIMITS)
    watch(detector, aNode(), 0, 24_000)
    detector.interrupted()
    assert.deepEqual(watch(detector, aNode(), 25_000, 60_000), {failedAt: 35_000, lostAt: 50_000})
  })

  it('restarts the window for a new incarnation of a node', () => {
    const detector = new FailureDetector(LIMITS)
    watch(detector, aNode(), 0, 24_000)
    const detected = watch(detector, aNode().returned('incarnation-2'), 25_000, 60_000)
    assert.deepEqual(detected, {failedAt: 35_000, lostAt: 50_000})
  })

  it('loses the executions of a failed node in the same window, without failing it again', () => {
    const detector = new FailureDetector(LIMITS)
    watch(detector, aNode(), 0, 10_000)
    const detected = watch(detector, aNode().status('failed'), 11_000, 60_000)
    assert.deepEqual(detected, {failedAt: null, lostAt: 25_000})
  })

  it('treats a leaving node as alive, and loses the executions of a node that left at once', () => {
    const detector = new FailureDetector(LIMITS)
    const leaving = watch(detector, aNode().status('leaving'), 0, 60_000)
    assert.deepEqual(leaving, {failedAt: 10_000, lostAt: 25_000})
    const left = new FailureDetector(LIMITS).look([aNode().status('left').record], 0)
    assert.deepEqual(left, {failed: [], lost: [ID]})
  })

  it('measures each node separately and drops the record of a removed node', () => {
    const detector = new FailureDetector(LIMITS)
    const other = aNode('node-b')
    for (let now = 0; now <= 9_000; now += 1_000) {
      detector.look([aNode().record, other.beaten(now).record], now)
    }
    const detected = detector.look([aNode().record, other.beaten(10_000).record], 10_000)
    assert.deepEqual(detected, {failed: [ID], lost: []})
    detector.look([other.beaten(11_000).record], 11_000)
    const again = detector.look([aNode().record, other.beaten(12_000).record], 12_000)
    assert.deepEqual(again, {failed: [], lost: []})
  })
})
