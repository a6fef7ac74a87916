import assert from 'node:assert/strict'
import {test} from 'node:test'
import {systemClock} from '../../src/platform/clock.ts'

const clock = systemClock()

test('a timer never fires before its delay has really passed', async () => {
  for (const delayMs of [0, 1, 2, 3, 5, 8]) {
    const started = clock.monotonicMs()
    await new Promise<void>((resolve) => clock.after(delayMs, resolve))
    assert.ok(clock.monotonicMs() - started >= delayMs, `${delayMs} ms`)
  }
})

test('a cancelled timer does not fire, and cancelling twice is harmless', async () => {
  let fired = false
  const timer = clock.after(1, () => (fired = true))
  timer.cancel()
  timer.cancel()
  await new Promise<void>((resolve) => clock.after(5, resolve))
  assert.equal(fired, false)
})

for (const delayMs of [2 ** 31, 2 ** 40, Infinity])
  test(`a delay of ${delayMs} ms is not cut to nothing`, async () => {
    let fired = false
    const timer = clock.after(delayMs, () => (fired = true))
    await new Promise<void>((resolve) => clock.after(10, resolve))
    timer.cancel()
    assert.equal(fired, false)
  })

test('a long delay is re-armed in stretches the platform can hold', (t) => {
  const asked: number[] = []
  let elapsed = 0
  let fire = () => {}
  t.mock.method(performance, 'now', () => elapsed)
  t.mock.method(globalThis, 'setTimeout', (callback: () => void, ms: number) => {
    asked.push(ms)
    fire = callback
  })
  let fired = 0
  clock.after(2 ** 31 + 500, () => fired++)
  elapsed = 2 ** 31 - 1
  fire()
  assert.deepEqual([asked, fired], [[2 ** 31 - 1, 501], 0])
  elapsed = 2 ** 31 + 500
  fire()
  assert.equal(fired, 1)
})
