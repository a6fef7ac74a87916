/** Pool of sessions of the PostgreSQL store: limits, timeouts and broken sessions. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {StoreUnavailable} from '../../../src/ports/store-errors.ts'
import type {Session} from '../../../src/store/postgres/connection.ts'
import {SessionPool, type SessionSource} from '../../../src/store/postgres/pool.ts'
import {VirtualClock} from '../../support/virtual-clock.ts'

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
  } satisfies SessionSource
  const kind = {purpose: 'writes', limits: 'short', indexScansOnly: true} as const
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
