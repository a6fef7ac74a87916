/** A lane of writes, and the pool of sessions below it: what goes together, what waits, and for how long. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {StoreUnavailable} from '../../../src/ports/store-errors.ts'
import type {Outcome} from '../../../src/store/postgres/commit.ts'
import {WriteQueue} from '../../../src/store/postgres/write-queue.ts'
import type {Session} from '../../../src/store/postgres/connection.ts'
import {SessionPool, type Lender} from '../../../src/store/postgres/pool.ts'
import type {Write} from '../../../src/store/postgres/write-plan.ts'
import {VirtualClock} from '../../support/virtual-clock.ts'

/** Commits when told to; each write is answered by its first input. */
class HeldCommitter {
  readonly batches: (readonly Write[])[] = []
  #proceed: (() => void)[] = []

  async commit(writes: readonly Write[]): Promise<Map<Write, Outcome>> {
    this.batches.push(writes)
    await new Promise<void>((resolve) => this.#proceed.push(resolve))
    return new Map(
      writes.map((write): [Write, Outcome] => {
        const [result] = write.input
        if (result instanceof Error) return [write, {ok: false, error: result}]
        return [write, {ok: true, result}]
      }),
    )
  }

  async answer(): Promise<void> {
    this.#proceed.shift()!()
    await nextTurn()
  }

  get sizes(): number[] {
    return this.batches.map(({length}) => length)
  }
}

function laneOf(batchMax = 3) {
  const committer = new HeldCommitter()
  const commits: number[] = []
  const committed = (items: number) => void commits.push(items)
  const lane = new WriteQueue({committer, clock: new VirtualClock(), batchMax, committed})
  const submit = (answer: unknown) => lane.write({name: 'submit', input: [answer]})
  return {committer, commits, lane, submit}
}

describe('a lane', () => {
  it('takes what came meanwhile together, one transaction at a time, in order', async () => {
    const {committer, commits, submit} = laneOf()
    const writes = [1, 2, 3, 4, 5].map(submit)
    await nextTurn()
    assert.deepEqual(committer.sizes, [3])
    await committer.answer()
    assert.deepEqual(committer.sizes, [3, 2])
    await committer.answer()
    assert.deepEqual(await Promise.all(writes), [1, 2, 3, 4, 5])
    assert.deepEqual(commits, [3, 2])
  })

  it('gives a write that shares with nobody a transaction of its own', async () => {
    const {committer, lane, submit} = laneOf()
    const answers = Promise.all([
      submit(1),
      lane.write({name: 'deleteJob', input: ['a']}),
      submit(2),
      submit(3),
    ])
    await nextTurn()
    for (const _ of [1, 2, 3]) await committer.answer()
    assert.deepEqual(committer.sizes, [1, 1, 2])
    assert.deepEqual(await answers, [1, 'a', 2, 3])
  })

  it('counts the items of lists, and lets a long one through alone', async () => {
    const {committer, lane} = laneOf(100)
    const list = (length: number) => lane.write({name: 'finish', input: [Array.from({length})]})
    const answers = Promise.all([list(600), list(400), list(1), list(5_000)])
    await nextTurn()
    for (const _ of [1, 2, 3]) await committer.answer()
    assert.deepEqual(committer.sizes, [2, 1, 1])
    await answers
  })

  it('tells each caller of its own write only', async () => {
    const {committer, submit} = laneOf()
    const answers = Promise.allSettled([submit(1), submit(new StoreUnavailable('away')), submit(3)])
    await nextTurn()
    await committer.answer()
    const statuses = (await answers).map(({status}) => status)
    assert.deepEqual(statuses, ['fulfilled', 'rejected', 'fulfilled'])
  })

  it('answers everything accepted before it is drained, and accepts nothing after', async () => {
    const {committer, lane, submit} = laneOf()
    const accepted = submit(1)
    let isDrained = false
    const draining = lane.drain().then(() => (isDrained = true))
    await assert.rejects(submit(2), StoreUnavailable)
    await nextTurn()
    assert.equal(isDrained, false)
    await committer.answer()
    assert.equal(await accepted, 1)
    await draining
    await laneOf().lane.drain()
  })

  it('refuses when too many wait, instead of growing', async () => {
    const {lane, submit} = laneOf()
    const writes = Array.from({length: 20_000}, () => submit(0))
    await assert.rejects(submit(0), StoreUnavailable)
    void Promise.allSettled(writes)
    void lane
  })
})

/** A session that only knows whether it is open. */
function fakeSession(): Session & {isOpen: boolean} {
  const session = {
    isOpen: true,
    close: async () => void (session.isOpen = false),
    destroy: () => void (session.isOpen = false),
  }
  // The pool asks nothing else of it.
  return session as unknown as Session & {isOpen: boolean}
}

function poolOf(sessionsMax: number) {
  const opened: Session[] = []
  const clock = new VirtualClock()
  const primary = {
    generation: 0,
    connect: async () => {
      opened.push(fakeSession())
      return opened.at(-1)!
    },
  } satisfies Lender
  const kind = {purpose: 'writes', limits: 'short', byKeys: true} as const
  const pool = new SessionPool(primary, kind, sessionsMax, clock)
  return {pool, opened, primary, clock}
}

/** Lends a session until it is let go. */
function borrow(pool: SessionPool) {
  let letGo: () => void = () => {}
  const lent = new Promise<Session>((resolve, reject) => {
    pool
      .use((session) => {
        resolve(session)
        return new Promise<void>((done) => (letGo = done))
      })
      .catch(reject)
  })
  return {lent, letGo: () => letGo()}
}

describe('a pool of sessions', () => {
  it('lends each to one at a time, and opens no more than it may', async () => {
    const {pool, opened} = poolOf(2)
    const [one, two, three] = [borrow(pool), borrow(pool), borrow(pool)]
    const first = await one.lent
    assert.notEqual(first, await two.lent)
    one.letGo()
    assert.equal(await three.lent, first)
    assert.equal(opened.length, 2)
    two.letGo()
    three.letGo()
    await pool.close()
    assert(opened.every(({isOpen}) => !isOpen))
  })

  it('lends none that is broken, or was opened before the primary came into doubt', async () => {
    const {pool, opened, primary} = poolOf(1)
    await pool.use(async (session) => session.destroy())
    await pool.use(async () => {})
    assert.equal(opened.length, 2)
    primary.generation += 1
    await pool.use(async () => {})
    assert.equal(opened.length, 3)
    assert.deepEqual(
      opened.map(({isOpen}) => isOpen),
      [false, false, true],
    )
    await pool.close()
  })

  it('lets nobody wait for ever, and nobody in when it is closed', async () => {
    const {pool, clock} = poolOf(1)
    const holder = borrow(pool)
    await holder.lent
    const late = assert.rejects(
      pool.use(async () => {}),
      StoreUnavailable,
    )
    await nextTurn()
    await clock.advance(3_000)
    await late
    const waiting = assert.rejects(
      pool.use(async () => {}),
      StoreUnavailable,
    )
    await nextTurn()
    const closing = pool.close()
    await waiting
    await assert.rejects(
      pool.use(async () => {}),
      StoreUnavailable,
    )
    holder.letGo()
    await closing
    assert.equal(clock.waiting, 0)
  })

  it('a place is free again when no session could be opened', async () => {
    const {pool, primary} = poolOf(1)
    const {connect} = primary
    primary.connect = () => Promise.reject(new Error('nobody answers'))
    await assert.rejects(
      pool.use(async () => {}),
      {message: 'nobody answers'},
    )
    primary.connect = connect
    await pool.use(async () => {})
    await pool.close()
  })
})
