/** The batcher: every item gets its own answer, in batches of bounded size, one under way at a time. */
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
      assert.equal(++underWay, 1, 'one batch at a time')
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
  it('collects for a moment, then does all at once and answers each', async () => {
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

  it('leaves at once when it is full', async () => {
    const {clock, batches, batcher} = aBatcher(0)
    for (let item = 1; item <= 4; item += 1) void batcher.add(item)
    assert.deepEqual(batches, [[1, 2, 3, 4]])
    await clock.advance(10)
    assert.deepEqual(batches, [[1, 2, 3, 4]], 'and the wait does not flush again')
  })

  it('collects the next batch while one is under way, and never exceeds the limit', async () => {
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

  it('rejects the whole batch when it is refused, and goes on with the next', async () => {
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

  it('answers everything exactly once over random arrivals', async () => {
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
