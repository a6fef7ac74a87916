/**
 * An agent's link to its cluster: one connection to any server, made again for ever. It introduces the agent,
 * matches answers to questions, passes on the server's rings, and goes to another server when this one is
 * silent. What is asked while there is no connection waits a little for one.
 */
import type {Clock, Timer} from '../../ports/clock.ts'
import type {Random} from '../../ports/random.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-failure.ts'
import {
  AGENT_MESSAGE_BYTES_MAX,
  decodeServerMessage,
  isSpoken,
  PROTOCOL,
  type AnswerMessage,
  type AnswerOf,
  type BodyOf,
  type FailedMessage,
  type HelloMessage,
  type QuestionKind,
  type ServerMessage,
} from '../../wire/agent-protocol.ts'
import type {Asking} from './asking.ts'
import type {AgentSocket, Closed, Dial} from './dial.ts'
import {Redial} from './redial.ts'

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
  /** A heartbeat not answered for this long: the server is gone. */
  readonly silenceMs: number
  readonly rang: (bell: 'run' | 'cancel') => void
  /** A server has taken the agent in. */
  readonly joined: (url: string) => void
  /** Why there is no connection, for the log; told once until the next join. */
  readonly report: (sentence: string) => void
  /** What trying again cannot mend; `joined` = it was in the cluster before. */
  readonly refused: (sentence: string, kind: 'fenced' | 'other') => void
}

/** From dialling until the server has answered the hello. */
const HANDSHAKE_MS = 5_000
/** A server whose store is slow answers late; longer than that store's own patience. */
const ANSWER_MS = 30_000
/** What is asked without a connection waits for one this long. */
const WAIT_MS = 5_000
/** Questions asked and waiting: the flow has a handful, whatever there is to do. */
const QUESTIONS_MAX = 1_000
/** Not gone out yet; beyond this a server that does not read is not sent more. */
const BUFFERED_BYTES_MAX = 4 * AGENT_MESSAGE_BYTES_MAX

/** Statuses of HTTP that the same request meets again: a wrong token, host name or address. */
const LASTING_STATUSES: Readonly<Record<number, string>> = {
  400: 'does not understand agents',
  401: 'refuses the token; give the right one with --token or --token-file',
  403: 'refuses this agent; it needs a token, given to both with --token',
  404: 'knows no agents; it is no Belfry server, or of an older version',
  421: 'does not answer under that host name; start it with --allow-host',
}

interface Question {
  readonly answered: (answer: AnswerMessage) => void
  readonly failed: (error: Error) => void
  readonly timer: Timer
  readonly kind: QuestionKind
  readonly sentAt: number
}

interface Connection {
  readonly url: string
  readonly socket: AgentSocket
  readonly questions: Map<number, Question>
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
  #questionId = 0
  #hasJoined = false
  #isReported = false
  #stopped = false
  /** When the newest word was sent that a server has answered. */
  #heardSince: number

  constructor(options: LinkOptions) {
    this.#options = options
    this.#clusterId = options.clusterId
    this.#redial = new Redial(options.urls, options.random)
    this.#heardSince = options.clock.monotonicMs()
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

  /** For how long no server has been heard of; 0 while one answers. */
  get cutOffMs(): number {
    return Math.max(0, this.#options.clock.monotonicMs() - this.#heardSince)
  }

  async ask<Kind extends QuestionKind>(kind: Kind, body: BodyOf<Kind>): Promise<AnswerOf<Kind>> {
    const connection = this.#joinedConnection() ?? (await this.#waitForConnection())
    const {socket, questions} = connection
    if (questions.size >= QUESTIONS_MAX || socket.bufferedBytes > BUFFERED_BYTES_MAX)
      throw new StoreUnavailable('the server does not keep up with what it is asked')
    const {clock, silenceMs} = this.#options
    const id = ++this.#questionId
    const answer = new Promise<AnswerMessage>((answered, failed) => {
      const waitMs = kind === 'beat' ? silenceMs : ANSWER_MS
      const timer = clock.after(waitMs, () => this.#unanswered(connection, id, kind))
      questions.set(id, {answered, failed, timer, kind, sentAt: clock.monotonicMs()})
    })
    socket.send(JSON.stringify({kind, id, ...body}))
    // Which answers belong to which question is checked where they are matched.
    return (await answer) as AnswerOf<Kind>
  }

  #joinedConnection(): Connection | null {
    return this.isConnected ? this.#connection : null
  }

  async #waitForConnection(): Promise<Connection> {
    const connection = await new Promise<Connection | null>((resolve) => {
      if (this.#stopped) return resolve(null)
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
    const connection: Connection = {
      url,
      questions: new Map(),
      helloAt: clock.monotonicMs(),
      welcomed: false,
      handshake: null,
      socket: dial(url, {
        opened: () => this.#introduce(connection),
        heard: (text) => this.#heard(connection, text),
        closed: (why) => this.#closed(connection, why),
      }),
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
    this.#answeredSince(connection.helloAt)
    this.#redial.succeeded()
    joined(connection.url)
    this.#tellWaiting(connection)
  }

  #refused(connection: Connection, {code, message}: {code: string; message: string}): void {
    if (code === 'fenced') {
      this.stop()
      return this.#options.refused(message, 'fenced')
    }
    if (code === 'cluster') return this.#notOurs(connection, otherCluster(connection.url))
    if (code === 'protocol' || code === 'name_taken') return this.#notOurs(connection, message)
    // It is there, and its store is not: nobody else can give this agent's work away either.
    if (code === 'unavailable') this.#answeredSince(connection.helloAt)
    this.#leave(connection, message)
  }

  /** Before the first join nothing is at stake and a person is looking; after it, another server may do. */
  #notOurs(connection: Connection, sentence: string): void {
    if (this.#hasJoined) return this.#leave(connection, sentence)
    this.stop()
    this.#options.refused(sentence, 'other')
  }

  #answered(connection: Connection, answer: AnswerMessage | FailedMessage): void {
    const question = connection.questions.get(answer.id)
    if (question === undefined) return
    connection.questions.delete(answer.id)
    question.timer.cancel()
    if (question.kind === 'beat') this.#answeredSince(question.sentAt)
    if (answer.kind === question.kind) return question.answered(answer)
    if (answer.kind !== 'failed') return this.#leave(connection, 'it answers what was not asked')
    const {failure, message} = answer
    question.failed(
      failure === 'unknown' ? new OutcomeUnknown(message) : new StoreUnavailable(message),
    )
    // It hears us and cannot reach the store; another server may.
    if (question.kind === 'beat') this.#leave(connection, message)
  }

  #answeredSince(sentAt: number): void {
    this.#heardSince = Math.max(this.#heardSince, sentAt)
  }

  #unanswered(connection: Connection, id: number, kind: QuestionKind): void {
    const question = connection.questions.get(id)
    if (question === undefined) return
    connection.questions.delete(id)
    question.failed(new OutcomeUnknown(`${connection.url} did not answer in time`))
    if (kind === 'beat') this.#leave(connection, 'it did not answer a heartbeat')
  }

  #closed(connection: Connection, {reason, status}: Closed): void {
    if (this.#connection !== connection) return
    const lasting = status === null ? undefined : LASTING_STATUSES[status]
    if (lasting !== undefined) return this.#notOurs(connection, `${connection.url} ${lasting}.`)
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
    const {url} = connection
    for (const {timer, failed} of connection.questions.values()) {
      timer.cancel()
      failed(new OutcomeUnknown(`the link to ${url} was lost before the answer`))
    }
    connection.questions.clear()
  }
}

function otherCluster(url: string): string {
  return `${url} belongs to another cluster than the one this agent joined first; use another --data.`
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
