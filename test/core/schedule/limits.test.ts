/**
 * Limits of schedules: the first and last year, infinities and fractions of seconds, counts too large to
 * enumerate, and the bounded cache of compiled schedules.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {BoundedCache} from '../../../src/lib/lru.ts'
import {parseSchedule, type Schedule} from '../../../src/core/schedule/parse.ts'

const DAY_S = 86_400
const FIRST = '0001-01-01T00:00:00.000Z'
const LAST = '9999-12-31T23:59:59.000Z'
const BERLIN = 'Europe/Berlin'

function schedule(text: string, timezone = 'UTC', name = 'backup', anchorAt = 0): Schedule {
  const parsed = parseSchedule(text, {timezone, name, anchorAt})
  assert.ok(parsed.ok, parsed.ok ? '' : parsed.problem)
  return parsed.schedule
}

function at(text: string): number {
  return Date.parse(text)
}

function shown(instant: number | null): string | null {
  return instant === null ? null : new Date(instant).toISOString()
}

test('planned times lie in the years 1 to 9999', () => {
  const everySecond = schedule('* * * * * *')
  assert.equal(shown(everySecond.next(-Infinity)), FIRST)
  assert.equal(shown(everySecond.previous(Infinity)), LAST)
  assert.equal(everySecond.next(at(LAST)), null)
  assert.equal(everySecond.next(Infinity), null)
  assert.equal(everySecond.previous(at(FIRST)), null)
  assert.equal(everySecond.previous(-Infinity), null)
  assert.equal(everySecond.count(-Infinity, Infinity), (at(LAST) - at(FIRST)) / 1000 + 1)
  const daily = schedule('@daily', BERLIN)
  assert.equal(daily.next(at('9999-12-31T23:00:00Z')), null)
  assert.ok(daily.previous(Infinity) !== null && daily.next(-Infinity) !== null)
})

test('an interval ends with year 9999 and has no planned time before its anchor', () => {
  const anchorAt = at('2026-01-01T00:00:00Z')
  const hourly = schedule('@every 1h', 'UTC', 'a', anchorAt)
  assert.equal(hourly.next(-Infinity), anchorAt)
  assert.equal(shown(hourly.previous(Infinity)), '9999-12-31T23:00:00.000Z')
  assert.equal(hourly.next(at(LAST)), null)
  assert.equal(hourly.previous(anchorAt), null)
  assert.equal(hourly.count(-Infinity, anchorAt + 1), 1)
})

test('@manually has no planned times and @at has one', () => {
  const manual = schedule('@manually')
  assert.deepEqual([manual.kind, manual.next(0), manual.previous(0)], ['manual', null, null])
  assert.equal(manual.count(-Infinity, Infinity), 0)
  const once = schedule('@at 2020-01-01T00:00:00Z')
  const planned = at('2020-01-01T00:00:00Z')
  assert.deepEqual(
    [once.kind, once.next(planned), once.previous(planned + 1)],
    ['at', null, planned],
  )
  assert.deepEqual([once.next(planned - 1), once.previous(planned)], [planned, null])
  assert.deepEqual([once.count(planned, planned + 1), once.count(planned + 1, planned + 2)], [1, 0])
})

test('instants between whole seconds are compared exactly', () => {
  const everySecond = schedule('* * * * * *')
  assert.deepEqual([everySecond.next(1500), everySecond.previous(1500)], [2000, 1000])
  assert.deepEqual([everySecond.next(999.5), everySecond.previous(1000.5)], [1000, 1000])
  assert.deepEqual([everySecond.next(-1500), everySecond.previous(-1500)], [-1000, -2000])
  assert.deepEqual([everySecond.count(1, 1000), everySecond.count(1, 1001)], [0, 1])
})

test('counting ten years of seconds does not enumerate them', {timeout: 2000}, () => {
  const from = at('2026-01-01T00:00:00Z')
  const until = at('2036-01-01T00:00:00Z')
  const days = (until - from) / 1000 / DAY_S
  for (let round = 0; round < 100; round += 1) {
    assert.equal(schedule('* * * * * *', BERLIN).count(from, until - round), days * DAY_S)
    assert.equal(schedule('@every 1s').count(from, until - round), days * DAY_S)
  }
  const weekdays = schedule('0 */5 9-17 * * MON-FRI', BERLIN)
  assert.equal(weekdays.count(from, until), 2608 * 9 * 12)
})

test('the next time of a sparse schedule is found fast at any distance', {timeout: 2000}, () => {
  const sparse = schedule('0 0 0 * 2 FRI#5', BERLIN)
  for (let round = 0; round < 10_000; round += 1) {
    assert.equal(shown(sparse.next(at('2064-03-01T00:00:00Z') + round)), '2092-02-28T23:00:00.000Z')
    assert.equal(
      shown(sparse.previous(at('2064-01-01T00:00:00Z') + round)),
      '2036-02-28T23:00:00.000Z',
    )
  }
})

test('a cached text is not compiled again, and each name has its own ~', () => {
  assert.equal(schedule('0 1 2 * * *'), schedule('0 1 2 * * *', 'UTC', 'other', 5))
  assert.notEqual(schedule('0 1 2 * * *'), schedule('0 1 2 * * *', BERLIN))
  assert.equal(schedule('0 ~ * * * *', 'UTC', 'ab'), schedule('0 ~ * * * *', 'UTC', 'ba'))
  assert.equal(shown(schedule('0 ~ * * * *', 'UTC', 'b').next(0)), '1970-01-01T00:38:00.000Z')
  assert.equal(shown(schedule('0 ~ * * * *', 'UTC', 'é').next(0)), '1970-01-01T00:53:00.000Z')
  assert.equal(schedule('@every 1h', 'UTC', 'a', 5).next(0), 5)
  assert.equal(schedule('@every 1h', 'UTC', 'a', 7).next(0), 7)
})

test('the cache is bounded and keeps the entries used last', () => {
  const cache = new BoundedCache<number>(100)
  for (let entry = 0; entry < 1000; entry += 1) {
    cache.set(`key ${entry}`, entry)
    assert.equal(cache.get('key 0'), 0, 'an entry in use was dropped')
    assert.ok(cache.size <= 100)
  }
  for (let entry = 960; entry < 1000; entry += 1) assert.equal(cache.get(`key ${entry}`), entry)
  assert.equal(cache.get('key 500'), undefined)
})
