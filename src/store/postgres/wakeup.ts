/**
 * Doorbells across servers: a ring is heard here at once and by the others through NOTIFY, many rings as
 * one. It has a connection of its own, which it replaces by itself; while that is gone, and for whatever
 * gets lost, the polls behind the bells find the work. A ring never fails and nobody waits for it.
 */
import type {Topic, Clock, Random, Timer, Wakeup} from '../../ports/runtime.ts'
import type {Session, SessionKind} from './connection.ts'
import type {Primary} from './primary.ts'

/** A bell that is missing here would ring on its own server only, which the compiler notices. */
const HEARD: Readonly<Record<Topic, true>> = {launch: true, run: true, cancel: true, lead: true}
// The keys of an object are texts to the compiler, whatever it is made of.
const BELLS = Object.keys(HEARD) as readonly Topic[]
/** Rings within this are one notification: a notification takes a lock that all of a database share. */
const COALESCE_MS = 5
/** After a failed try the next one waits longer, up to the second. */
const RECONNECT_MIN_MS = 250
const RECONNECT_MAX_MS = 5_000
/** An idle connection is asked whether it is still there: a half-open one would stay deaf for ever. */
const ASK_EVERY_MS = 5_000

const LISTENING: SessionKind = {purpose: 'bells', limits: 'short', byKeys: false}

export interface PostgresWakeupOptions {
  readonly primary: Pick<Primary, 'connect' | 'host'>
  /** Part of the channel's name: stores in one database do not hear each other. */
  readonly schema: string
  readonly clock: Clock
  readonly random: Random
  /** Where the ones of this process ring and listen. */
  readonly local: Wakeup
}

export interface ClosableWakeup extends Wakeup {
  /** Stops hearing the others and being heard by them. */
  close(): Promise<void>
}

/** Starts at once, and keeps trying for as long as it lives. */
export function postgresWakeup(options: PostgresWakeupOptions): ClosableWakeup {
  const line = new Line(options)
  line.open()
  const {local} = options
  return {
    notify: (bell) => {
      local.notify(bell)
      line.send(bell)
    },
    subscribe: (bell, heard) => local.subscribe(bell, heard),
    close: () => line.close(),
  }
}

/** The connection to the others. */
class Line {
  readonly #options: PostgresWakeupOptions
  readonly #channel: string
  /** Tells own notifications from those of others. */
  readonly #sender: string
  readonly #toSend = new Set<Topic>()
  #session: Session | null = null
  #sending: Timer | null = null
  #timer: Timer | null = null
  #failures = 0
  #opening: Promise<void> | null = null
  /** Settles when the newest question to the connection was answered; never rejects. */
  #lastAnswer: Promise<unknown> = Promise.resolve()
  #isClosed = false

  constructor(options: PostgresWakeupOptions) {
    this.#options = options
    this.#channel = `belfry_${options.schema}`
    this.#sender = options.random.id()
  }

  open(): void {
    this.#opening = this.#connect().finally(() => (this.#opening = null))
  }

  send(bell: Topic): void {
    if (this.#isClosed) return
    this.#toSend.add(bell)
    this.#sending ??= this.#options.clock.after(COALESCE_MS, () => {
      void this.#inTurn(() => this.#notify())
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#sending?.cancel()
    this.#timer?.cancel()
    await this.#opening
    await this.#session?.close()
  }

  async #connect(): Promise<void> {
    const {primary, clock, local} = this.#options
    try {
      const session = await primary.connect(LISTENING)
      this.#session = session
      session.client.on('notification', ({payload}) => this.#heard(payload ?? ''))
      session.client.on('end', () => this.#lost(session))
      await this.#inTurn(() => session.run(`LISTEN "${this.#channel}"`))
      this.#failures = 0
      this.#askLater(session)
      // Whatever was rung while this server was deaf.
      for (const bell of BELLS) local.notify(bell)
    } catch {
      // Polling goes on meanwhile; what is wrong with the store, its readers and writers say.
      this.#failures += 1
      this.#session?.destroy()
      this.#session = null
      if (this.#isClosed) return
      const waitMs = Math.min(RECONNECT_MAX_MS, RECONNECT_MIN_MS * 2 ** Math.min(this.#failures, 8))
      this.#timer = clock.after(waitMs, () => this.open())
    }
  }

  #lost(session: Session): void {
    if (this.#session !== session || this.#isClosed || this.#opening !== null) return
    this.#session = null
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(RECONNECT_MIN_MS, () => this.open())
  }

  #askLater(session: Session): void {
    this.#timer = this.#options.clock.after(ASK_EVERY_MS, () => void this.#ask(session))
  }

  async #ask(session: Session): Promise<void> {
    if (this.#session !== session) return
    try {
      const [result] = await this.#inTurn(() =>
        session.run('SELECT pg_is_in_recovery() AS is_standby'),
      )
      // A standby sends no notifications, and at a primary that was replaced nobody rings.
      const isStandby = result?.rows[0]?.['is_standby'] as unknown as boolean
      if (isStandby || session.host !== this.#options.primary.host) session.destroy()
      else if (!this.#isClosed) this.#askLater(session)
    } catch {
      session.destroy()
      this.#lost(session)
    }
  }

  /** A connection takes one question at a time; rings meanwhile go together into the next. */
  #inTurn<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    const answer = this.#lastAnswer.then(ask)
    this.#lastAnswer = Promise.allSettled([answer])
    return answer
  }

  async #notify(): Promise<void> {
    this.#sending = null
    const bells = [...this.#toSend]
    this.#toSend.clear()
    const session = this.#session
    if (session === null || bells.length === 0) return
    try {
      const payload = [this.#sender, ...bells].join(' ')
      await session.rows('SELECT pg_notify($1, $2)', [this.#channel, payload], 'belfry_notify')
    } catch {
      // The others poll.
      session.destroy()
    }
  }

  #heard(payload: string): void {
    const [sender, ...rung] = payload.split(' ')
    if (sender === this.#sender) return
    for (const bell of BELLS) if (rung.includes(bell)) this.#options.local.notify(bell)
  }
}
