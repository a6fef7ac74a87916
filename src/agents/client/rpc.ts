/**
 * Requests of an agent to a server. `RpcClient` is what the remote store needs of the link; `PendingRequests`
 * matches replies to requests on one connection. A request has an id that its reply repeats, and a timeout.
 */
import type {Clock, Timer} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import {
  AGENT_MESSAGE_BYTES_MAX,
  type BodyOf,
  type FailedMessage,
  type ReplyMessage,
  type ReplyOf,
  type RequestKind,
  type RequestOf,
} from '../protocol.ts'
import type {AgentSocket} from './socket.ts'

export interface RpcClient {
  /**
   * Resolves with the reply. Throws `StoreUnavailable` when the request was not sent or changed nothing, and
   * `OutcomeUnknown` when it was sent and no reply arrived.
   */
  request<Kind extends RequestKind>(
    kind: Kind,
    body: BodyOf<RequestOf<Kind>>,
  ): Promise<ReplyOf<Kind>>
}

/** A node has a handful of requests pending at a time, however much work it has. */
const PENDING_MAX = 1_000
/** Unsent bytes. Beyond this limit a server that does not read gets no more requests. */
const BUFFERED_BYTES_MAX = 4 * AGENT_MESSAGE_BYTES_MAX

interface PendingRequest {
  readonly kind: RequestKind
  readonly resolve: (reply: ReplyMessage) => void
  readonly reject: (error: Error) => void
  readonly timer: Timer
  readonly sentAt: number
}

export interface SettledRequest {
  readonly kind: RequestKind
  /** Monotonic. */
  readonly sentAt: number
  /** `mismatched`: the reply is of another kind than the request. */
  readonly result: 'replied' | 'failed' | 'mismatched'
}

export class PendingRequests {
  readonly #clock: Clock
  readonly #socket: Pick<AgentSocket, 'send' | 'bufferedBytes'>
  readonly #pending = new Map<number, PendingRequest>()
  #lastId = 0

  constructor(clock: Clock, socket: Pick<AgentSocket, 'send' | 'bufferedBytes'>) {
    this.#clock = clock
    this.#socket = socket
  }

  /**
   * Sends a request and resolves with its reply, which has the same kind. Errors as in `RpcClient`.
   * `onTimeout` is called when no reply arrives within `timeoutMs`.
   */
  async request<Kind extends RequestKind>(
    kind: Kind,
    body: BodyOf<RequestOf<Kind>>,
    {timeoutMs, onTimeout}: {readonly timeoutMs: number; readonly onTimeout: () => void},
  ): Promise<ReplyMessage> {
    if (this.#pending.size >= PENDING_MAX || this.#socket.bufferedBytes > BUFFERED_BYTES_MAX)
      throw new StoreUnavailable('the server does not keep up with the requests of this agent')
    const id = ++this.#lastId
    const reply = new Promise<ReplyMessage>((resolve, reject) => {
      const timer = this.#clock.after(timeoutMs, () => {
        this.#pending.delete(id)
        reject(new OutcomeUnknown('the server did not reply in time'))
        onTimeout()
      })
      this.#pending.set(id, {kind, resolve, reject, timer, sentAt: this.#clock.monotonicMs()})
    })
    this.#socket.send(JSON.stringify({kind, id, ...body}))
    return await reply
  }

  /** Settles the request of this reply; `null` when it is not pending any more. */
  settle(reply: ReplyMessage | FailedMessage): SettledRequest | null {
    const request = this.#pending.get(reply.id)
    if (request === undefined) return null
    this.#pending.delete(reply.id)
    request.timer.cancel()
    const {kind, sentAt} = request
    if (reply.kind === kind) {
      request.resolve(reply)
      return {kind, sentAt, result: 'replied'}
    }
    if (reply.kind !== 'failed') {
      request.reject(new OutcomeUnknown('the reply of the server does not match the request'))
      return {kind, sentAt, result: 'mismatched'}
    }
    const {failure, message} = reply
    request.reject(
      failure === 'unknown' ? new OutcomeUnknown(message) : new StoreUnavailable(message),
    )
    return {kind, sentAt, result: 'failed'}
  }

  /** Fails all pending requests: the connection is closed. */
  failAll(why: string): void {
    for (const {timer, reject} of this.#pending.values()) {
      timer.cancel()
      reject(new OutcomeUnknown(why))
    }
    this.#pending.clear()
  }
}
