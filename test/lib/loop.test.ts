/** The loop: one step at a time, no lost wake, a backoff that wakes cannot shorten, and a final stop. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {Loop} from '../../src/lib/loop.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function aLoop(step: () => Promise<number>) {
  const clock = new VirtualClock()
  const failures: unknown[] = []
  const loop = new Loop({clock, step, failed: (error) => failures.push(error)})
  return {clock, loop, failures}
}

/** A step that ends when the test resolves it. */
function manualStep() {
  const steps: PromiseWithResolvers<number>[] = []
  const step = () => {
    const next = Promise.withResolvers<number>()
    steps.push(next)
    return next.promise
  }
  return {steps, step}
}

describe('a loop', () => {
  it('runs the first step at once and the next after the returned delay', async () => {
    const times: number[] = []
    const {clock, loop} = aLoop(async () => times.push(clock.monotonicMs()) && 100)
    loop.start()
    await clock.advance(250)
    assert.deepEqual(times, [0, 100, 200])
    await loop.stop()
  })

  it('runs no step before start or after stop', async () => {
    let steps = 0
    const {clock, loop} = aLoop(async () => ++steps && 10)
    loop.wake()
    await clock.advance(100)
    assert.equal(steps, 0)
    loop.start()
    await clock.settle()
    await loop.stop()
    loop.wake()
    await clock.advance(100)
    assert.equal(steps, 1)
    assert.equal(clock.waiting, 0)
  })

  it('runs the next step early after a wake', async () => {
    const times: number[] = []
    const {clock, loop} = aLoop(async () => times.push(clock.monotonicMs()) && 1_000)
    loop.start()
    await clock.advance(300)
    loop.wake()
    loop.wake()
    await clock.advance(900)
    assert.deepEqual(times, [0, 300])
    await loop.stop()
  })

  it('runs one more step for any number of wakes during a step', async () => {
    const {steps, step} = manualStep()
    const {clock, loop} = aLoop(step)
    loop.start()
    await clock.settle()
    for (let wake = 0; wake < 5; wake += 1) loop.wake()
    await clock.advance(10_000)
    assert.equal(steps.length, 1, 'two steps ran at once')
    steps[0]!.resolve(5_000)
    await clock.settle()
    assert.equal(steps.length, 2)
    steps[1]!.resolve(5_000)
    await clock.advance(4_999)
    assert.equal(steps.length, 2)
    await loop.stop()
  })

  it('never runs two steps at once when a step wakes the loop before its first wait', async () => {
    let running = 0
    let most = 0
    let steps = 0
    const {clock, loop} = aLoop(async () => {
      running += 1
      most = Math.max(most, running)
      steps += 1
      if (steps === 1) loop.wake()
      await new Promise<void>((resolve) => clock.after(10, resolve))
      running -= 1
      return 1_000
    })
    loop.start()
    await clock.advance(100)
    assert.equal(most, 1)
    assert.equal(steps, 2, 'the wake was lost')
    await loop.stop()
  })

  it('stop waits for a step that stopped the loop before its first wait', async () => {
    let over = false
    let stopped: Promise<void> | null = null
    const {clock, loop} = aLoop(async () => {
      stopped = loop.stop()
      await new Promise<void>((resolve) => clock.after(10, resolve))
      over = true
      return 0
    })
    loop.start()
    await clock.settle()
    await clock.finish(stopped!)
    assert.equal(over, true)
    await clock.advance(100)
    assert.equal(clock.waiting, 0)
  })

  it('continues after a step that throws before its first wait', async () => {
    let steps = 0
    const {clock, loop, failures} = aLoop(() => {
      steps += 1
      if (steps === 1) throw new Error('at once')
      return Promise.resolve(1_000)
    })
    loop.start()
    await clock.advance(100)
    assert.equal(failures.length, 1)
    assert.equal(steps, 2)
    loop.wake()
    await clock.settle()
    assert.equal(steps, 3, 'a wake after recovery has no effect')
    await loop.stop()
  })

  it('doubles the delay up to 5 s while steps fail, despite wakes', async () => {
    const times: number[] = []
    const {clock, loop, failures} = aLoop(async () => {
      times.push(clock.monotonicMs())
      throw new Error('down')
    })
    loop.start()
    for (let round = 0; round < 300; round += 1) {
      loop.wake()
      await clock.advance(100)
    }
    const gaps = times.slice(1).map((time, index) => time - times[index]!)
    assert.deepEqual(gaps, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000])
    assert.equal(failures.length, times.length)
    await loop.stop()
  })

  it('resets the backoff after one successful step', async () => {
    let down = true
    const times: number[] = []
    const {clock, loop} = aLoop(async () => {
      times.push(clock.monotonicMs())
      if (down) throw new Error('down')
      return 1_000
    })
    loop.start()
    await clock.advance(350)
    down = false
    await clock.advance(400)
    assert.deepEqual(times, [0, 100, 300, 700])
    loop.wake()
    await clock.settle()
    assert.equal(times.length, 5, 'a wake after recovery has no effect')
    await loop.stop()
  })

  it('resolves every stop only after the running step has ended', async () => {
    const {steps, step} = manualStep()
    const {clock, loop} = aLoop(step)
    loop.start()
    await clock.settle()
    let stops = 0
    for (let call = 0; call < 3; call += 1) void loop.stop().then(() => (stops += 1))
    await clock.advance(1_000)
    assert.equal(stops, 0)
    steps[0]!.resolve(0)
    await clock.settle()
    assert.equal(stops, 3)
    await clock.advance(1_000)
    assert.equal(steps.length, 1)
  })

  it('can be stopped before start', async () => {
    const {clock, loop} = aLoop(async () => 1)
    await loop.stop()
    assert.equal(clock.waiting, 0)
  })
})

describe('start and stop of a loop at any point', () => {
  it('never overlaps steps and runs none after stop, over 300 random runs', async () => {
    const random = new SeededRandom(20_260_301)
    for (let run = 0; run < 300; run += 1) {
      let running = 0
      let stopped = false
      const fault = (what: string) => assert.fail(`run ${run} of seed ${random.seed}: ${what}`)
      const {clock, loop} = aLoop(async () => {
        if (stopped) fault('a step after stop')
        if (++running > 1) fault('two steps at once')
        if (random.chance(0.2)) loop.wake()
        const waits = random.between(0, 4)
        for (let wait = 0; wait < waits; wait += 1) {
          if (random.chance(0.5)) await Promise.resolve()
          else await new Promise<void>((resolve) => clock.after(random.between(0, 3), resolve))
        }
        running -= 1
        if (random.chance(0.2)) throw new Error('now and then')
        return random.between(0, 5)
      })
      if (random.chance(0.1)) await loop.stop()
      loop.start()
      for (let turn = random.between(0, 12); turn > 0; turn -= 1) {
        if (random.chance(0.4)) loop.wake()
        await (random.chance(0.5) ? null : clock.advance(random.between(0, 4)))
      }
      await clock.finish(loop.stop())
      if (running !== 0) fault('stop resolved while a step ran')
      stopped = true
      loop.wake()
      await clock.advance(50)
      if (clock.waiting !== 0) fault('a timer was left')
    }
  })
})
