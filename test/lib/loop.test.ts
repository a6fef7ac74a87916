/**
 * The loop: one step at a time, no ring lost, backoff that rings cannot shorten, and a stop that
 * means it.
 */
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

/** A step that ends only when told to. */
function heldStep() {
  const held: PromiseWithResolvers<number>[] = []
  const step = () => {
    const next = Promise.withResolvers<number>()
    held.push(next)
    return next.promise
  }
  return {held, step}
}

describe('a loop', () => {
  it('takes the first step at once and the next when the answer says', async () => {
    const times: number[] = []
    const {clock, loop} = aLoop(async () => times.push(clock.monotonicMs()) && 100)
    loop.start()
    await clock.advance(250)
    assert.deepEqual(times, [0, 100, 200])
    await loop.stop()
  })

  it('does nothing before start and nothing after stop', async () => {
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

  it('lets a ring come before the time', async () => {
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

  it('takes one more step for any number of rings during a step', async () => {
    const {held, step} = heldStep()
    const {clock, loop} = aLoop(step)
    loop.start()
    await clock.settle()
    for (let ring = 0; ring < 5; ring += 1) loop.wake()
    await clock.advance(10_000)
    assert.equal(held.length, 1, 'never two at once')
    held[0]!.resolve(5_000)
    await clock.settle()
    assert.equal(held.length, 2)
    held[1]!.resolve(5_000)
    await clock.advance(4_999)
    assert.equal(held.length, 2)
    await loop.stop()
  })

  it('never runs two steps when a step rings before its first wait', async () => {
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
    assert.equal(steps, 2, 'and the ring is not lost')
    await loop.stop()
  })

  it('waits in stop for a step that was stopped before its first wait', async () => {
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

  it('goes on after a step that throws before its first wait', async () => {
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
    assert.equal(steps, 3, 'rings are heard again')
    await loop.stop()
  })

  it('backs off while steps fail, doubling up to five seconds, whatever rings', async () => {
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

  it('is back to normal after one good step', async () => {
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
    assert.equal(times.length, 5, 'rings count again')
    await loop.stop()
  })

  it('resolves stop only when the step under way has ended, every time it is asked', async () => {
    const {held, step} = heldStep()
    const {clock, loop} = aLoop(step)
    loop.start()
    await clock.settle()
    let stops = 0
    for (let asked = 0; asked < 3; asked += 1) void loop.stop().then(() => (stops += 1))
    await clock.advance(1_000)
    assert.equal(stops, 0)
    held[0]!.resolve(0)
    await clock.settle()
    assert.equal(stops, 3)
    await clock.advance(1_000)
    assert.equal(held.length, 1)
  })

  it('is safe to stop before start', async () => {
    const {clock, loop} = aLoop(async () => 1)
    await loop.stop()
    assert.equal(clock.waiting, 0)
  })
})

describe('start and stop of a loop at any point', () => {
  it('never overlaps steps and never steps after a stop, over 300 random runs', async () => {
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
