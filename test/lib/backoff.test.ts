/** Exponential backoff: doubling, cap, jitter and reset. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import fc from 'fast-check'
import {Backoff, backoffMs} from '../../src/lib/backoff.ts'

const PLAIN = {firstMs: 100, maxMs: 5_000}

test('the delay doubles with each failure up to the cap', () => {
  const backoff = new Backoff(PLAIN)
  const delays = Array.from({length: 8}, () => backoff.failedMs())
  assert.deepEqual(delays, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000])
  assert.equal(backoff.failures, 8)
})

test('a success resets the delay', () => {
  const backoff = new Backoff(PLAIN)
  backoff.failedMs()
  backoff.failedMs()
  backoff.reset()
  assert.equal(backoff.failures, 0)
  assert.equal(backoff.failedMs(), 100)
})

test('a cap below the first delay limits every delay', () => {
  assert.equal(backoffMs({firstMs: 100, maxMs: 40}, 1), 40)
})

test('thousands of failures stay at the cap', () => {
  for (const failures of [1_000, 5_000, Number.MAX_SAFE_INTEGER]) {
    assert.equal(backoffMs(PLAIN, failures), 5_000)
  }
})

test('jitter keeps every delay within its bounds', () => {
  const jitter = {min: 0.8, max: 1.2}
  assert.equal(backoffMs({...PLAIN, jitter}, 1, 0), 80)
  assert.equal(backoffMs({...PLAIN, jitter}, 1, 0.5), 100)
  const unit = fc.double({min: 0, max: 1, maxExcluded: true, noNaN: true})
  fc.assert(
    fc.property(fc.integer({min: 1, max: 100}), unit, (failures, random) => {
      const plainMs = backoffMs(PLAIN, failures)
      const delayMs = backoffMs({...PLAIN, jitter}, failures, random)
      assert.ok(delayMs >= plainMs * 0.8 && delayMs <= plainMs * 1.2)
    }),
  )
})

test('a backoff without a failure is a broken invariant', () => {
  assert.throws(() => backoffMs(PLAIN, 0), {name: 'AssertionFailed'})
})
