/**
 * What one connected agent may do: the node's part of the store, as itself and nobody else. Questions are
 * carried to the store under the identity the agent was admitted with; executions are reached by the token of
 * their claim alone. Decides nothing about jobs, keeps nothing that a lost connection would lose.
 */
import {executionId, type ExecutionKey, lostLine} from '../../core/execution.ts'
import type {MemberStatus} from '../../core/node.ts'
import {AssertionFailed} from '../../lib/assert.ts'
import type {Events} from '../../ports/events.ts'
import type {
  BeatReply,
  PreviousIncarnation,
  FinishItem,
  FinishOutcome,
  ActiveClaim,
} from '../../ports/node-store.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import type {Store} from '../../ports/store.ts'
import {
  type AnswerOf,
  CLAIM_ROOM_MAX,
  type InHandJson,
  type QuestionKind,
  type QuestionMessage,
  type QuestionOf,
  type ServerMessage,
} from '../protocol.ts'

export type SessionStore = Pick<
  Store,
  'claim' | 'verifyClaims' | 'appendOutput' | 'finish' | 'cancelled' | 'activeClaims'
>

export interface SessionOptions {
  readonly store: SessionStore
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly node: {readonly id: string; readonly incarnation: string; readonly name: string}
  readonly send: (message: ServerMessage) => void
  /** One of many: carried to the store together with those of other agents. */
  readonly beat: (status: MemberStatus) => Promise<BeatReply>
  /** The store has forgotten this member, after a long absence: joins it again. */
  readonly rejoin: (status: MemberStatus) => Promise<Exclude<BeatReply, 'unknown'>>
  /**
   * Gives back what earlier lives of this node hold in the store and never started, and ends the rest;
   * answers how many were given back.
   */
  readonly endEarlierLives: (earlier: readonly PreviousIncarnation[]) => Promise<number>
  /** Events and bells of ends, as for any other node's. */
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
}

type Answering<Kind extends QuestionKind> = (
  question: QuestionOf<Kind>,
) => Promise<Omit<AnswerOf<Kind>, 'kind' | 'id'>>

export class AgentSession {
  readonly #options: SessionOptions
  readonly #answering: {readonly [Kind in QuestionKind]: Answering<Kind>}
  /** Ids of what it runs, as far as this server saw: for telling which agents to ring. */
  #running: Set<string>
  /**
   * What the store said before the agent made its next list of what it has in hand. That list, however late
   * it is looked at, is held against nothing newer: the agent may have claimed through another server since.
   */
  #standing: readonly ActiveClaim[] = []

  constructor(options: SessionOptions, held: InHandJson['held']) {
    this.#options = options
    this.#running = new Set(held.map(({key}) => executionId(key)))
    this.#answering = {
      claim: (question) => this.#claim(question),
      verify: async ({claims}) => {
        const standings = await options.store.verifyClaims(claims)
        return {hold: standings.map((standing) => standing === 'active')}
      },
      append: (question) => this.#append(question),
      finish: (question) => this.#finish(question),
      cancelled: async () => ({keys: [...(await options.store.cancelled(options.node.id))]}),
      beat: (question) => this.#beat(question),
      earlier_over: async ({lives = []}) => {
        const earlier = lives.map((life) => ({...life, begun: new Set(life.begun)}))
        return {givenBack: await options.endEarlierLives(earlier)}
      },
    }
  }

  get node(): SessionOptions['node'] {
    return this.#options.node
  }

  /** How many executions it runs, as far as this server saw. */
  get runningCount(): number {
    return this.#running.size
  }

  send(message: ServerMessage): void {
    this.#options.send(message)
  }

  /** Answers one question. Rejects only for a broken invariant. */
  async answer(question: QuestionMessage): Promise<void> {
    const {id, kind} = question
    try {
      // Each kind of question has the answering of that kind.
      const answering = this.#answering[kind] as unknown as Answering<QuestionKind>
      this.send({...(await answering(question)), kind, id} as ServerMessage)
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      const isUnknown = error instanceof OutcomeUnknown
      if (!isUnknown && !(error instanceof StoreUnavailable))
        this.#options.events.emit('step_failed', {step: `agent_${kind}`, message: String(error)})
      const failure = isUnknown ? 'unknown' : 'unavailable'
      const message = 'the store of the server cannot be reached at the moment'
      this.send({kind: 'failed', id, failure, message})
    }
  }

  async #claim({token, room, after}: QuestionOf<'claim'>) {
    const {store, events, node} = this.#options
    const request = {
      nodeId: node.id,
      incarnation: node.incarnation,
      token,
      room: Math.min(room, CLAIM_ROOM_MAX),
      ...(after === undefined ? {} : {after}),
    }
    const [result] = await store.claim([request])
    const {claimed} = result!
    for (const {execution, spec} of claimed) {
      const id = executionId(execution)
      this.#running.add(id)
      const {node: name, attempt} = execution
      events.emit('execution_started', {job: spec.name, execution: id, node: name, attempt})
    }
    return plain<AnswerOf<'claim'>>({...result!, claimed: [...claimed]})
  }

  async #append({items}: QuestionOf<'append'>) {
    const {store, events} = this.#options
    const decoded = items.map((item) => ({...item, bytes: Uint8Array.fromBase64(item.bytes)}))
    const taken = await store.appendOutput(decoded)
    decoded.forEach(({key, job, offset, bytes}, index) => {
      if (taken[index] !== true) return
      const data = {job, execution: executionId(key), total_bytes: offset + bytes.length}
      events.emit('execution_output', data)
    })
    return {taken: [...taken]}
  }

  async #finish({items}: QuestionOf<'finish'>) {
    const decoded = items.map(({dice: jitter, output, ...item}): FinishItem => ({
      ...item,
      jitter,
      output: {...output, bytes: Uint8Array.fromBase64(output.bytes)},
    }))
    const outcomes = await this.#options.store.finish(decoded)
    for (const {key} of items) this.#running.delete(executionId(key))
    this.#options.announce(outcomes)
    return plain<AnswerOf<'finish'>>({outcomes: [...outcomes]})
  }

  async #beat({status, held, claiming}: QuestionOf<'beat'>) {
    // Now, not once the beat is stored: by then some of these may have ended, and others begun.
    this.#running = new Set(held.map(({key}) => executionId(key)))
    let answer = await this.#options.beat(status)
    // One that has left is not missed.
    if (answer === 'unknown') answer = status === 'left' ? 'ok' : await this.#options.rejoin(status)
    if (answer !== 'ok') return {answer, end: []}
    return {answer: 'ok' as const, end: await this.#compare({held, claiming})}
  }

  /** Before the agent is welcomed, hence before its next list. */
  async open(): Promise<void> {
    const {store, node} = this.#options
    const {id: nodeId, incarnation} = node
    this.#standing = await store.activeClaims({nodeId, incarnation})
  }

  /**
   * What the agent has in hand against what the store says: what it had claimed and does not have becomes
   * lost; answers what it has and is to end, being given up for good or never known.
   */
  async #compare({held, claiming}: InHandJson): Promise<ExecutionKey[]> {
    const inHand = new Set(held.map(claimText))
    const unheld = this.#standing.filter(
      (claim) => !inHand.has(claimText(claim)) && claim.token !== claiming,
    )
    if (unheld.length > 0) await this.#lose(unheld)
    await this.open()
    const known = new Set(this.#standing.map(claimText))
    const unknown = held.filter((claim) => !known.has(claimText(claim)))
    if (unknown.length === 0) return []
    const standings = await this.#options.store.verifyClaims(unknown)
    // What is held by somebody else is not this agent's either.
    return unknown
      .filter((_claim, index) => standings[index] !== 'lost_may_continue')
      .map(({key}) => key)
  }

  async #lose(claims: readonly ActiveClaim[]): Promise<void> {
    const {store, random, announce} = this.#options
    const reason = 'not_held'
    const outcomes = await store.finish(
      claims.map(({key, token, ageMs}) => ({
        key,
        token,
        status: 'lost',
        durationMs: ageMs,
        exitCode: null,
        reason,
        outputHead: '',
        outputFoot: lostLine(reason),
        output: {offset: 0, bytes: new Uint8Array(), totalBytes: 0},
        dropOutput: false,
        jitter: random.fraction(),
      })),
    )
    announce(outcomes)
  }
}

function claimText({key, token}: {readonly key: ExecutionKey; readonly token: string}): string {
  return `${executionId(key)} ${token}`
}

/**
 * The ports give their data for reading only, and what is sent is a plain copy of it: the same shape, which
 * the schema of the answer describes without the word `readonly`.
 */
function plain<Answer>(value: unknown): Omit<Answer, 'kind' | 'id'> {
  return value as Omit<Answer, 'kind' | 'id'>
}
