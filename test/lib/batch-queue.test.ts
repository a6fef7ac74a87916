/** The batch queue: every item gets its own result, in batches of bounded size and number. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {BatchQueue, type BatchQueueOptions} from '../../src/lib/batch-queue.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function waitingQueue(flushMs: number, itemsMax = 4) {
  const clock = new VirtualClock()
  const batches: number[][] = []
  let underWay = 0
  const queue = new BatchQueue<number, string>({
    clock,
    waitMs: 2,
    itemsMax,
    flush: async (items) => {
      assert.equal(++underWay, 1, 'two batches were flushed together')
      batches.push([...items])
      if (flushMs > 0) await new Promise<void>((resolve) => clock.after(flushMs, resolve))
      underWay -= 1
      if (items.includes(-1)) throw new Error('refused')
      return items.map((item) => `done ${item}`)
    },
  })
  return {clock, batches, queue}
}

describe('a batch queue that waits', () => {
  it('collects items for a short wait, then flushes them once and resolves each', async () => {
    const {clock, batches, queue} = waitingQueue(0)
    const one = queue.add(1)
    await clock.advance(1)
    const two = queue.add(2)
    assert.deepEqual(batches, [])
    await clock.advance(1)
    assert.deepEqual(batches, [[1, 2]])
    assert.deepEqual(await Promise.all([one, two]), ['done 1', 'done 2'])
    assert.equal(clock.waiting, 0)
  })

  it('flushes at once when the batch is full', async () => {
    const {clock, batches, queue} = waitingQueue(0)
    for (let item = 1; item <= 4; item += 1) void queue.add(item)
    assert.deepEqual(batches, [[1, 2, 3, 4]])
    await clock.advance(10)
    assert.deepEqual(batches, [[1, 2, 3, 4]], 'the timer flushed again')
  })

  it('collects the next batch during a flush and never exceeds the limit', async () => {
    const {clock, batches, queue} = waitingQueue(50)
    for (let item = 1; item <= 4; item += 1) void queue.add(item)
    await clock.advance(10)
    for (let item = 5; item <= 10; item += 1) void queue.add(item)
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
    const {clock, queue} = waitingQueue(5)
    const refused = [queue.add(1), queue.add(-1)].map((added) => assert.rejects(added, /refused/))
    await clock.advance(3)
    const next = queue.add(2)
    await clock.advance(20)
    await Promise.all(refused)
    assert.equal(await next, 'done 2')
    const later = queue.add(3)
    await clock.advance(20)
    assert.equal(await later, 'done 3')
  })

  it('resolves every item exactly once over random arrivals', async () => {
    const random = new SeededRandom(7)
    const {clock, batches, queue} = waitingQueue(3, 5)
    const answers = new Map<number, string>()
    for (let item = 1; item <= 500; item += 1) {
      void queue.add(item).then((answer) => {
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

/** A queue without a wait, whose batches end at `answer`. An `Error` as an item is its own result. */
function promptQueue(options: Partial<BatchQueueOptions<unknown, unknown>> = {}) {
  const batches: (readonly unknown[])[] = []
  const ends: PromiseWithResolvers<readonly unknown[]>[] = []
  const flush = (items: readonly unknown[]) => {
    batches.push(items)
    ends.push(Promise.withResolvers())
    return ends.at(-1)!.promise
  }
  const queue = new BatchQueue<unknown, unknown>({itemsMax: 3, flush, ...options})
  return {
    queue,
    sizes: () => batches.map(({length}) => length),
    answer: async (index: number) => {
      ends[index]!.resolve(batches[index]!)
      await nextTurn()
    },
    die: (index: number) => ends[index]!.reject(new Error('died')),
  }
}

describe('a batch queue', () => {
  it('items added during a batch share the next one, in order', async () => {
    const {queue, sizes, answer} = promptQueue()
    const added = [1, 2, 3, 4, 5].map((item) => queue.add(item))
    await nextTurn()
    assert.deepEqual(sizes(), [3])
    await answer(0)
    assert.deepEqual(sizes(), [3, 2])
    await answer(1)
    assert.deepEqual(await Promise.all(added), [1, 2, 3, 4, 5])
  })

  it('reports the end of each flush before its results, also of one that fails', async () => {
    const seen: string[] = []
    const onFlush = (items: number) => () => void seen.push(`flush of ${items} ended`)
    const {queue, answer, die} = promptQueue({onFlush})
    const added = [1, 2].map((item) => queue.add(item).then(() => seen.push('result')))
    await nextTurn()
    await answer(0)
    await Promise.all(added)
    const failing = queue.add(3).catch(() => seen.push('error'))
    await nextTurn()
    die(1)
    await failing
    assert.deepEqual(seen, ['flush of 2 ended', 'result', 'result', 'flush of 1 ended', 'error'])
  })

  it('runs no more batches at a time than allowed, in order', async () => {
    const {queue, sizes, answer} = promptQueue({flushesMax: 2})
    const added = [1, 2, 3, 4, 5, 6, 7, 8].map((item) => queue.add(item))
    await nextTurn()
    assert.deepEqual(sizes(), [3, 3])
    await answer(0)
    assert.deepEqual(sizes(), [3, 3, 2])
    await answer(1)
    await answer(2)
    assert.deepEqual(await Promise.all(added), [1, 2, 3, 4, 5, 6, 7, 8])
  })

  it('a batch takes only the first items that may share it', async () => {
    const shared = (items: readonly unknown[]) => Math.max(1, items.indexOf('alone'))
    const {queue, sizes, answer} = promptQueue({shared})
    const added = ['a', 'b', 'alone', 'c'].map((item) => queue.add(item))
    await nextTurn()
    for (const index of [0, 1, 2]) await answer(index)
    assert.deepEqual(sizes(), [2, 1, 1])
    assert.deepEqual(await Promise.all(added), ['a', 'b', 'alone', 'c'])
  })

  it('an error as a result rejects only its item, and a failed batch only its own items', async () => {
    const {queue, answer, die} = promptQueue({flushesMax: 2})
    const added = Promise.allSettled([1, new Error('refused'), 3, 4].map((item) => queue.add(item)))
    await nextTurn()
    await answer(0)
    die(1)
    const statuses = (await added).map(({status}) => status)
    assert.deepEqual(statuses, ['fulfilled', 'rejected', 'fulfilled', 'rejected'])
  })

  it('draining resolves every accepted item and rejects new ones', async () => {
    const {queue, answer} = promptQueue({refusal: (why) => new Error(`it is ${why}`)})
    const accepted = queue.add(1)
    let isDrained = false
    const draining = queue.drain().then(() => (isDrained = true))
    await assert.rejects(queue.add(2), /it is closed/)
    await nextTurn()
    assert.equal(isDrained, false)
    await answer(0)
    assert.equal(await accepted, 1)
    await draining
    await promptQueue().queue.drain()
  })

  it('items beyond the limit of waiting items are rejected', async () => {
    const {queue, sizes} = promptQueue({waitingMax: 4, refusal: (why) => new Error(`it is ${why}`)})
    for (const item of [1, 2, 3, 4]) void queue.add(item)
    await assert.rejects(queue.add(5), /it is full/)
    await nextTurn()
    assert.deepEqual(sizes(), [3])
    void queue.add(6)
  })
})

describe('a batch queue with urgent items', () => {
  it('lets them overtake, and leaves a share of each batch to the others', async () => {
    const batches: (readonly number[])[] = []
    const queue = new BatchQueue<number, number>({
      itemsMax: 4,
      isUrgent: (item) => item >= 100,
      flush: async (items) => {
        batches.push(items)
        return items
      },
    })
    const items = [0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103, 104]
    const results = await Promise.all(items.map((item) => queue.add(item)))
    assert.deepEqual(results, items)
    assert.deepEqual(batches, [[0, 100, 101, 102], [1, 2, 103, 104], [3, 4, 5, 6], [7]])
  })
})
