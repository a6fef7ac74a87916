/**
 * Cron in zones against a slow reference: Temporal and the written rule decide every second or minute of a
 * window around a transition. A failure prints the seed and the path that repeat it.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import type {Schedule} from '../../../src/core/schedule/parse.ts'
import {cronCase, DAYS, enumerate, EVERY_DAY, PLACES, SEED, type CronCase} from './cases.ts'

const SECOND_MS = 1000
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000

/** The planned times in [from, until) by the written rule, one instant or wall time at a time. */
function reference(example: CronCase, from: number, until: number, grainMs: number): number[] {
  const matches = (wall: Temporal.PlainDateTime) =>
    example.seconds.values.has(wall.second) &&
    example.minutes.values.has(wall.minute) &&
    example.hours.values.has(wall.hour) &&
    example.isDay(wall.toPlainDate())
  const found = new Set<number>()
  if (example.hours.wild) {
    for (let at = from; at < until; at += grainMs) {
      if (matches(zonedAt(at, example.zone).toPlainDateTime())) found.add(at)
    }
  } else {
    for (const wall of wallsNear(example, from, until)) {
      const at = firstInstantOf(wall, example.zone)
      if (at >= from && at < until) found.add(at)
    }
  }
  return [...found].toSorted((one, other) => one - other)
}

/** Matching wall times from two days before the window (a gap may last a day) to one day after it. */
function* wallsNear(example: CronCase, from: number, until: number) {
  let date = zonedAt(from, example.zone).toPlainDate().subtract({days: 2})
  const last = zonedAt(until, example.zone).toPlainDate().add({days: 1})
  for (; Temporal.PlainDate.compare(date, last) <= 0; date = date.add({days: 1})) {
    if (!example.isDay(date)) continue
    for (const hour of example.hours.values) {
      for (const minute of example.minutes.values) {
        for (const second of example.seconds.values) {
          yield date.toPlainDateTime({hour, minute, second})
        }
      }
    }
  }
}

/** The first pass of an existing wall time, else the first instant after its gap. */
function firstInstantOf(wall: Temporal.PlainDateTime, zone: string): number {
  const earlier = wall.toZonedDateTime(zone, {disambiguation: 'earlier'})
  if (earlier.toPlainDateTime().equals(wall)) return earlier.epochMilliseconds
  return earlier.getTimeZoneTransition('next')!.epochMilliseconds
}

function zonedAt(instant: number, zone: string): Temporal.ZonedDateTime {
  return Temporal.Instant.fromEpochMilliseconds(instant).toZonedDateTimeISO(zone)
}

function enumerateBackwards(schedule: Schedule, from: number, until: number): number[] {
  const planned: number[] = []
  let at = schedule.previous(until)
  for (; at !== null && at >= from; at = schedule.previous(at)) planned.push(at)
  return planned.toReversed()
}

function checkAgainstReference(grain: 'second' | 'minute', lengthMs: number, runs: number): void {
  const days = grain === 'second' ? EVERY_DAY : fc.oneof(EVERY_DAY, DAYS)
  for (const [zone, transition] of PLACES) {
    const near = Temporal.Instant.from(transition).epochMilliseconds
    const start = fc.integer({min: -Math.round(lengthMs / MINUTE_MS), max: 5})
    const property = fc.property(cronCase(zone, days, grain), start, (example, minutes) => {
      // Offsets with seconds put the minutes of the wall clock between those of UTC.
      const from = near + minutes * MINUTE_MS
      const grainMs = grain === 'minute' && near % MINUTE_MS === 0 ? MINUTE_MS : SECOND_MS
      const until = from + (grainMs === SECOND_MS ? Math.min(lengthMs, HOUR_MS / 4) : lengthMs)
      const planned = enumerate(example.schedule, from, until)
      assert.deepEqual(planned, reference(example, from, until, grainMs), `${example.text} ${zone}`)
      assert.deepEqual(enumerateBackwards(example.schedule, from, until), planned)
      assert.equal(example.schedule.count(from, until), planned.length)
    })
    fc.assert(property, {seed: SEED, numRuns: runs})
  }
}

test('every second near a transition follows the rule', () => {
  checkAgainstReference('second', HOUR_MS / 4, 10)
})

test('every minute of a day and a half around a transition follows the rule', () => {
  checkAgainstReference('minute', 36 * HOUR_MS, 12)
})
