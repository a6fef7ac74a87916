/** Write queue of the PostgreSQL store, and the pool of sessions below it: batches, limits and timeouts. */
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

/** Commits at `answer`; the result of each write is its first argument. */
class ManualCommitter {
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

function queueOf(batchMax = 3) {
  const committer = new ManualCommitter()
  const commits: number[] = []
  const committed = (items: number) => void commits.push(items)
  const queue = new WriteQueue({committer, clock: new VirtualClock(), batchMax, committed})
  const submit = (answer: unknown) => queue.write({name: 'submit', input: [answer]})
  return {committer, commits, queue, submit}
}

describe('a write queue', () => {
  it('writes requested during a transaction share the next one, in order', async () => {
    const {committer, commits, submit} = queueOf()
    const writes = [1, 2, 3, 4, 5].map(submit)
    await nextTurn()
    assert.deepEqual(committer.sizes, [3])
    await committer.answer()
    assert.deepEqual(committer.sizes, [3, 2])
    await committer.answer()
    assert.deepEqual(await Promise.all(writes), [1, 2, 3, 4, 5])
    assert.deepEqual(commits, [3, 2])
  })

  it('a write that cannot share has its own transaction', async () => {
    const {committer, queue, submit} = queueOf()
    const answers = Promise.all([
      submit(1),
      queue.write({name: 'deleteJob', input: ['a']}),
      submit(2),
      submit(3),
    ])
    await nextTurn()
    for (const _ of [1, 2, 3]) await committer.answer()
    assert.deepEqual(committer.sizes, [1, 1, 2])
    assert.deepEqual(await answers, [1, 'a', 2, 3])
  })

  it('the items of merged lists are limited, and a longer list has its own transaction', async () => {
    const {committer, queue} = queueOf(100)
    const list = (length: number) => queue.write({name: 'finish', input: [Array.from({length})]})
    const answers = Promise.all([list(600), list(400), list(1), list(5_000)])
    await nextTurn()
    for (const _ of [1, 2, 3]) await committer.answer()
    assert.deepEqual(committer.sizes, [2, 1, 1])
    await answers
  })

  it('a failed write rejects only its own caller', async () => {
    const {committer, submit} = queueOf()
    const answers = Promise.allSettled([submit(1), submit(new StoreUnavailable('away')), submit(3)])
    await nextTurn()
    await committer.answer()
    const statuses = (await answers).map(({status}) => status)
    assert.deepEqual(statuses, ['fulfilled', 'rejected', 'fulfilled'])
  })

  it('draining resolves every accepted write and rejects new ones', async () => {
    const {committer, queue, submit} = queueOf()
    const accepted = submit(1)
    let isDrained = false
    const draining = queue.drain().then(() => (isDrained = true))
    await assert.rejects(submit(2), StoreUnavailable)
    await nextTurn()
    assert.equal(isDrained, false)
    await committer.answer()
    assert.equal(await accepted, 1)
    await draining
    await queueOf().queue.drain()
  })

  it('writes beyond the limit of the queue are rejected as unavailable', async () => {
    const {queue, submit} = queueOf()
    const writes = Array.from({length: 20_000}, () => submit(0))
    await assert.rejects(submit(0), StoreUnavailable)
    void Promise.allSettled(writes)
    void queue
  })
})

/** A session without a connection. */
function fakeSession(): Session & {isOpen: boolean} {
  const session = {
    isOpen: true,
    close: async () => void (session.isOpen = false),
    destroy: () => void (session.isOpen = false),
  }
  // The pool uses only these members.
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
  const pool = new SessionPool({primary, kind, sessionsMax, clock})
  return {pool, opened, primary, clock}
}

/** Keeps a session of the pool until `release`. */
function borrow(pool: SessionPool) {
  let release: () => void = () => {}
  const lent = new Promise<Session>((resolve, reject) => {
    pool
      .use((session) => {
        resolve(session)
        return new Promise<void>((done) => (release = done))
      })
      .catch(reject)
  })
  return {lent, release: () => release()}
}

describe('a pool of sessions', () => {
  it('a session has one user at a time, and no more than the maximum are opened', async () => {
    const {pool, opened} = poolOf(2)
    const [one, two, three] = [borrow(pool), borrow(pool), borrow(pool)]
    const first = await one.lent
    assert.notEqual(first, await two.lent)
    one.release()
    assert.equal(await three.lent, first)
    assert.equal(opened.length, 2)
    two.release()
    three.release()
    await pool.close()
    assert(opened.every(({isOpen}) => !isOpen))
  })

  it('broken sessions, and those older than a doubt about the primary, are not used again', async () => {
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

  it('waiting for a session times out, and a closed pool rejects', async () => {
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
    holder.release()
    await closing
    assert.equal(clock.waiting, 0)
  })

  it('a failed connect frees its place in the pool', async () => {
    const {pool, primary} = poolOf(1)
    const {connect} = primary
    primary.connect = () => Promise.reject(new Error('no answer'))
    await assert.rejects(
      pool.use(async () => {}),
      {message: 'no answer'},
    )
    primary.connect = connect
    await pool.use(async () => {})
    await pool.close()
  })
})
