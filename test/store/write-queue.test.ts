/** Group commit of the SQLite store: batches, their order, and results after the death of the writer. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {OutcomeUnknown} from '../../src/ports/store-errors.ts'
import type {WriteAnswer, WriteRequest} from '../../src/store/sqlite/engine.ts'
import {WriteQueue, type Committer} from '../../src/store/sqlite/writer.ts'

/** Commits at `answer`. */
class ManualCommitter implements Committer {
  readonly batches: (readonly WriteRequest[])[] = []
  readonly #answers: ((answers: readonly WriteAnswer[]) => void)[] = []
  readonly #deaths: ((error: Error) => void)[] = []
  closed = false

  commit(batch: readonly WriteRequest[]): Promise<readonly WriteAnswer[]> {
    this.batches.push(batch)
    return new Promise((resolve, reject) => {
      this.#answers.push(resolve)
      this.#deaths.push(reject)
    })
  }

  async close(): Promise<void> {
    this.closed = true
  }

  answer(index: number): void {
    this.#answers[index]!(this.batches[index]!.map(({now}) => ({ok: true, result: now})))
  }

  die(index: number): void {
    this.#deaths[index]!(new OutcomeUnknown('the writer died'))
  }

  get sizes(): number[] {
    return this.batches.map(({length}) => length)
  }
}

function queueOf(committer: Committer, batchMax = 3) {
  const commits: number[] = []
  const committed = (items: number) => void commits.push(items)
  const queue = new WriteQueue(committer, {clock: {monotonicMs: () => 0}, batchMax, committed})
  const write = (now: number) => queue.write({name: 'probe', input: [], now})
  return {queue, write, commits}
}

/** Lets everything that is ready run. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve))

describe('the SQLite write queue', () => {
  it('writes requested together are sent together, at most two batches at a time, in order', async () => {
    const committer = new ManualCommitter()
    const {write, commits} = queueOf(committer)
    const writes = [1, 2, 3, 4, 5, 6, 7, 8].map(write)
    await settle()
    assert.deepEqual(committer.sizes, [3, 3])
    committer.answer(0)
    await settle()
    assert.deepEqual(committer.sizes, [3, 3, 2])
    committer.answer(1)
    committer.answer(2)
    assert.deepEqual(await Promise.all(writes), [1, 2, 3, 4, 5, 6, 7, 8])
    const order = committer.batches.flat().map(({now}) => now)
    assert.deepEqual(order, [1, 2, 3, 4, 5, 6, 7, 8])
    assert.deepEqual(commits, [3, 3, 2])
  })

  it('a dead writer leaves only the batch it had received with an unknown outcome', async () => {
    const committer = new ManualCommitter()
    const {write} = queueOf(committer)
    const writes = Promise.allSettled([1, 2, 3, 4].map(write))
    await settle()
    committer.die(0)
    committer.answer(1)
    const results = await writes
    assert.deepEqual(
      results.map((result) => (result.status === 'rejected' ? result.reason.name : result.value)),
      ['OutcomeUnknown', 'OutcomeUnknown', 'OutcomeUnknown', 4],
    )
  })

  it('draining resolves every accepted write and rejects new ones', async () => {
    const committer = new ManualCommitter()
    const {queue, write} = queueOf(committer)
    const accepted = write(1)
    let drained = false
    const draining = queue.drain().then(() => (drained = true))
    await assert.rejects(write(2), {name: 'StoreUnavailable'})
    await settle()
    assert.equal(drained, false)
    committer.answer(0)
    assert.equal(await accepted, 1)
    await draining
    assert.equal(committer.closed, false, 'draining does not close the writer')
  })

  it('writes beyond the limit of the queue are rejected as unavailable', async () => {
    const committer = new ManualCommitter()
    const {write} = queueOf(committer)
    const writes = Array.from({length: 20_010}, (_, index) => write(index))
    const refused = Promise.allSettled(writes.slice(20_000))
    for (const {status} of await refused) assert.equal(status, 'rejected')
    await settle()
    assert.deepEqual(committer.sizes, [3, 3])
    await assert.doesNotReject(Promise.race([write(1), settle()]))
  })
})
