/**
 * A few sessions on the primary, lent one at a time. Idle ones that were opened before the primary came
 * into doubt are closed instead of lent. Bounded in sessions, in how many wait and in how long.
 */
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import type {Primary} from './primary.ts'
import type {Session, SessionKind} from './connection.ts'

/** A caller that waited this long is told, so that it can tell its own. */
const LEND_LIMIT_MS = 3_000
/** Beyond this the store cannot keep up, and waiting longer would only cost memory. */
const WAITING_MAX = 2_000

interface Waiting {
  readonly proceed: () => void
  readonly refuse: (error: Error) => void
}

/** What a pool needs of the primary, and of its sessions. */
export type Lender = Pick<Primary, 'connect' | 'generation'>

export class SessionPool {
  readonly #primary: Lender
  readonly #kind: SessionKind
  readonly #sessionsMax: number
  readonly #clock: Pick<Clock, 'after'>
  /** The one used last is lent first; with the generation it was opened in. */
  readonly #idle: {readonly session: Session; readonly generation: number}[] = []
  readonly #generations = new WeakMap<Session, number>()
  readonly #waiting = new Set<Waiting>()
  /** Places taken: sessions lent or being opened. */
  #lent = 0
  #isClosed = false
  #allBack: (() => void) | null = null

  constructor(
    primary: Lender,
    kind: SessionKind,
    sessionsMax: number,
    clock: Pick<Clock, 'after'>,
  ) {
    this.#primary = primary
    this.#kind = kind
    this.#sessionsMax = sessionsMax
    this.#clock = clock
  }

  /** Runs `work` with a session of its own. Throws `NoPrimary`, `StoreUnavailable`, or what `work` throws. */
  async use<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    await this.#place()
    let session: Session | null = null
    try {
      session = await this.#session()
      return await work(session)
    } finally {
      this.#giveBack(session)
    }
  }

  /** Closes what is idle now and the rest when it comes back; resolves when all are closed. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const {refuse} of this.#waiting) refuse(new StoreUnavailable('the store is closed'))
    this.#waiting.clear()
    const closings = this.#idle.splice(0).map(({session}) => session.close())
    if (this.#lent > 0) await new Promise<void>((resolve) => (this.#allBack = resolve))
    await Promise.all(closings)
  }

  async #place(): Promise<void> {
    if (this.#isClosed) throw new StoreUnavailable('the store is closed')
    if (this.#lent < this.#sessionsMax) {
      this.#lent += 1
      return
    }
    if (this.#waiting.size >= WAITING_MAX) throw new StoreUnavailable('too many wait for the store')
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
      const timer = this.#clock.after(LEND_LIMIT_MS, () => {
        this.#waiting.delete(waiting)
        reject(new StoreUnavailable('the store is too busy'))
      })
      this.#waiting.add(waiting)
    })
  }

  async #session(): Promise<Session> {
    const {generation} = this.#primary
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (idle.session.isOpen && idle.generation === generation) return idle.session
      void idle.session.close()
    }
    const session = await this.#primary.connect(this.#kind)
    this.#generations.set(session, generation)
    return session
  }

  #giveBack(session: Session | null): void {
    const generation = session === null ? undefined : this.#generations.get(session)
    if (session?.isOpen === true && generation !== undefined && !this.#isClosed)
      this.#idle.push({session, generation})
    else void session?.close()
    const [next] = this.#waiting
    if (next !== undefined) {
      // The place goes on to whoever waited longest.
      this.#waiting.delete(next)
      next.proceed()
      return
    }
    this.#lent -= 1
    if (this.#lent === 0) this.#allBack?.()
  }
}
