import assert from 'node:assert/strict'
import {test} from 'node:test'
import {systemClock} from '../../src/platform/clock.ts'

const clock = systemClock()

test('a timer never fires before its delay has passed on the monotonic clock', async () => {
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
  test(`a timer of ${delayMs} ms does not fire at once`, async () => {
    let fired = false
    const timer = clock.after(delayMs, () => (fired = true))
    await new Promise<void>((resolve) => clock.after(10, resolve))
    timer.cancel()
    assert.equal(fired, false)
  })

test('a delay beyond 2^31 ms is re-armed in parts that the platform supports', (t) => {
  const delays: number[] = []
  let elapsed = 0
  let fire = () => {}
  t.mock.method(performance, 'now', () => elapsed)
  t.mock.method(globalThis, 'setTimeout', (callback: () => void, ms: number) => {
    delays.push(ms)
    fire = callback
  })
  let fired = 0
  clock.after(2 ** 31 + 500, () => fired++)
  elapsed = 2 ** 31 - 1
  fire()
  assert.deepEqual([delays, fired], [[2 ** 31 - 1, 501], 0])
  elapsed = 2 ** 31 + 500
  fire()
  assert.equal(fired, 1)
})
