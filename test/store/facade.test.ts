/** The facade for clients: deadlines of calls, and the refusals that failures of the store become. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {DomainError} from '../../src/core/errors.ts'
import type {JobQuery} from '../../src/ports/job-store.ts'
import type {Store} from '../../src/ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import {DEADLINE_MS, LONG_READ_MS, LONG_WRITE_MS} from '../../src/store/sql/method.ts'
import {clientStoreOf} from '../support/client-store.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

/** A store that has only these methods. */
function storeOf(methods: Partial<Store>, clock = new VirtualClock()) {
  return clientStoreOf(methods as Store, clock)
}

const QUERY: JobQuery = {
  start: 0,
  end: 10,
  metadata: [],
  text: '',
  status: null,
  disabled: null,
  sort: 'name',
  order: 'asc',
}

const refusal = (code: string, cause?: unknown) => (error: unknown) => {
  assert.ok(error instanceof DomainError)
  assert.deepEqual([error.code, error.cause], [code, cause])
  return true
}

test('a call in time returns the result and leaves no timer behind', async () => {
  const clock = new VirtualClock()
  const submissionsPaused = async () => true
  const setPaused = () => Promise.reject(new TypeError('a bug'))
  const store = storeOf({submissionsPaused, setPaused}, clock)
  assert.equal(await store.submissionsPaused(), true)
  await assert.rejects(store.setPaused(true), TypeError)
  assert.equal(clock.waiting, 0)
})

test('a list of more than a page has a longer deadline than a page', async () => {
  const clock = new VirtualClock()
  const late = Promise.withResolvers<{total: number; rows: []}>()
  const store = storeOf({jobs: () => late.promise}, clock)
  const refused = assert.rejects(store.jobs(QUERY), refusal('store_unavailable'))
  const whole = store.jobs({...QUERY, end: null})
  const long = store.jobs({...QUERY, end: 1_001})
  const tooLate = assert.rejects(
    storeOf({jobs: () => new Promise(() => {})}, clock).jobs({...QUERY, end: null}),
    refusal('store_unavailable'),
  )
  await clock.advance(DEADLINE_MS)
  await refused
  late.resolve({total: 0, rows: []})
  assert.deepEqual(await whole, {total: 0, rows: []})
  assert.deepEqual(await long, {total: 0, rows: []})
  await clock.advance(LONG_READ_MS)
  await tooLate
  assert.equal(clock.waiting, 0)
})

test('failures of the store become refusals that keep their cause', async () => {
  const away = new StoreUnavailable('away')
  const lost = new OutcomeUnknown('lost')
  const failing = (cause: Error) => {
    const fail = () => Promise.reject(cause)
    return storeOf({submissionsPaused: fail, setPaused: fail})
  }
  await assert.rejects(failing(away).submissionsPaused(), refusal('store_unavailable', away))
  await assert.rejects(failing(away).setPaused(true), refusal('store_unavailable', away))
  await assert.rejects(failing(lost).setPaused(true), refusal('outcome_unknown', lost))
})

test('without an answer a read is unavailable, a write unknown, a backup unknown much later', async () => {
  const clock = new VirtualClock()
  const late = Promise.withResolvers<never>()
  const wait = () => late.promise
  const store = storeOf({submissionsPaused: wait, setPaused: wait, backup: wait}, clock)
  const expected = [
    assert.rejects(store.submissionsPaused(), refusal('store_unavailable')),
    assert.rejects(store.setPaused(true), refusal('outcome_unknown')),
  ]
  const long = assert.rejects(store.backup('file'), refusal('outcome_unknown'))
  await clock.advance(DEADLINE_MS)
  await Promise.all(expected)
  assert.equal(clock.waiting, 1)
  await clock.advance(LONG_WRITE_MS)
  await long
  // A failure after the deadline is ignored.
  late.reject(new Error('too late'))
  await clock.settle()
})
