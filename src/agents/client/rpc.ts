/**
 * The questions that are open on one connection: each has a number that its answer repeats, and an end to
 * the wait for it. Knows nothing of servers and of what an answer means; the link does.
 */
import type {Clock, Timer} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import {
  AGENT_MESSAGE_BYTES_MAX,
  type AnswerMessage,
  type AnswerOf,
  type BodyOf,
  type FailedMessage,
  type QuestionKind,
} from '../protocol.ts'
import type {AgentSocket} from './socket.ts'

/** Asked and not answered: the flow has a handful, whatever there is to do. */
const OPEN_MAX = 1_000
/** Not gone out yet; beyond this a server that does not read is not sent more. */
const BUFFERED_BYTES_MAX = 4 * AGENT_MESSAGE_BYTES_MAX

interface Question {
  readonly kind: QuestionKind
  readonly answered: (answer: AnswerMessage) => void
  readonly failed: (error: Error) => void
  readonly timer: Timer
  readonly sentAt: number
}

/** What became of a question. */
export interface Settled {
  readonly kind: QuestionKind
  /** Monotonic instant at which it was asked. */
  readonly sentAt: number
  /** `foreign`: the answer is that of another kind of question. */
  readonly how: 'answered' | 'failed' | 'foreign'
}

export class Questions {
  readonly #clock: Clock
  readonly #socket: Pick<AgentSocket, 'send' | 'bufferedBytes'>
  readonly #open = new Map<number, Question>()
  #newest = 0

  constructor(clock: Clock, socket: Pick<AgentSocket, 'send' | 'bufferedBytes'>) {
    this.#clock = clock
    this.#socket = socket
  }

  /**
   * Resolves with the answer, which has the same kind. Throws `StoreUnavailable` when it was not asked or
   * could do nothing, `OutcomeUnknown` when the answer does not come; `late` is called when it did not come
   * within `waitMs`.
   */
  async ask<Kind extends QuestionKind>(
    kind: Kind,
    body: BodyOf<Kind>,
    {waitMs, late}: {readonly waitMs: number; readonly late: () => void},
  ): Promise<AnswerMessage> {
    if (this.#open.size >= OPEN_MAX || this.#socket.bufferedBytes > BUFFERED_BYTES_MAX)
      throw new StoreUnavailable('the server does not keep up with what it is asked')
    const id = ++this.#newest
    const answer = new Promise<AnswerMessage>((answered, failed) => {
      const timer = this.#clock.after(waitMs, () => {
        this.#open.delete(id)
        failed(new OutcomeUnknown('the server did not answer in time'))
        late()
      })
      this.#open.set(id, {kind, answered, failed, timer, sentAt: this.#clock.monotonicMs()})
    })
    this.#socket.send(JSON.stringify({kind, id, ...body}))
    return await answer
  }

  /** Hands an answer to who asked; `null` when nobody waits for it any more. */
  settle(answer: AnswerMessage | FailedMessage): Settled | null {
    const question = this.#open.get(answer.id)
    if (question === undefined) return null
    this.#open.delete(answer.id)
    question.timer.cancel()
    const {kind, sentAt} = question
    if (answer.kind === kind) {
      question.answered(answer)
      return {kind, sentAt, how: 'answered'}
    }
    if (answer.kind !== 'failed') {
      question.failed(new OutcomeUnknown('the server answered what was not asked'))
      return {kind, sentAt, how: 'foreign'}
    }
    const {failure, message} = answer
    question.failed(
      failure === 'unknown' ? new OutcomeUnknown(message) : new StoreUnavailable(message),
    )
    return {kind, sentAt, how: 'failed'}
  }

  /** The connection is over: none of them will be answered. */
  giveUp(why: string): void {
    for (const {timer, failed} of this.#open.values()) {
      timer.cancel()
      failed(new OutcomeUnknown(why))
    }
    this.#open.clear()
  }
}

/* How the remote store asks a server, whatever carries the question: the link to it is one such way. */

export interface Asking {
  /**
   * Resolves with the server's answer. Throws `StoreUnavailable` when it was not asked, or could do nothing;
   * `OutcomeUnknown` when it was asked and the answer did not come.
   */
  ask<Kind extends QuestionKind>(kind: Kind, body: BodyOf<Kind>): Promise<AnswerOf<Kind>>
}
