/** The batcher: every item gets its own result, in batches of bounded size, one flush at a time. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {Batcher} from '../../src/lib/batcher.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function aBatcher(flushMs: number, itemsMax = 4) {
  const clock = new VirtualClock()
  const batches: number[][] = []
  let underWay = 0
  const batcher = new Batcher<number, string>({
    clock,
    waitMs: 2,
    itemsMax,
    flush: async (items) => {
      assert.equal(++underWay, 1, 'two batches were flushed at once')
      batches.push([...items])
      if (flushMs > 0) await new Promise<void>((resolve) => clock.after(flushMs, resolve))
      underWay -= 1
      if (items.includes(-1)) throw new Error('refused')
      return items.map((item) => `done ${item}`)
    },
  })
  return {clock, batches, batcher}
}

describe('a batcher', () => {
  it('collects items for a short wait, then flushes them once and resolves each', async () => {
    const {clock, batches, batcher} = aBatcher(0)
    const one = batcher.add(1)
    await clock.advance(1)
    const two = batcher.add(2)
    assert.deepEqual(batches, [])
    await clock.advance(1)
    assert.deepEqual(batches, [[1, 2]])
    assert.deepEqual(await Promise.all([one, two]), ['done 1', 'done 2'])
    assert.equal(clock.waiting, 0)
  })

  it('flushes at once when the batch is full', async () => {
    const {clock, batches, batcher} = aBatcher(0)
    for (let item = 1; item <= 4; item += 1) void batcher.add(item)
    assert.deepEqual(batches, [[1, 2, 3, 4]])
    await clock.advance(10)
    assert.deepEqual(batches, [[1, 2, 3, 4]], 'the timer flushed again')
  })

  it('collects the next batch during a flush and never exceeds the limit', async () => {
    const {clock, batches, batcher} = aBatcher(50)
    for (let item = 1; item <= 4; item += 1) void batcher.add(item)
    await clock.advance(10)
    for (let item = 5; item <= 10; item += 1) void batcher.add(item)
    await clock.advance(30)
    assert.deepEqual(batches, [[1, 2, 3, 4]])
    await clock.advance(200)
    assert.deepEqual(batches, [
      [1, 2, 3, 4],
      [5, 6, 7, 8],
      [9, 10],
    ])
  })

  it('rejects every item of a failed batch and continues with the next', async () => {
    const {clock, batcher} = aBatcher(5)
    const refused = [batcher.add(1), batcher.add(-1)].map((added) =>
      assert.rejects(added, /refused/),
    )
    await clock.advance(3)
    const next = batcher.add(2)
    await clock.advance(20)
    await Promise.all(refused)
    assert.equal(await next, 'done 2')
    const later = batcher.add(3)
    await clock.advance(20)
    assert.equal(await later, 'done 3')
  })

  it('resolves every item exactly once over random arrivals', async () => {
    const random = new SeededRandom(7)
    const {clock, batches, batcher} = aBatcher(3, 5)
    const answers = new Map<number, string>()
    for (let item = 1; item <= 500; item += 1) {
      void batcher.add(item).then((answer) => {
        assert.equal(answers.has(item), false)
        answers.set(item, answer)
      })
      if (random.chance(0.3)) await clock.advance(random.between(0, 6))
    }
    await clock.advance(10_000)
    assert.equal(answers.size, 500)
    for (const [item, answer] of answers) assert.equal(answer, `done ${item}`)
    assert.deepEqual(
      batches.flat(),
      Array.from({length: 500}, (_, index) => index + 1),
      'in order',
    )
    assert.ok(batches.every((batch) => batch.length <= 5))
  })
})
