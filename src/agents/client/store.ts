/**
 * Remote store of an agent: the node's part of the store over requests to a server. It splits what is too
 * large for one message, tracks the claims that this node holds, and passes on the claims that the server
 * revokes. It decides nothing: an unreachable server is an unavailable store, which the runner handles.
 */
import {claimId, type ExecutionClaim, type ExecutionKey} from '../../core/execution.ts'
import {withDefaults} from '../../core/job-fields.ts'
import type {FinishOutcome} from '../../core/end-requests.ts'
import type {
  BeatReply,
  ClaimedExecution,
  ClaimRequest,
  ClaimResult,
  ClaimStatus,
  Heartbeat,
  NodeStore,
  OutputAppend,
  PreviousIncarnation,
} from '../../ports/node-store.ts'
import {OutcomeUnknown} from '../../ports/store-errors.ts'
import {encodeBytes, encodeClaim, encodeIncarnations} from '../codec.ts'
import {type ActiveClaimsJson, type FinishJson, ITEMS_MAX} from '../protocol.ts'
import type {RpcClient} from './rpc.ts'

/** Output in one request: base64 adds a third, which still fits into a message. */
const REQUEST_BYTES_MAX = 1024 * 1024
/** Lower bound of an item without its output. */
const ITEM_BYTES = 512

export class RemoteNodeStore implements Omit<NodeStore, 'finish'> {
  readonly #rpc: RpcClient
  readonly #claims: LocalClaims
  readonly #onRevoked: () => void
  readonly #onServerTime: (now: number) => void
  #revoked: readonly ExecutionClaim[] = []

  /**
   * `onRevoked` is called when `revokedClaims` has something new, `onServerTime` with the wall clock of the
   * server, ms since 1970, after each heartbeat.
   */
  constructor(
    rpc: RpcClient,
    claims: LocalClaims,
    onRevoked: () => void,
    onServerTime: (now: number) => void = () => undefined,
  ) {
    this.#rpc = rpc
    this.#claims = claims
    this.#onRevoked = onRevoked
    this.#onServerTime = onServerTime
  }

  /** An agent claims only for itself: one request. */
  async claim([request]: readonly ClaimRequest[]): Promise<readonly ClaimResult[]> {
    const {token, room} = request!
    // Kept after a failure: the claim may be stored, and is repeated with the same token.
    this.#claims.pendingToken = token
    const after = this.#claims.newest
    const reply = await this.#rpc.request('claim', {token, room, after})
    const claimed = reply.claimed.map((each) => ({...each, spec: withDefaults(each.spec)}))
    this.#claims.add(claimed)
    this.#claims.newest = reply.newest
    this.#claims.pendingToken = null
    return [{...reply, claimed, newest: reply.newest ?? ''}]
  }

  /** `active` or `revoked`: servers find out about `lost_may_continue` with each heartbeat. */
  async verifyClaims(claims: readonly ExecutionClaim[]): Promise<readonly ClaimStatus[]> {
    const statuses: ClaimStatus[] = []
    for (const part of split(claims, () => 0)) {
      const {active} = await this.#rpc.request('verify', {claims: part.map(encodeClaim)})
      statuses.push(...part.map((_claim, index) => (active[index] === true ? 'active' : 'revoked')))
    }
    claims.forEach((claim, index) => statuses[index] === 'active' || this.#claims.remove(claim))
    return statuses
  }

  /** Releases claims of executions that were not started. Resolves with the released ones. */
  async releaseClaims(claims: readonly ExecutionClaim[]): Promise<readonly ExecutionClaim[]> {
    const all: ExecutionClaim[] = []
    for (const part of split(claims, () => 0)) {
      const {released} = await this.#rpc.request('release', {claims: part.map(encodeClaim)})
      for (const claim of released) this.#claims.remove(claim)
      all.push(...released)
    }
    return all
  }

  async appendOutput(items: readonly OutputAppend[]): Promise<readonly boolean[]> {
    const accepted: boolean[] = []
    for (const part of split(items, outputBytes)) {
      const reply = await this.#rpc.request('append', {
        items: part.map((item) => ({
          ...encodeClaim(item),
          offset: item.offset,
          ...encodeBytes(item),
        })),
      })
      accepted.push(...part.map((_item, index) => reply.accepted[index] === true))
    }
    return accepted
  }

  /** Results as the result log has encoded them. */
  async finish(items: readonly FinishJson[]): Promise<readonly Pick<FinishOutcome, 'kind'>[]> {
    const all: Pick<FinishOutcome, 'kind'>[] = []
    for (const part of split(items, finishBytes)) {
      const {outcomes} = await this.#rpc.request('finish', {items: part})
      if (outcomes.length < part.length)
        throw new OutcomeUnknown('the reply of the server does not cover every finish')
      for (const item of part) this.#claims.remove(item)
      all.push(...outcomes)
    }
    return all
  }

  /** Claims that a server revoked with a heartbeat; each is returned once. */
  revokedClaims(): readonly ExecutionClaim[] {
    const revoked = this.#revoked.filter((claim) => this.#claims.has(claim))
    this.#revoked = []
    return revoked
  }

  async cancelled(_nodeId: string): Promise<readonly ExecutionKey[]> {
    return (await this.#rpc.request('cancelled', {})).keys
  }

  /** An agent sends only its own heartbeat. */
  async beat([heartbeat]: readonly Heartbeat[]): Promise<readonly Exclude<BeatReply, 'unknown'>[]> {
    const {status} = heartbeat!
    const body = {status, ...this.#claims.encoded()}
    const {result, now, ...reply} = await this.#rpc.request('heartbeat', body)
    this.#onServerTime(now)
    const revoked = reply.revoked.filter((claim) => this.#claims.has(claim))
    if (revoked.length > 0) {
      this.#revoked = revoked
      this.#onRevoked()
    }
    return [result]
  }

  /**
   * Ends the previous incarnations of this node: no process of them runs, and their results are delivered.
   * Their claims are released if they never started, and lost otherwise. Resolves with the number released.
   */
  async endPreviousIncarnations(previous: readonly PreviousIncarnation[]): Promise<number> {
    const body = encodeIncarnations(previous)
    return (await this.#rpc.request('end_previous_incarnations', body)).releasedCount
  }
}

function outputBytes({
  bytes,
  start,
}: {
  readonly bytes: {readonly length: number}
  readonly start?: {readonly length: number}
}): number {
  return bytes.length + (start?.length ?? 0)
}

function finishBytes({output, outputHead, outputFoot}: FinishJson): number {
  return outputBytes(output) + outputHead.length + outputFoot.length
}

/** Parts of a list, in order, each small enough for one request. */
function split<Item>(items: readonly Item[], bytesOf: (item: Item) => number): Item[][] {
  const parts: Item[][] = []
  let size = Infinity
  for (const item of items) {
    const bytes = ITEM_BYTES + bytesOf(item)
    const last = parts.at(-1)
    if (last === undefined || size + bytes > REQUEST_BYTES_MAX || last.length === ITEMS_MAX) {
      parts.push([item])
      size = bytes
    } else {
      last.push(item)
      size += bytes
    }
  }
  return parts
}

/**
 * Claims of this node that are not finished, and the claim request that is pending. Every heartbeat carries
 * them, and the server compares them with the store. Maintained by the remote store, which sees every claim
 * and every finish; the runner does not know it.
 */
export class LocalClaims {
  /** Key: the claim. A reply about an older claim of an execution must not touch its newer one. */
  readonly #claims = new Map<string, ExecutionClaim>()
  /** Token of the claim without a reply yet: the executions it took are not lost. */
  pendingToken: string | null = null
  /** Newest claim of this node by the last reply of the store; `null` before the first. */
  newest: string | null = null

  add(claimed: readonly ClaimedExecution[]): void {
    for (const {execution, token} of claimed) {
      const claim = encodeClaim({key: execution, token})
      this.#claims.set(claimId(claim), claim)
    }
  }

  /** Call when the execution is finished or its claim revoked. */
  remove(claim: ExecutionClaim): void {
    this.#claims.delete(claimId(claim))
  }

  has(claim: ExecutionClaim): boolean {
    return this.#claims.has(claimId(claim))
  }

  get size(): number {
    return this.#claims.size
  }

  /** Claims as a hello or a heartbeat carries them. */
  encoded(): ActiveClaimsJson {
    return {
      activeClaims: [...this.#claims.values()].map(encodeClaim),
      pendingToken: this.pendingToken,
    }
  }
}
