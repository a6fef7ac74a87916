/**
 * Wakeups across servers: a notification reaches this process at once and the others through NOTIFY; several
 * within a few milliseconds are sent as one. Uses a connection of its own and reconnects by itself. While it
 * is disconnected, and for lost notifications, polling finds the work. A notification never fails and never
 * waits.
 */
import type {Topic, Clock, Random, Timer, Wakeup} from '../../ports/runtime.ts'
import type {Session, SessionKind} from './connection.ts'
import type {Primary} from './primary.ts'

/** Every topic; the compiler reports a missing one, which would not reach other servers. */
const ALL_TOPICS: Readonly<Record<Topic, true>> = {
  launch: true,
  run: true,
  cancel: true,
  lead: true,
  burst: true,
  access: true,
  notices: true,
}
// `Object.keys` returns `string[]` for every type.
const TOPICS = Object.keys(ALL_TOPICS) as readonly Topic[]
/** Notifications within this time are sent as one: NOTIFY takes a lock of the whole database. */
const COALESCE_MS = 5
/** Exponential backoff of reconnects, from the first to the second. */
const RECONNECT_MIN_MS = 250
const RECONNECT_MAX_MS = 5_000
/** An idle connection is checked this often: a half-open one would never receive anything. */
const CHECK_EVERY_MS = 5_000

const LISTENER: SessionKind = {purpose: 'notifications', limits: 'short', indexScansOnly: false}

export interface PostgresWakeupOptions {
  readonly primary: Pick<Primary, 'connect' | 'host'>
  /** Part of the channel's name, which separates several stores in one database. */
  readonly schema: string
  readonly clock: Clock
  readonly random: Random
  /** The wakeup within this process. */
  readonly local: Wakeup
}

export interface ClosableWakeup extends Wakeup {
  /** Stops exchanging notifications with other servers. */
  close(): Promise<void>
}

/** Connects at once, and reconnects until it is closed. */
export function postgresWakeup(options: PostgresWakeupOptions): ClosableWakeup {
  const channel = new Channel(options)
  channel.open()
  const {local} = options
  return {
    notify: (topic) => {
      local.notify(topic)
      channel.send(topic)
    },
    subscribe: (topic, listener) => local.subscribe(topic, listener),
    close: () => channel.close(),
  }
}

/** The channel to the other servers. */
class Channel {
  readonly #options: PostgresWakeupOptions
  readonly #channel: string
  /** Identifies own notifications, which the server also sends back. */
  readonly #sender: string
  readonly #toSend = new Set<Topic>()
  #session: Session | null = null
  #sending: Timer | null = null
  #timer: Timer | null = null
  #failures = 0
  #opening: Promise<void> | null = null
  /** Settles with the reply to the newest request on the connection; never rejects. */
  #lastReply: Promise<unknown> = Promise.resolve()
  #isClosed = false

  constructor(options: PostgresWakeupOptions) {
    this.#options = options
    this.#channel = `belfry_${options.schema}`
    this.#sender = options.random.id()
  }

  open(): void {
    this.#opening = this.#connect().finally(() => (this.#opening = null))
  }

  send(topic: Topic): void {
    if (this.#isClosed) return
    this.#toSend.add(topic)
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
      const session = await primary.connect(LISTENER)
      this.#session = session
      session.client.on('notification', ({payload}) => this.#receive(payload ?? ''))
      session.client.on('end', () => this.#lost(session))
      await this.#inTurn(() => session.run(`LISTEN "${this.#channel}"`))
      this.#failures = 0
      this.#checkLater(session)
      // Notifications may have been missed while disconnected. A missed burst needs no work.
      for (const topic of TOPICS) if (topic !== 'burst') local.notify(topic)
    } catch {
      // Polling continues meanwhile; readers and writers report errors of the store.
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

  #checkLater(session: Session): void {
    this.#timer = this.#options.clock.after(CHECK_EVERY_MS, () => void this.#check(session))
  }

  async #check(session: Session): Promise<void> {
    if (this.#session !== session) return
    try {
      const [result] = await this.#inTurn(() =>
        session.run('SELECT pg_is_in_recovery() AS is_standby'),
      )
      // A standby sends no notifications, and no server notifies on a replaced primary.
      const isStandby = result?.rows[0]?.['is_standby'] as unknown as boolean
      if (isStandby || session.host !== this.#options.primary.host) session.destroy()
      else if (!this.#isClosed) this.#checkLater(session)
    } catch {
      session.destroy()
      this.#lost(session)
    }
  }

  /** Sends one request at a time; topics notified meanwhile are sent together with the next one. */
  #inTurn<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    const answer = this.#lastReply.then(ask)
    this.#lastReply = Promise.allSettled([answer])
    return answer
  }

  async #notify(): Promise<void> {
    this.#sending = null
    const topics = [...this.#toSend]
    this.#toSend.clear()
    const session = this.#session
    if (session === null || topics.length === 0) return
    try {
      const payload = [this.#sender, ...topics].join(' ')
      await session.rows('SELECT pg_notify($1, $2)', [this.#channel, payload], 'belfry_notify')
    } catch {
      // The other servers find the work by polling.
      session.destroy()
    }
  }

  #receive(payload: string): void {
    const [sender, ...received] = payload.split(' ')
    if (sender === this.#sender) return
    for (const topic of TOPICS) if (received.includes(topic)) this.#options.local.notify(topic)
  }
}
