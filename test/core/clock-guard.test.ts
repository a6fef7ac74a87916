/** The guard against a clock that is suddenly far ahead: it believes a step only after it has stood. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {ClockGuard} from '../../src/core/clock-guard.ts'
import {NOON} from '../support/fixtures.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const YEAR = 365 * 24 * HOUR

/** A guard that has seen NOON at the monotonic instant 0. */
function aGuard(): ClockGuard {
  const guard = new ClockGuard({clockFarMs: HOUR, clockConfirmMs: 3 * MINUTE})
  assert.equal(guard.trustedNow(NOON, 0), NOON)
  return guard
}

test('time that passes, small steps and steps back are believed', () => {
  const guard = aGuard()
  assert.equal(guard.trustedNow(NOON + 9 * HOUR, 9 * HOUR), NOON + 9 * HOUR)
  assert.equal(guard.trustedNow(NOON + 10 * HOUR, 9 * HOUR + 1), NOON + 10 * HOUR)
  assert.equal(guard.trustedNow(NOON - YEAR, 9 * HOUR + 2), NOON - YEAR)
  assert.equal(guard.heldMs, 0)
})

test('a large clock step forward is ignored until it has lasted for the confirmation time', () => {
  const guard = aGuard()
  for (const at of [1, 1_000, 3 * MINUTE]) {
    assert.equal(guard.trustedNow(NOON + YEAR + at, at), NOON + at)
    assert.equal(guard.heldMs, YEAR)
  }
  const confirmed = 3 * MINUTE + 1
  assert.equal(guard.trustedNow(NOON + YEAR + confirmed, confirmed), NOON + YEAR + confirmed)
  assert.equal(guard.heldMs, 0)
})

test('a clock that is corrected leaves nothing behind', () => {
  const guard = aGuard()
  guard.trustedNow(NOON + YEAR, 1)
  assert.equal(guard.trustedNow(NOON + 2, 2), NOON + 2)
  const again = 10 * MINUTE
  assert.equal(guard.trustedNow(NOON + YEAR, again), NOON + again, 'the new step has not stood')
})

test('another far step begins its own wait', () => {
  const guard = aGuard()
  guard.trustedNow(NOON + YEAR, 1)
  assert.equal(guard.trustedNow(NOON + 2 * YEAR, 2 * MINUTE), NOON + 2 * MINUTE)
  assert.equal(guard.trustedNow(NOON + 2 * YEAR, 4 * MINUTE), NOON + 4 * MINUTE)
  const confirmed = NOON + 2 * YEAR + 3 * MINUTE
  assert.equal(guard.trustedNow(confirmed, 5 * MINUTE), confirmed)
})
