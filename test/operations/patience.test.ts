/** Waiting for the store has an end, and what its failures become. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {DomainError} from '../../src/core/errors.ts'
import {
  LONG_WORK_MS,
  STORE_DEADLINE_MS,
  StoreWithDeadlines,
} from '../../src/operations/store-deadlines.ts'
import type {Store} from '../../src/ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const NO_STORE = {} as Store

const refusal = (code: string, cause?: unknown) => (error: unknown) => {
  assert.ok(error instanceof DomainError)
  assert.deepEqual([error.code, error.cause], [code, cause])
  return true
}

test('an answer in time is the answer, and leaves no timer behind', async () => {
  const clock = new VirtualClock()
  const store = new StoreWithDeadlines(NO_STORE, clock)
  assert.equal(await store.read(async () => 7), 7)
  await assert.rejects(
    store.write(() => Promise.reject(new TypeError('ours'))),
    TypeError,
  )
  assert.equal(clock.waiting, 0)
})

test('a list without an end may take long, a page of one may not', async () => {
  const clock = new VirtualClock()
  const store = new StoreWithDeadlines(NO_STORE, clock)
  const late = Promise.withResolvers<number>()
  const page = store.readSlice({start: 0, end: 10}, () => late.promise)
  const refused = assert.rejects(page, refusal('store_unavailable'))
  const whole = store.readSlice({start: 0, end: null}, () => late.promise)
  await clock.advance(STORE_DEADLINE_MS)
  await refused
  late.resolve(7)
  assert.equal(await whole, 7)
  assert.equal(clock.waiting, 0)
})

test('failures of the store are refusals that keep their cause', async () => {
  const store = new StoreWithDeadlines(NO_STORE, new VirtualClock())
  const away = new StoreUnavailable('away')
  const lost = new OutcomeUnknown('lost')
  await assert.rejects(
    store.read(() => Promise.reject(away)),
    refusal('store_unavailable', away),
  )
  await assert.rejects(
    store.write(() => Promise.reject(away)),
    refusal('store_unavailable', away),
  )
  await assert.rejects(
    store.write(() => Promise.reject(lost)),
    refusal('outcome_unknown', lost),
  )
})

test('no answer is given up: a read as unavailable, a write as unknown, long work much later', async () => {
  const clock = new VirtualClock()
  const store = new StoreWithDeadlines(NO_STORE, clock)
  const late = Promise.withResolvers<number>()
  const expected = [
    assert.rejects(
      store.read(() => late.promise),
      refusal('store_unavailable'),
    ),
    assert.rejects(
      store.write(() => late.promise),
      refusal('outcome_unknown'),
    ),
  ]
  const long = assert.rejects(
    store.longWrite(() => late.promise),
    refusal('outcome_unknown'),
  )
  await clock.advance(STORE_DEADLINE_MS)
  await Promise.all(expected)
  assert.equal(clock.waiting, 1)
  await clock.advance(LONG_WORK_MS)
  await long
  // The answer that comes after all, or a late failure, disturbs nobody.
  late.reject(new Error('too late'))
  await clock.settle()
})
