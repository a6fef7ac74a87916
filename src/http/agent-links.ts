/**
 * Connections of agents: how many are open, and how fast a token opens them. A join is several writes, so a
 * token that reconnects all the time is refused before its upgrade. Agents that lost their server connect
 * once each, and are not.
 */
import type {WebSocket} from 'ws'
import {type Principal, TOKENS_MAX} from '../core/access/authorization.ts'
import type {Clock} from '../ports/runtime.ts'
import type {HttpLimits} from './options.ts'

export type LinkLimits = Pick<
  HttpLimits,
  | 'agentsMax'
  | 'agentTokenLinksMax'
  | 'joinTokenLinksMax'
  | 'agentConnectGapMs'
  | 'agentConnectsPerSecond'
>

/** Why a token cannot have another connection now. */
export interface LinkRefusal {
  readonly why: string
  readonly retryAfterMs: number
}

const RETRY_MS = 5_000
/** Connections that a token opens at once. Agents with a join token need one each, for a moment. */
const BURSTS = {agent: 8, join: 200} as const
/**
 * An agent that connects this rarely has no part in the shared pace: agents that lost their server come back
 * at once, also while others reconnect all the time.
 */
const RARE = {gapMs: 30_000, burst: 2}
/** Seconds of the connections of all agents that reconnect, which may be opened at once. */
const SHARED_BURST_SECONDS = 2

/** Spaces events by a gap, after a burst. Times are monotonic. */
class Pace {
  readonly #gapMs: number
  readonly #burst: number
  /** Earlier events have used the pace up to here. */
  #until = -Infinity

  constructor(gapMs: number, burst: number) {
    this.#gapMs = gapMs
    this.#burst = burst
  }

  /** Wait until the next event is allowed; 0 = it is allowed now. */
  waitMs(now: number): number {
    return Math.max(0, this.#until - now - (this.#burst - 1) * this.#gapMs)
  }

  use(now: number): void {
    this.#until = Math.max(this.#until, now) + this.#gapMs
  }
}

/**
 * Open connections. A single token cannot take all places. If all are taken, the connection that waits
 * longest for its first message is ended.
 */
export class AgentConnectionLimits {
  readonly #limits: LinkLimits
  readonly #clock: Pick<Clock, 'monotonicMs'>
  readonly #ofToken = new Map<string, number>()
  readonly #open = new Set<WebSocket>()
  /** Connections that have sent no message yet; the oldest first. */
  readonly #silent = new Set<WebSocket>()
  readonly #paces = new Map<string, {readonly own: Pace; readonly rare: Pace}>()
  /** Tokens of one join token are as many as its uses: all that reconnect share this. */
  readonly #shared: Pace

  constructor(limits: LinkLimits, clock: Pick<Clock, 'monotonicMs'>) {
    this.#limits = limits
    this.#clock = clock
    const {agentConnectsPerSecond: perSecond} = limits
    this.#shared = new Pace(1_000 / perSecond, perSecond * SHARED_BURST_SECONDS)
  }

  /** Why the caller cannot have another one; `null` = it can, and has used its pace. */
  refusal(principal: Principal): LinkRefusal | null {
    const {agentsMax} = this.#limits
    const ofTokenMax = this.#ofTokenMax(principal)
    if ((this.#ofToken.get(principal.accessor) ?? 0) >= ofTokenMax)
      return {why: `its token has ${ofTokenMax} connections`, retryAfterMs: RETRY_MS}
    if (this.#open.size >= agentsMax && this.#silent.size === 0)
      return {why: `the server has ${agentsMax} agents`, retryAfterMs: RETRY_MS}
    const retryAfterMs = this.#takePace(principal)
    return retryAfterMs === 0 ? null : {why: 'its token connects too often', retryAfterMs}
  }

  add({accessor}: Principal, added: WebSocket): void {
    const [oldest] = this.#silent
    if (oldest !== undefined && this.#open.size >= this.#limits.agentsMax) {
      this.#silent.delete(oldest)
      oldest.terminate()
    }
    this.#open.add(added)
    this.#silent.add(added)
    this.#ofToken.set(accessor, (this.#ofToken.get(accessor) ?? 0) + 1)
    added.once('message', () => this.#silent.delete(added))
    added.once('close', () => {
      this.#open.delete(added)
      this.#silent.delete(added)
      const left = this.#ofToken.get(accessor)! - 1
      if (left > 0) this.#ofToken.set(accessor, left)
      else this.#ofToken.delete(accessor)
    })
  }

  /** A management token may connect all agents. */
  #ofTokenMax({kind}: Principal): number {
    const {agentTokenLinksMax, joinTokenLinksMax} = this.#limits
    if (kind === 'agent') return agentTokenLinksMax
    return kind === 'join' ? joinTokenLinksMax : Infinity
  }

  /** The wait until the token may connect; 0 = it connects. A refusal uses nothing up. */
  #takePace({kind, accessor}: Principal): number {
    if (kind !== 'agent' && kind !== 'join') return 0
    const now = this.#clock.monotonicMs()
    const {agentConnectGapMs, agentConnectsPerSecond} = this.#limits
    const gapMs = kind === 'agent' ? agentConnectGapMs : 1_000 / agentConnectsPerSecond
    const paces = this.#paces.get(accessor) ?? {
      own: new Pace(gapMs, BURSTS[kind]),
      rare: new Pace(RARE.gapMs, RARE.burst),
    }
    const {own, rare} = paces
    const other = kind === 'join' ? null : rare.waitMs(now) > 0 ? this.#shared : rare
    const waitMs = Math.max(own.waitMs(now), other?.waitMs(now) ?? 0)
    if (waitMs > 0) return waitMs
    own.use(now)
    other?.use(now)
    const [oldest] = this.#paces.keys()
    this.#paces.delete(accessor)
    if (this.#paces.size >= TOKENS_MAX && oldest !== undefined) this.#paces.delete(oldest)
    this.#paces.set(accessor, paces)
    return 0
  }
}
