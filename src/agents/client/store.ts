/**
 * The node's part of the store, asked of a server over the link. It splits what is too large for one message,
 * keeps the list of what this node holds, and passes on what the server wants ended. It decides nothing: a
 * server that cannot be reached is a store that is away, which the flow knows how to live with.
 */
import {executionId, type ExecutionKey} from '../../core/execution.ts'
import type {
  BeatReply,
  ClaimedExecution,
  ClaimRequest,
  ClaimResult,
  ClaimStatus,
  PreviousIncarnation,
  FinishItem,
  FinishOutcome,
  Heartbeat,
  NodeStore,
  OutputAppend,
} from '../../ports/node-store.ts'
import {OutcomeUnknown} from '../../ports/store-errors.ts'
import {
  ADDED_TEXT_MAX,
  BEGUN_MAX,
  type BodyOf,
  type FinishJson,
  ITEMS_MAX,
  LIVES_MAX,
  REASON_MAX,
} from '../protocol.ts'
import type {Asking} from './rpc.ts'

/** Output in one question: as text a third more, which leaves room below what a message may hold. */
const QUESTION_BYTES_MAX = 1024 * 1024
/** What an item costs beside its output, at the least. */
const ITEM_BYTES = 512

type Claim = Parameters<NodeStore['verifyClaims']>[0][number]

export class RemoteNodeStore implements NodeStore {
  readonly #link: Asking
  readonly #held: HeldExecutions
  readonly #rung: () => void
  #takenAway: readonly ExecutionKey[] = []

  /** `rung` is called when there is something new for `takenAway` to answer. */
  constructor(link: Asking, held: HeldExecutions, rung: () => void) {
    this.#link = link
    this.#held = held
    this.#rung = rung
  }

  /** An agent claims only for itself: one request. */
  async claim([request]: readonly ClaimRequest[]): Promise<readonly ClaimResult[]> {
    const {token, room} = request!
    // Stays after a failure: the claim may have been made, and is repeated with the same token.
    this.#held.claiming = token
    const after = this.#held.newest
    const question = {token, room, ...(after === null ? {} : {after})}
    const {claimed, waiting, nextDueInMs, newest} = await this.#link.ask('claim', question)
    this.#held.add(claimed)
    this.#held.newest = newest ?? null
    this.#held.claiming = null
    return [{claimed, waiting, nextDueInMs}]
  }

  /** Answers `active` or `revoked`: what was given up and may go on, servers see with each heartbeat. */
  async verifyClaims(claims: readonly Claim[]): Promise<readonly ClaimStatus[]> {
    const answers: ClaimStatus[] = []
    for (const part of split(claims, () => 0)) {
      const {hold} = await this.#link.ask('verify', {claims: part.map(claimOf)})
      answers.push(...part.map((_claim, index) => (hold[index] === true ? 'active' : 'revoked')))
    }
    claims.forEach(({key}, index) => answers[index] === 'active' || this.#held.remove(key))
    return answers
  }

  async appendOutput(items: readonly OutputAppend[]): Promise<readonly boolean[]> {
    const answers: boolean[] = []
    for (const part of split(items, ({bytes}) => bytes.length)) {
      const {taken} = await this.#link.ask('append', {
        items: part.map((item) => ({
          ...claimOf(item),
          job: this.#held.get(item.key)?.job ?? '',
          offset: item.offset,
          bytes: item.bytes.toBase64(),
        })),
      })
      answers.push(...part.map((_item, index) => taken[index] === true))
    }
    return answers
  }

  async finish(items: readonly FinishItem[]): Promise<readonly FinishOutcome[]> {
    const answers: FinishOutcome[] = []
    for (const part of split(items, sizeOfFinish)) {
      const {outcomes} = await this.#link.ask('finish', {items: part.map(finishJson)})
      if (outcomes.length < part.length)
        throw new OutcomeUnknown('the server did not answer for every end it was told')
      part.forEach(({key}) => this.#held.remove(key))
      answers.push(...outcomes)
    }
    return answers
  }

  /** What a server said with a heartbeat is not ours any more; said once. */
  takenAway(): readonly ExecutionKey[] {
    const taken = this.#takenAway.filter((key) => this.#held.get(key) !== null)
    this.#takenAway = []
    return taken
  }

  async cancelled(_nodeId: string): Promise<readonly ExecutionKey[]> {
    return (await this.#link.ask('cancelled', {})).keys
  }

  /** An agent sends only its own heartbeat. */
  async beat([heartbeat]: readonly Heartbeat[]): Promise<readonly Exclude<BeatReply, 'unknown'>[]> {
    const {status} = heartbeat!
    const {answer, end} = await this.#link.ask('beat', {status, ...this.#held.inHand()})
    if (end.length > 0) {
      this.#takenAway = end
      this.#rung()
    }
    return [answer]
  }

  /**
   * All of earlier lives of this node is over and delivered: what the store still has of them and they never
   * started is given back, the rest is lost. Answers how many were given back.
   */
  async earlierOver(earlier: readonly PreviousIncarnation[]): Promise<number> {
    const {givenBack} = await this.#link.ask('earlier_over', livesOf(earlier))
    return givenBack ?? 0
  }
}

/** More than a message may hold is not told: then all of them is lost. */
function livesOf(earlier: readonly PreviousIncarnation[]): BodyOf<'earlier_over'> {
  const count = earlier.reduce((sum, {begun}) => sum + begun.size, 0)
  if (earlier.length > LIVES_MAX || count > BEGUN_MAX) return {}
  return {lives: earlier.map((life) => ({...life, begun: [...life.begun]}))}
}

function claimOf({key: {group, node, attempt}, token}: Claim): Claim & {key: ExecutionKey} {
  return {key: {group, node, attempt}, token}
}

/** One end as it travels, and as it is kept on disk until a server has it. */
export function finishJson(item: FinishItem): FinishJson {
  const {status, durationMs, exitCode, reason, outputHead, outputFoot, output, dropOutput, jitter} =
    item
  return {
    ...claimOf(item),
    status,
    durationMs,
    exitCode,
    reason: reason.slice(0, REASON_MAX),
    outputHead: outputHead.slice(0, ADDED_TEXT_MAX),
    // Its end says how the run ended.
    outputFoot: outputFoot.slice(-ADDED_TEXT_MAX),
    output: {...output, bytes: output.bytes.toBase64()},
    dropOutput,
    dice: jitter,
  }
}

/** The inverse of `finishJson`. */
export function finishItem({dice: jitter, output, ...json}: FinishJson): FinishItem {
  return {...json, jitter, output: {...output, bytes: Uint8Array.fromBase64(output.bytes)}}
}

function sizeOfFinish({output, outputHead, outputFoot}: FinishItem): number {
  return output.bytes.length + outputHead.length + outputFoot.length
}

/** In order, each part small enough for one question. */
function split<Item>(items: readonly Item[], bytesOf: (item: Item) => number): Item[][] {
  const parts: Item[][] = []
  let size = Infinity
  for (const item of items) {
    const bytes = ITEM_BYTES + bytesOf(item)
    const last = parts.at(-1)
    if (last === undefined || size + bytes > QUESTION_BYTES_MAX || last.length === ITEMS_MAX) {
      parts.push([item])
      size = bytes
    } else {
      last.push(item)
      size += bytes
    }
  }
  return parts
}

/*
 * What this node has in hand: executions it claimed and has not finished, and the claim that is under way.
 * Every heartbeat tells the server, which compares it with the store. Kept by the remote store, which sees
 * every claim and every finish; the flow knows nothing of it.
 */

export interface HeldExecution {
  readonly key: ExecutionKey
  readonly token: string
  readonly job: string
}

export class HeldExecutions {
  readonly #held = new Map<string, HeldExecution>()
  /** Token of the claim whose answer has not come yet: what it took is not lost. */
  claiming: string | null = null
  /** What the store last called the newest claim of this node; `null` before its first answer. */
  newest: string | null = null

  /** A claim was answered. */
  add(claimed: readonly ClaimedExecution[]): void {
    for (const {execution, token} of claimed) {
      const {group, node, attempt, jobName: job} = execution
      this.#held.set(executionId(execution), {key: {group, node, attempt}, token, job})
    }
  }

  /** Finished, or not ours after all. */
  remove(key: ExecutionKey): void {
    this.#held.delete(executionId(key))
  }

  get(key: ExecutionKey): HeldExecution | null {
    return this.#held.get(executionId(key)) ?? null
  }

  get size(): number {
    return this.#held.size
  }

  /** As a heartbeat carries it. */
  inHand() {
    const held = [...this.#held.values()].map(({key, token}) => ({key, token}))
    return {held, claiming: this.claiming}
  }
}
