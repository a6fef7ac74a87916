/**
 * The order in which pending launches are visited. New ones are decided at once. Waiting launches are
 * visited again in rounds: soon while they are few, and with pauses while they are very many, so that
 * reading them never keeps the leader or the store busy. A change of the nodes begins a round at once.
 */
import type {Limits} from '../config/limits.ts'
import type {Candidate} from '../core/node.ts'
import type {Clock} from '../ports/runtime.ts'

export interface RequestRoundsOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** Decides the pending launches after this number, in order. */
  readonly decidePage: (afterGroup: number) => Promise<RequestPage>
  readonly candidates: () => Promise<readonly Candidate[]>
  readonly limits: Pick<Limits, 'pollMs'>
}

export interface RequestPage {
  /** Pending launches on the page. */
  readonly rows: number
  /** Decisions that changed something. */
  readonly count: number
  /** Largest number on the page. */
  readonly last: number
  /** Start of the next page; `null` = this was the last page. */
  readonly next: number | null
}

/** Shortest time between two rounds: keeps notifications cheap. */
const REVISIT_MS = 250
/** A round over all is followed by a pause of this many times its length: at most a fifth of the time. */
const PAUSE_FACTOR = 4
/**
 * Numbers are taken before the commit, so a launch may appear after one with a larger number. No transaction
 * that stores a request takes longer than this.
 */
const SETTLE_MS = 5_000

export class RequestRounds {
  readonly #options: RequestRoundsOptions
  /** Largest number seen. */
  #seenGroup = 0
  /** `#seenGroup` at least `SETTLE_MS` ago: no launch with a smaller number appears any more. */
  #settled = {group: 0, nextGroup: 0, at: -Infinity}
  /** Monotonic start of the next round. */
  #revisitAt = -Infinity
  /** Earliest start of the next round over all that wait; other rounds begin at the settled number. */
  #fullScanAt = -Infinity
  /** Number after which the next page of the round begins; `null` = no round. */
  #revisiting: number | null = null
  #isFullScan = false
  /** Length of the round so far, and launches visited. */
  #roundMs = 0
  #roundRows = 0
  /** Some launch waited in the last round over all. */
  #hasWaiting = true
  /** Nodes at the start of the last round. */
  #nodes = ''
  #isRepeated = false

  constructor(options: RequestRoundsOptions) {
    this.#options = options
  }

  /** Begins a round over all at once: a decision was a conflict. */
  repeat(): void {
    this.#isRepeated = true
  }

  /** Decides one page of a round and one page of new requests: due jobs are decided between pages. */
  async decide(): Promise<{readonly count: number; readonly nextInMs: number}> {
    const {clock, limits} = this.#options
    const beganAt = clock.monotonicMs()
    const isDue = this.#isRepeated || beganAt >= this.#revisitAt
    if (this.#revisiting === null && isDue) await this.#beginRound(beganAt)
    let revisited = 0
    if (this.#revisiting !== null) {
      const page = await this.#decidePage(this.#revisiting)
      revisited = page.count
      this.#revisiting = page.next
      this.#roundMs += clock.monotonicMs() - beganAt
      this.#roundRows += page.rows
      if (page.next === null) {
        this.#endRound()
        // A conflict in an earlier page asks for another round.
        return {count: revisited, nextInMs: this.#isRepeated ? 0 : limits.pollMs}
      }
      if (page.next >= this.#seenGroup) return {count: revisited, nextInMs: 0}
    }
    const fresh = await this.#decidePage(this.#seenGroup)
    const count = revisited + fresh.count
    if (this.#revisiting !== null || fresh.next !== null) return {count, nextInMs: 0}
    // Too soon for a round: requests that wait, and those committed out of order, are due at `#revisitAt`.
    return {count, nextInMs: Math.max(0, this.#revisitAt - beganAt)}
  }

  async #beginRound(now: number): Promise<void> {
    if (now - this.#settled.at >= SETTLE_MS)
      this.#settled = {group: this.#settled.nextGroup, nextGroup: this.#seenGroup, at: now}
    const nodes = this.#hasWaiting ? describe(await this.#options.candidates()) : this.#nodes
    this.#isFullScan = this.#isRepeated || now >= this.#fullScanAt || nodes !== this.#nodes
    this.#nodes = nodes
    this.#isRepeated = false
    this.#revisiting = this.#isFullScan ? 0 : this.#settled.group
    this.#revisitAt = now + REVISIT_MS
    this.#roundMs = 0
    this.#roundRows = 0
  }

  #endRound(): void {
    if (!this.#isFullScan) return
    this.#hasWaiting = this.#roundRows > 0
    this.#fullScanAt = this.#options.clock.monotonicMs() + PAUSE_FACTOR * this.#roundMs
  }

  async #decidePage(afterGroup: number): Promise<RequestPage> {
    const page = await this.#options.decidePage(afterGroup)
    this.#seenGroup = Math.max(this.#seenGroup, page.last)
    return page
  }
}

/** The properties that decide which launches a node can take. */
function describe(candidates: readonly Candidate[]): string {
  return JSON.stringify(
    candidates.map(({id, name, tags, isCordoned}) => [id, name, tags, isCordoned]),
  )
}
