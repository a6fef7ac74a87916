/** A step of the wall clock is reported once with its size; the normal passing of time is not. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {ClockWatch} from '../../src/node/clock-watch.ts'
import type {Clock} from '../../src/ports/runtime.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const HOUR_MS = 3_600_000
const limits = {clockStepMs: 60_000, clockLookMs: 5_000}

for (const [name, byMs, reported] of [
  ['forward', HOUR_MS, [HOUR_MS]],
  ['backward', -HOUR_MS, [-HOUR_MS]],
  ['by less than a minute', 59_000, []],
] as const) {
  test(`a wall clock step ${name} is reported ${reported.length} time(s)`, async () => {
    const virtual = new VirtualClock()
    let setByMs = 0
    const clock: Clock = {
      now: () => virtual.now() + setByMs,
      monotonicMs: () => virtual.monotonicMs(),
      after: (delayMs, callback) => virtual.after(delayMs, callback),
    }
    const events = new RecordedEvents()
    const watch = new ClockWatch({
      clock,
      events,
      limits,
      storeOffsetMs: () => null,
    })
    watch.start()
    await virtual.advance(20_000)
    setByMs = byMs
    await virtual.advance(20_000)
    await watch.stop()
    const steps = events.of('clock_stepped').map((data) => data.by_ms)
    assert.deepEqual(steps, reported)
    assert.equal(virtual.waiting, 0)
  })
}

test('a clock that differs from that of the store is reported once, until it is right again', async () => {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const local = clock.now() - clock.monotonicMs()
  let aheadMs = 0
  const storeOffsetMs = () => local - aheadMs
  const watch = new ClockWatch({clock, events, limits, storeOffsetMs})
  watch.start()
  // The second is what a process sees once that stood still.
  for (const [differenceMs, forMs] of [
    [30_000, 20_000],
    [70_000, 5_000],
    [0, 5_000],
    [HOUR_MS, 20_000],
    [0, 5_000],
    [-HOUR_MS, 20_000],
  ] as const) {
    aheadMs = differenceMs
    await clock.advance(forMs)
  }
  await watch.stop()
  const differences = events.of('clock_differs').map((data) => data.by_ms)
  assert.deepEqual(differences, [HOUR_MS, -HOUR_MS])
})
