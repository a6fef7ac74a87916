/**
 * Laws of every schedule, on random schedules and times: next, previous and count agree, time moves
 * forward, and a restart changes nothing. A failure prints the seed and the path.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import {parseSchedule} from '../../../src/core/schedule/parse.ts'
import {cronCase, DAYS, enumerate, PLACES, SEED} from './cases.ts'

const SECOND_MS = 1000
const DAY_MS = 86_400_000

const ANY_ZONE = fc.constantFrom(
  ...PLACES.map(([zone]) => zone),
  'Asia/Kathmandu',
  'Pacific/Auckland',
)
const ANY_CRON = ANY_ZONE.chain((zone) => cronCase(zone, DAYS, 'second'))
const ANY_INSTANT = fc.integer({min: Date.UTC(1850, 0, 1), max: Date.UTC(2400, 0, 1)})

test('next and previous are inverse, and next moves forward', () => {
  const property = fc.property(ANY_CRON, ANY_INSTANT, ({schedule}, instant) => {
    const next = schedule.next(instant)
    assert.ok(next !== null && next > instant, 'an accepted schedule has no next time')
    assert.ok(next % SECOND_MS === 0)
    assert.equal(schedule.previous(next + 1), next)
    assert.equal(schedule.next(next - 1), next)
    assert.equal(schedule.count(instant + 1, next), 0, 'next skipped a planned time')
    const previous = schedule.previous(next)
    assert.ok(previous === null || (previous <= instant && schedule.next(previous) === next))
  })
  fc.assert(property, {seed: SEED, numRuns: 500})
})

test('count equals enumeration and is additive', () => {
  const length = fc.integer({min: 0, max: 400 * DAY_MS})
  const property = fc.property(ANY_CRON, ANY_INSTANT, length, ({schedule}, from, lengthMs) => {
    const planned = enumerate(schedule, from, from + lengthMs, 2000)
    const until = planned.length < 2000 ? from + lengthMs : planned.at(-1)! + 1
    assert.equal(schedule.count(from, until), planned.length)
    const middle = from + Math.floor((until - from) / 3)
    assert.equal(schedule.count(from, middle) + schedule.count(middle, until), planned.length)
    assert.equal(schedule.count(until, from), 0)
  })
  fc.assert(property, {seed: SEED, numRuns: 150})
})

test('@every keeps the same laws and never fires before its anchor', () => {
  const interval = fc.integer({min: 1000, max: 10 * DAY_MS})
  const property = fc.property(
    interval,
    ANY_INSTANT,
    ANY_INSTANT,
    (intervalMs, anchorAt, instant) => {
      const parsed = parseSchedule(`@every ${intervalMs}ms`, {timezone: 'UTC', name: 'a', anchorAt})
      assert.ok(parsed.ok)
      const {schedule} = parsed
      const next = schedule.next(instant)
      assert.ok(next !== null && next > instant && next >= anchorAt)
      assert.ok((next - anchorAt) % intervalMs === 0)
      assert.ok(next === anchorAt || next - intervalMs <= instant)
      assert.equal(schedule.previous(next + 1), next)
      assert.equal(schedule.previous(anchorAt), null)
      assert.equal(schedule.previous(next), next === anchorAt ? null : next - intervalMs)
      assert.equal(schedule.count(instant + 1, next + 5 * intervalMs), 5)
      assert.equal(schedule.count(-Infinity, anchorAt), 0)
    },
  )
  fc.assert(property, {seed: SEED, numRuns: 300})
})

test('a new parse gives the same planned times', () => {
  const property = fc.property(ANY_CRON, ANY_INSTANT, ({text, zone, schedule}, instant) => {
    // Different blanks make a different text, which is not in the cache.
    const fresh = parseSchedule(`  ${text.replace(' ', '   ')} `, {
      timezone: zone,
      name: 'b',
      anchorAt: 9,
    })
    assert.ok(fresh.ok && fresh.schedule !== schedule)
    assert.equal(fresh.schedule.next(instant), schedule.next(instant))
    assert.equal(fresh.schedule.previous(instant), schedule.previous(instant))
  })
  fc.assert(property, {seed: SEED, numRuns: 100})
})
