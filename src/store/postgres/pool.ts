/**
 * A pool of sessions on the primary. Idle sessions that were opened before the primary came into doubt are
 * closed instead of reused. Limits the sessions, the waiting callers and the wait.
 */
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import type {Primary} from './primary.ts'
import type {Session, SessionKind} from './connection.ts'

/** A caller waits this long at most, and then gets an error within its own deadline. */
const WAIT_LIMIT_MS = 3_000
/** Limit of waiting callers: with more the store cannot keep up, and a longer queue would only use memory. */
const WAITING_MAX = 2_000

interface Waiting {
  readonly proceed: () => void
  readonly refuse: (error: Error) => void
}

/** The part of `Primary` that a pool uses. */
export type SessionSource = Pick<Primary, 'connect' | 'generation'>

export interface PoolOptions {
  readonly primary: SessionSource
  readonly kind: SessionKind
  readonly sessionsMax: number
  /** Callers that may wait for a session; further ones are refused at once. */
  readonly waitingMax?: number | undefined
  readonly clock: Pick<Clock, 'after'>
  /** Called when a session has ended, for whatever reason. */
  readonly onSessionEnd?: () => void
}

export class SessionPool {
  readonly #options: PoolOptions
  /** Last in, first out; each with the generation in which it was opened. */
  readonly #idle: {readonly session: Session; readonly generation: number}[] = []
  readonly #generations = new WeakMap<Session, number>()
  readonly #waiting = new Set<Waiting>()
  /** Sessions in use or being opened. */
  #inUse = 0
  #isClosed = false
  #onAllReturned: (() => void) | null = null

  constructor(options: PoolOptions) {
    this.#options = options
  }

  /** Runs `work` with a session of its own. Throws `NoPrimary`, `StoreUnavailable`, or what `work` throws. */
  async use<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    await this.#acquire()
    let session: Session | null = null
    try {
      session = await this.#session()
      return await work(session)
    } finally {
      this.#return(session)
    }
  }

  /** Closes idle sessions now and the others when they are returned; resolves when all are closed. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const {refuse} of this.#waiting) refuse(new StoreUnavailable('the store is closed'))
    this.#waiting.clear()
    const closings = this.#idle.splice(0).map(({session}) => session.close())
    if (this.#inUse > 0) await new Promise<void>((resolve) => (this.#onAllReturned = resolve))
    await Promise.all(closings)
  }

  async #acquire(): Promise<void> {
    const {sessionsMax, waitingMax = WAITING_MAX, clock} = this.#options
    if (this.#isClosed) throw new StoreUnavailable('the store is closed')
    if (this.#inUse < sessionsMax) {
      this.#inUse += 1
      return
    }
    if (this.#waiting.size >= waitingMax)
      throw new StoreUnavailable('too many requests wait for the store')
    await new Promise<void>((resolve, reject) => {
      const waiting = {
        proceed: () => {
          timer.cancel()
          resolve()
        },
        refuse: (error: Error) => {
          timer.cancel()
          reject(error)
        },
      }
      const timer = clock.after(WAIT_LIMIT_MS, () => {
        this.#waiting.delete(waiting)
        reject(new StoreUnavailable('the store is too busy'))
      })
      this.#waiting.add(waiting)
    })
  }

  async #session(): Promise<Session> {
    const {primary, kind, onSessionEnd} = this.#options
    const {generation} = primary
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (idle.session.isOpen && idle.generation === generation) return idle.session
      void idle.session.close()
    }
    const session = await primary.connect(kind)
    this.#generations.set(session, generation)
    if (onSessionEnd !== undefined) session.client.once('end', onSessionEnd)
    return session
  }

  #return(session: Session | null): void {
    const generation = session === null ? undefined : this.#generations.get(session)
    if (session?.isOpen === true && generation !== undefined && !this.#isClosed)
      this.#idle.push({session, generation})
    else void session?.close()
    const [next] = this.#waiting
    if (next !== undefined) {
      // The longest waiting caller takes the place.
      this.#waiting.delete(next)
      next.proceed()
      return
    }
    this.#inUse -= 1
    if (this.#inUse === 0) this.#onAllReturned?.()
  }
}
