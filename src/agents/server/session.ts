/**
 * Session of one connected agent: the node's part of the store under the identity that the agent was admitted
 * with. Executions are reached only by the token of their claim. It decides nothing about jobs and keeps
 * nothing that a lost connection would lose.
 */
import {claimId, type ExecutionClaim, executionId} from '../../core/execution.ts'
import type {MemberStatus} from '../../core/node.ts'
import {AssertionFailed} from '../../lib/assert.ts'
import {pause} from '../../lib/pause.ts'
import type {Events} from '../../ports/events.ts'
import type {FinishOutcome} from '../../core/end-requests.ts'
import type {
  ActiveClaim,
  BeatReply,
  FinishItem,
  PreviousIncarnation,
} from '../../ports/node-store.ts'
import {finishUnheld, releaseClaims} from '../../node/recover.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import type {Store} from '../../ports/store.ts'
import {decodeBytes, decodeFinish, encodeClaim, decodeIncarnations} from '../codec.ts'
import {
  type ActiveClaimsJson,
  type BodyOf,
  type FinishJson,
  CLAIMED_MAX,
  type ReplyOf,
  type RequestKind,
  type RequestMessage,
  type RequestOf,
  type ServerMessage,
} from '../protocol.ts'

/**
 * Length of all definitions in the reply to a claim. A character has at most 3 bytes, and all secrets
 * together at most 16 MiB as JSON, so they fit into a message; a single definition has at most 1 MiB.
 */
const DEFINITIONS_MAX = 5 * 2 ** 20

/**
 * Heartbeats beyond this pace wait: each costs a look at every claim. A few may follow each other, as at the
 * shutdown of an agent.
 */
const HEARTBEAT_GAP_MS = 500
const HEARTBEAT_BURST = 4
/** Claims that a heartbeat has looked up although the store does not confirm them; the next takes others. */
const UNCONFIRMED_MAX = 2_000
/** Claims of an agent: what runs, a claim ahead, and undelivered results. */
const CLAIMS_PER_SLOT = 6

/** Revoked claims that a session remembers. */
const REVOKED_KEPT_MAX = 2_000

/** Reasons that an agent may report with `lost`; only a server can know the others. */
const REPORTED_REASONS: ReadonlySet<string> = new Set(['', 'node_stopped', 'cut_off'])

/** Number of claims that an agent with these slots can have. */
export function claimsMax(slots: number): number {
  return slots * CLAIMS_PER_SLOT + CLAIMED_MAX
}

export type SessionStore = Pick<
  Store,
  | 'claim'
  | 'verifyClaims'
  | 'releaseClaims'
  | 'appendOutput'
  | 'finish'
  | 'cancelled'
  | 'activeClaims'
>

export interface SessionOptions {
  readonly store: SessionStore
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly node: {
    readonly id: string
    readonly incarnation: string
    readonly name: string
    readonly slots: number
  }
  /** Ends the connection: the agent breaks the protocol. */
  readonly violated: (why: string) => void
  readonly send: (message: ServerMessage) => void
  /** Resolves when the budget allows a request of so many items; with false if its connection is closed. */
  readonly mayHandle: (kind: RequestKind, items: number) => Promise<boolean>
  /** Batched with the heartbeats of other agents. */
  readonly beat: (status: MemberStatus) => Promise<BeatReply>
  /** Joins again a member that the store removed during a long absence. */
  readonly rejoin: (status: MemberStatus) => Promise<Exclude<BeatReply, 'unknown'>>
  /**
   * Releases claims of previous incarnations that never started and ends their other executions. Resolves
   * with the number released.
   */
  readonly endPreviousIncarnations: (previous: readonly PreviousIncarnation[]) => Promise<number>
  /** Emits the events and notifications of finishes, as for any other node. */
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
}

type Handler<Kind extends RequestKind> = (
  request: RequestOf<Kind>,
) => Promise<BodyOf<ReplyOf<Kind>>>

export class AgentSession {
  readonly #options: SessionOptions
  readonly #handlers: {readonly [Kind in RequestKind]: Handler<Kind>}
  /** Claims of the agent that this server has seen. They decide which agents to notify. */
  #running: Set<string>
  /**
   * Active claims, read before the agent builds its next list, and compared with that list. A later read
   * could contain claims made through another server, which a delayed list lacks; they would become lost.
   */
  #activeClaims: readonly ActiveClaim[] = []

  /** Names of the jobs of its active claims, by claim; as the store has them. */
  readonly #jobs = new Map<string, string>()
  /** Claims that it asked about and that are not active. */
  readonly #revoked = new Set<string>()
  /** Position at which the next heartbeat continues to look up unconfirmed claims. */
  #unconfirmedAt = 0
  /** Monotonic; earlier heartbeats have used the pace up to here. */
  #pacedUntil = -Infinity

  constructor(options: SessionOptions, claims: readonly ExecutionClaim[]) {
    this.#options = options
    this.#running = new Set(claims.map(claimId))
    const {store, node} = options
    this.#handlers = {
      claim: (request) => this.#claim(request),
      verify: (request) => this.#verify(request),
      release: (request) => this.#release(request),
      append: (request) => this.#append(request),
      finish: (request) => this.#finish(request),
      cancelled: async () => ({keys: [...(await store.cancelled(node.id))]}),
      heartbeat: (request) => this.#beat(request),
      end_previous_incarnations: async (request) => {
        const released = await options.endPreviousIncarnations(decodeIncarnations(request))
        return {releasedCount: released}
      },
    }
  }

  get node(): SessionOptions['node'] {
    return this.#options.node
  }

  /** Number of its executions, as far as this server has seen. */
  get runningCount(): number {
    return this.#running.size
  }

  send(message: ServerMessage): void {
    this.#options.send(message)
  }

  /** Handles one request and sends the reply. Rejects only for a broken invariant. */
  async handle(request: RequestMessage): Promise<void> {
    const {id, kind} = request
    if (kind === 'heartbeat' && request.activeClaims.length > claimsMax(this.node.slots))
      return this.#options.violated('the agent reports more executions than its slots allow')
    // Heartbeats have a pace of their own, and never wait for other requests.
    if (kind !== 'heartbeat' && !(await this.#options.mayHandle(kind, itemsOf(request)))) return
    try {
      // Each kind of request has the handler of that kind.
      const handler = this.#handlers[kind] as unknown as Handler<RequestKind>
      this.send({...(await handler(request)), kind, id} as ServerMessage)
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      const isUnknown = error instanceof OutcomeUnknown
      if (!isUnknown && !(error instanceof StoreUnavailable))
        this.#options.events.emit('step_failed', {step: `agent_${kind}`, message: String(error)})
      const failure = isUnknown ? 'unknown' : 'unavailable'
      this.send({kind: 'failed', id, failure, message: 'the server cannot reach its store'})
    }
  }

  /** Reads the active claims; call before the welcome, hence before the agent's next list. */
  async loadActiveClaims(): Promise<void> {
    const {store, node} = this.#options
    const {id: nodeId, incarnation} = node
    this.#activeClaims = await store.activeClaims({nodeId, incarnation})
    const active = new Set<string>()
    for (const claim of this.#activeClaims) {
      active.add(claimId(claim))
      this.#jobs.set(claimId(claim), claim.job)
    }
    // Claims made meanwhile are running, and stay.
    for (const id of this.#jobs.keys())
      if (!active.has(id) && !this.#running.has(id)) this.#jobs.delete(id)
  }

  /** Beyond what its slots can have, an agent would keep work from other nodes. */
  get #claimsLeft(): number {
    return Math.max(0, this.node.slots * CLAIMS_PER_SLOT - this.#jobs.size)
  }

  async #claim({token, room, after}: RequestOf<'claim'>) {
    const {store, events, node} = this.#options
    const request = {
      nodeId: node.id,
      incarnation: node.incarnation,
      token,
      room: Math.min(room, CLAIMED_MAX, this.#claimsLeft),
      definitionsMax: DEFINITIONS_MAX,
      ...(after === null ? {} : {after}),
    }
    const [result] = await store.claim([request])
    for (const {execution, token: claimToken, spec} of result!.claimed) {
      const id = claimId({key: execution, token: claimToken})
      this.#running.add(id)
      this.#jobs.set(id, spec.name)
      const {node: name, attempt} = execution
      const started = {job: spec.name, execution: executionId(execution), node: name, attempt}
      events.emit('execution_started', started)
    }
    return mutable<ReplyOf<'claim'>>(result!)
  }

  /** A claim that was revoked once stays so, and is not looked up again. */
  async #verify({claims}: RequestOf<'verify'>) {
    const asked = claims.filter((claim) => !this.#revoked.has(claimId(claim)))
    const statuses = asked.length === 0 ? [] : await this.#options.store.verifyClaims(asked)
    if (this.#revoked.size > REVOKED_KEPT_MAX) this.#revoked.clear()
    const active = new Set<string>()
    for (const [index, claim] of asked.entries()) {
      if (statuses[index] === 'active') active.add(claimId(claim))
      else this.#revoked.add(claimId(claim))
    }
    return {active: claims.map((claim) => active.has(claimId(claim)))}
  }

  /** Only its own: all of them are known here, from the store or from a claim. */
  async #release({claims}: RequestOf<'release'>) {
    const {store, events} = this.#options
    const own = claims.filter((claim) => this.#jobs.has(claimId(claim)))
    const released = await releaseClaims({store, events}, own)
    for (const claim of released) this.#forget(claim)
    return {released: released.map(encodeClaim)}
  }

  async #append({items}: RequestOf<'append'>) {
    const {store, events} = this.#options
    const decoded = items.map(({key, token, offset, ...item}) => {
      return {key, token, offset, ...decodeBytes(item)}
    })
    const accepted = await store.appendOutput(decoded)
    decoded.forEach(({key, token, offset, bytes}, index) => {
      const job = this.#jobs.get(claimId({key, token}))
      if (accepted[index] !== true || job === undefined) return
      const data = {job, execution: executionId(key), total_bytes: offset + bytes.length}
      events.emit('execution_output', data)
    })
    return {accepted: [...accepted]}
  }

  async #finish({items}: RequestOf<'finish'>) {
    const outcomes = await this.#options.store.finish(items.map((item) => this.#reported(item)))
    for (const claim of items) this.#forget(claim)
    this.#options.announce(outcomes)
    // Agents of release 0.2 read more of an outcome than its kind.
    return {outcomes: [...outcomes]}
  }

  #forget(claim: ExecutionClaim): void {
    this.#running.delete(claimId(claim))
    this.#jobs.delete(claimId(claim))
  }

  #reported(json: FinishJson): FinishItem {
    const item = {...decodeFinish(json), reporter: this.node.id}
    const isKnown = item.status !== 'lost' || REPORTED_REASONS.has(item.reason)
    return isKnown ? item : {...item, reason: ''}
  }

  async #pace(): Promise<void> {
    const {clock} = this.#options
    const now = clock.monotonicMs()
    const earliest = now - HEARTBEAT_BURST * HEARTBEAT_GAP_MS
    this.#pacedUntil = Math.max(this.#pacedUntil, earliest) + HEARTBEAT_GAP_MS
    const waitMs = this.#pacedUntil - now
    if (waitMs > 0) await pause(clock, waitMs)
  }

  async #beat({status, ...claims}: RequestOf<'heartbeat'>) {
    // Set before the heartbeat is stored: by then some of these may have ended, and others started.
    this.#running = new Set(claims.activeClaims.map(claimId))
    await this.#pace()
    let result = await this.#options.beat(status)
    // An agent that has left need not be a member.
    if (result === 'unknown') result = status === 'left' ? 'ok' : await this.#options.rejoin(status)
    const revoked = result === 'ok' ? await this.#reconcile(claims) : []
    return {result, revoked, now: this.#options.clock.now()}
  }

  /**
   * Compares the claims of the agent with those of the store. Claims that only the store has become lost.
   * Resolves with claims that only the agent has and whose processes it must stop.
   */
  async #reconcile({
    activeClaims,
    pendingToken,
  }: ActiveClaimsJson): Promise<ActiveClaimsJson['activeClaims']> {
    const reported = new Set(activeClaims.map(claimId))
    const missing = this.#activeClaims.filter(
      (claim) => !reported.has(claimId(claim)) && claim.token !== pendingToken,
    )
    if (missing.length > 0) {
      const {store, random, announce} = this.#options
      announce(await finishUnheld({store, random}, missing))
    }
    await this.loadActiveClaims()
    const active = new Set(this.#activeClaims.map(claimId))
    const unconfirmed = this.#nextOf(activeClaims.filter((claim) => !active.has(claimId(claim))))
    if (unconfirmed.length === 0) return []
    const statuses = await this.#options.store.verifyClaims(unconfirmed)
    // `active` here means a claim of another node.
    return unconfirmed.filter((_claim, index) => statuses[index] !== 'lost_may_continue')
  }

  #nextOf<Claim>(claims: readonly Claim[]): readonly Claim[] {
    const from = this.#unconfirmedAt < claims.length ? this.#unconfirmedAt : 0
    this.#unconfirmedAt = from + UNCONFIRMED_MAX
    return claims.slice(from, this.#unconfirmedAt)
  }
}

/** Claims, results or chunks of output that a request names, and one for itself. */
function itemsOf(request: RequestMessage): number {
  if (request.kind === 'verify' || request.kind === 'release') return 1 + request.claims.length
  return 1 + ('items' in request ? request.items.length : 0)
}

/** The ports return readonly data; the schema of a reply has the same shape without `readonly`. */
function mutable<Reply>(value: unknown): BodyOf<Reply> {
  return value as BodyOf<Reply>
}
