/** A step of the wall clock is reported once with its size; the normal passing of time is not. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {ClockWatch} from '../../src/node/clock-watch.ts'
import type {Clock} from '../../src/ports/runtime.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const HOUR_MS = 3_600_000

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
    const watch = new ClockWatch({clock, events, stepMinMs: 60_000, intervalMs: 5_000})
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
