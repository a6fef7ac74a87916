/**
 * An agent's link to its cluster: one connection to any server, made again for ever. It introduces the agent,
 * matches answers to questions, passes on the server's rings, and goes to another server when this one is
 * silent or cut off from the store itself. What is asked while there is no connection waits a little for one.
 */
import type {Clock, Random, Timer} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {
  type AnswerMessage,
  type AnswerOf,
  type BodyOf,
  decodeServerMessage,
  type FailedMessage,
  type HelloMessage,
  isSpoken,
  PROTOCOL,
  type QuestionKind,
  type ServerMessage,
} from '../protocol.ts'
import {type Asking, Questions} from './rpc.ts'
import {type AgentSocket, type Closed, type Dial, lastingRefusal} from './socket.ts'

export interface LinkOptions {
  readonly dial: Dial
  /** Servers of one cluster; not empty. */
  readonly urls: readonly string[]
  readonly clock: Clock
  readonly random: Random
  /** What the agent says of itself and has in hand, at this moment. */
  readonly introduction: () => Pick<HelloMessage, 'node' | 'status' | 'held' | 'claiming'>
  /** `null` before the first cluster was met. */
  readonly clusterId: string | null
  /** Makes durable which cluster this agent belongs to; waited for before anything else is said. */
  readonly remember: (clusterId: string) => Promise<void>
  /** A heartbeat not acknowledged for this long: the server is gone, or its store is. */
  readonly silenceMs: number
  readonly rang: (bell: 'run' | 'cancel') => void
  /** A server has taken the agent in. */
  readonly joined: (url: string) => void
  /** Why there is no connection, for the log; told once until the next join. */
  readonly report: (sentence: string) => void
  /** What trying again cannot mend; `fenced` = another life of this node replaced it. */
  readonly refused: (sentence: string, kind: 'fenced' | 'other') => void
}

/** From dialling until the server has answered the hello. */
const HANDSHAKE_MS = 5_000
/** A server whose store is slow answers late; longer than that store's own patience. */
const ANSWER_MS = 30_000
/** What is asked without a connection waits for one this long. */
const WAIT_MS = 5_000

interface Connection {
  readonly url: string
  readonly socket: AgentSocket
  readonly questions: Questions
  readonly helloAt: number
  handshake: Timer | null
  welcomed: boolean
}

export class AgentLink implements Asking {
  readonly #options: LinkOptions
  readonly #redial: Redial
  #clusterId: string | null
  #connection: Connection | null = null
  #redialling: Timer | null = null
  #waiting = new Set<(connection: Connection | null) => void>()
  #hasJoined = false
  #isReported = false
  #stopped = false
  #isLeaving = false
  /** When the newest word was sent that a server has answered from the store. */
  #acknowledgedAt: number

  constructor(options: LinkOptions) {
    this.#options = options
    this.#clusterId = options.clusterId
    this.#redial = new Redial(options.urls, options.random)
    this.#acknowledgedAt = options.clock.monotonicMs()
  }

  start(): void {
    this.#dial()
  }

  /** Closes the connection; nothing is asked or heard any more. Idempotent. */
  stop(): void {
    this.#stopped = true
    this.#redialling?.cancel()
    if (this.#connection !== null) this.#drop(this.#connection)
    this.#tellWaiting(null)
  }

  get isConnected(): boolean {
    return this.#connection?.welcomed === true
  }

  /**
   * For how long no server has acknowledged this agent out of the store. One that answers and cannot reach
   * the store does not count: the cluster hears as little of the agent as if the cable were cut.
   */
  get disconnectedMs(): number {
    return Math.max(0, this.#options.clock.monotonicMs() - this.#acknowledgedAt)
  }

  /** This agent is about to end: what is asked without a connection does not wait for one any more. */
  leaving(): void {
    this.#isLeaving = true
    this.#tellWaiting(null)
  }

  async ask<Kind extends QuestionKind>(kind: Kind, body: BodyOf<Kind>): Promise<AnswerOf<Kind>> {
    const connection = this.#joinedConnection() ?? (await this.#waitForConnection())
    const isBeat = kind === 'beat'
    const answer = await connection.questions.ask(kind, body, {
      waitMs: isBeat ? this.#options.silenceMs : ANSWER_MS,
      late: () => {
        if (isBeat) this.#leave(connection, 'it did not answer a heartbeat')
      },
    })
    // Which answers belong to which question is checked where they are matched.
    return answer as AnswerOf<Kind>
  }

  #joinedConnection(): Connection | null {
    return this.isConnected ? this.#connection : null
  }

  async #waitForConnection(): Promise<Connection> {
    const connection = await new Promise<Connection | null>((resolve) => {
      if (this.#stopped || this.#isLeaving) return resolve(null)
      const timer = this.#options.clock.after(WAIT_MS, () => done(null))
      const done = (found: Connection | null) => {
        timer.cancel()
        this.#waiting.delete(done)
        resolve(found)
      }
      this.#waiting.add(done)
    })
    if (connection === null) throw new StoreUnavailable('no server can be reached')
    return connection
  }

  #tellWaiting(connection: Connection | null): void {
    for (const done of this.#waiting) done(connection)
  }

  #dial(): void {
    if (this.#stopped) return
    const {dial, clock} = this.#options
    const url = this.#redial.url()
    const socket = dial(url, {
      opened: () => this.#introduce(connection),
      heard: (text) => this.#heard(connection, text),
      closed: (why) => this.#closed(connection, why),
    })
    const connection: Connection = {
      url,
      socket,
      questions: new Questions(clock, socket),
      helloAt: clock.monotonicMs(),
      welcomed: false,
      handshake: null,
    }
    this.#connection = connection
    connection.handshake = clock.after(HANDSHAKE_MS, () =>
      this.#leave(connection, 'it did not answer in time'),
    )
  }

  #introduce(connection: Connection): void {
    const hello: HelloMessage = {
      kind: 'hello',
      protocol: PROTOCOL,
      clusterId: this.#clusterId,
      joined: this.#hasJoined,
      ...this.#options.introduction(),
    }
    connection.socket.send(JSON.stringify(hello))
  }

  #heard(connection: Connection, text: string): void {
    if (this.#connection !== connection) return
    const decoded = decodeServerMessage(text)
    if (!decoded.ok) {
      // A later version may say more than this one understands; what is broken is not talked to.
      if (decoded.why === 'malformed') this.#leave(connection, 'it sent what cannot be read')
      return
    }
    const {message} = decoded
    if (message.kind === 'welcome') void this.#welcome(connection, message)
    else if (message.kind === 'refused') this.#refused(connection, message)
    else if (message.kind === 'goodbye') this.#leave(connection, 'it ends')
    else if (message.kind === 'ring') this.#options.rang(message.bell)
    else this.#answered(connection, message)
  }

  async #welcome(
    connection: Connection,
    {clusterId, protocol}: Extract<ServerMessage, {kind: 'welcome'}>,
  ): Promise<void> {
    const {joined, remember, refused} = this.#options
    if (connection.welcomed) return
    if (!isSpoken(protocol)) {
      const what = `${connection.url} speaks version ${protocol} of the agents' protocol`
      return this.#notOurs(connection, `${what}, this agent ${PROTOCOL}; update the older of them.`)
    }
    if (this.#clusterId !== null && this.#clusterId !== clusterId)
      return this.#notOurs(connection, otherCluster(connection.url))
    if (this.#clusterId === null) {
      try {
        await remember(clusterId)
      } catch (error) {
        return refused(`The cluster's id cannot be kept: ${messageOf(error)}.`, 'other')
      }
      this.#clusterId = clusterId
      if (this.#connection !== connection) return
    }
    connection.handshake?.cancel()
    connection.welcomed = true
    this.#hasJoined = true
    this.#isReported = false
    this.#acknowledged(connection.helloAt)
    this.#redial.succeeded()
    joined(connection.url)
    this.#tellWaiting(connection)
  }

  #refused(connection: Connection, {code, message}: {code: string; message: string}): void {
    // A name that another has taken since this agent joined does not come free while it waits.
    if (code === 'fenced' || (code === 'name_taken' && this.#hasJoined)) {
      this.stop()
      return this.#options.refused(message, 'fenced')
    }
    if (code === 'cluster') return this.#notOurs(connection, otherCluster(connection.url))
    if (code === 'protocol' || code === 'name_taken') return this.#notOurs(connection, message)
    this.#leave(connection, message)
  }

  /** Before the first join nothing is at stake and a person is looking; after it, another server may do. */
  #notOurs(connection: Connection, sentence: string): void {
    if (this.#hasJoined) return this.#leave(connection, sentence)
    this.stop()
    this.#options.refused(sentence, 'other')
  }

  #answered(connection: Connection, answer: AnswerMessage | FailedMessage): void {
    const settled = connection.questions.settle(answer)
    if (settled === null) return
    const {kind, sentAt, how} = settled
    if (how === 'foreign') return this.#leave(connection, 'it answers what was not asked')
    if (kind !== 'beat') return
    if (how === 'answered') return this.#acknowledged(sentAt)
    // It hears us and cannot reach the store; another server may.
    if (this.disconnectedMs >= this.#options.silenceMs)
      this.#leave(connection, 'it cannot reach its store')
  }

  #acknowledged(sentAt: number): void {
    this.#acknowledgedAt = Math.max(this.#acknowledgedAt, sentAt)
  }

  #closed(connection: Connection, {reason, status}: Closed): void {
    if (this.#connection !== connection) return
    const lasting = lastingRefusal(status)
    if (lasting !== null) return this.#notOurs(connection, `${connection.url} ${lasting}.`)
    this.#leave(connection, reason)
  }

  /** Gives up this connection and dials another server after a while. */
  #leave(connection: Connection, why: string): void {
    if (this.#connection !== connection) return
    this.#drop(connection)
    if (!this.#isReported) {
      this.#isReported = true
      const what = connection.welcomed ? 'lost the link to' : 'cannot join through'
      this.#options.report(`${what} ${connection.url}: ${why}; trying until a server answers`)
    }
    if (this.#stopped) return
    this.#redialling?.cancel()
    this.#redialling = this.#options.clock.after(this.#redial.failedMs(), () => this.#dial())
  }

  #drop(connection: Connection): void {
    this.#connection = null
    connection.handshake?.cancel()
    connection.socket.cut()
    connection.questions.giveUp(`the link to ${connection.url} was lost before the answer`)
  }
}

function otherCluster(url: string): string {
  return `${url} belongs to another cluster than the one this agent joined first; use another --data.`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/*
 * When and where an agent dials next: another server each time, after a wait that doubles and is never the
 * same for two agents. Five hundred of them that lost their server at once come back spread out.
 */

/** The first wait: agents of a server that died come back over about a second. */
const FIRST_MS = 1_000
/** The longest: a server that returns is found again this soon, and is not run over meanwhile. */
const LONGEST_MS = 15_000

export class Redial {
  readonly #urls: readonly string[]
  readonly #random: Pick<Random, 'fraction'>
  #next: number
  #failures = 0

  /** `urls` is not empty. Where it begins is a throw of the dice, so that servers share the agents. */
  constructor(urls: readonly string[], random: Pick<Random, 'fraction'>) {
    this.#urls = urls
    this.#random = random
    this.#next = Math.floor(random.fraction() * urls.length)
  }

  /** The server to dial now; the next call answers another, if there is one. */
  url(): string {
    const url = this.#urls[this.#next % this.#urls.length]!
    this.#next += 1
    return url
  }

  /** How long to wait before the next dial, after one that came to nothing. */
  failedMs(): number {
    // With several servers one round is made before the wait grows.
    const rounds = Math.floor(this.#failures / this.#urls.length)
    this.#failures += 1
    const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(rounds, 10))
    return most * (0.1 + 0.9 * this.#random.fraction())
  }

  /** A server took us in. */
  succeeded(): void {
    this.#failures = 0
  }
}
