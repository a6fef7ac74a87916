/**
 * Notices of a server: evaluates facts, makes sweeps and delivers messages. The leader does so at once;
 * another server does what has waited for 15 s, so that nothing here needs a leader. Every server delivers.
 * Nothing of it delays a run: it has loops of its own. Without rules it looks once a minute.
 */
import type {Limits} from '../config/limits.ts'
import type {ClockGuard} from '../core/clock-guard.ts'
import type {DeliveryOutcome} from '../core/notice-delivery.ts'
import type {SweepKind} from '../core/notice-sweeps.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {Events} from '../ports/events.ts'
import type {NoticeChannels} from '../ports/notice-channel.ts'
import type {
  ClaimedNotice,
  EvaluateResult,
  NoticeEngineStore,
  NoticeReport,
  SweepStep,
} from '../ports/notice-engine-store.ts'
import type {NoticeStore} from '../ports/notice-store.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'

export interface NoticesOptions {
  readonly store: NoticeEngineStore & Pick<NoticeStore, 'channel'>
  readonly channels: Pick<NoticeChannels, 'send'>
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly wakeup: Pick<Wakeup, 'subscribe'>
  readonly limits: Pick<
    Limits,
    | 'noticeIdleMs'
    | 'noticeFollowerMs'
    | 'noticeClusterSweepMs'
    | 'noticeExecutionSweepMs'
    | 'noticeJobSweepMs'
    | 'noticeSweepRowsMax'
    | 'noticeSweepPage'
  >
  /** While it holds the clock, nothing is swept: every job would seem late. */
  readonly clockGuard: Pick<ClockGuard, 'trustedNow' | 'heldMs'>
  /** Incarnation of the node: claims carry it. */
  readonly sender: string
  readonly isLeader: () => boolean
  /** Absent = a server without such settings. */
  readonly report?: NoticeReport
  /** Called at each look: whether a rule is about the store itself. */
  readonly onWatch?: (watchesStore: boolean) => void
}

const PAUSE_MS = 1_000
const FOLLOWER_PAUSE_MS = 5_000
/** Messages are delivered when a look finds them. */
const UNTIL_WOKEN_MS = 60_000
const PRUNE_EVERY_MS = 10 * 60_000
/** Messages of a channel that this server sends at once after a pause; then one a second. */
const BURST_MAX = 10
const EVERY_MS = 1_000

interface Pace {
  readonly left: number
  /** Monotonic. */
  readonly at: number
}

export class Notices implements Service {
  readonly #options: NoticesOptions
  readonly #evaluation: Loop
  readonly #delivery: Loop
  readonly #paces = new Map<string, Pace>()
  readonly #aborts = new AbortController()
  readonly #sending = new Set<Promise<void>>()
  #prunedAt: number
  /** A claim is a write: without messages there is none. */
  #mayDeliver = false
  #unsubscribe: (() => void) | null = null

  constructor(options: NoticesOptions) {
    this.#options = options
    this.#prunedAt = options.clock.monotonicMs()
    this.#evaluation = stepLoop('notice_evaluation', {...options, step: () => this.#look()})
    this.#delivery = stepLoop('notice_delivery', {...options, step: () => this.#deliver()})
  }

  start(): void {
    this.#unsubscribe = this.#options.wakeup.subscribe('notices', () => this.#evaluation.wake())
    this.#evaluation.start()
    this.#delivery.start()
  }

  /** A message that is being sent is given up: another server sends it again when its claim expires. */
  async stop(): Promise<void> {
    this.#unsubscribe?.()
    this.#aborts.abort()
    await Promise.all([this.#evaluation.stop(), this.#delivery.stop()])
    await Promise.all(this.#sending)
  }

  async #look(): Promise<number> {
    const {store, clock, clockGuard, limits, isLeader, onWatch} = this.#options
    await this.#prune()
    const olderThanMs = isLeader() ? 0 : limits.noticeFollowerMs
    const due = await store.noticesDue({olderThanMs, sweepEveryMs: this.#sweepEveryMs})
    onWatch?.(due.watchesStore)
    if (due.deliver) this.#wakeDelivery()
    if (due.evaluate) await this.#evaluate(null)
    clockGuard.trustedNow(due.now, clock.monotonicMs())
    if (clockGuard.heldMs === 0) for (const kind of due.sweeps) await this.#sweep(kind)
    if (due.isIdle) return limits.noticeIdleMs
    return isLeader() ? PAUSE_MS : FOLLOWER_PAUSE_MS
  }

  /** Times between two sweeps. Any server reads the state of the cluster: the leader may be what failed. */
  get #sweepEveryMs(): Readonly<Record<SweepKind, number>> {
    const {limits, isLeader} = this.#options
    const slackMs = isLeader() ? 0 : limits.noticeFollowerMs
    return {
      cluster: limits.noticeClusterSweepMs,
      executions: limits.noticeExecutionSweepMs + slackMs,
      jobs: limits.noticeJobSweepMs + slackMs,
    }
  }

  /**
   * Makes a sweep, step by step. Only a step that changes something is written. After a crash the rest waits
   * for the next sweep, by any server.
   */
  async #sweep(kind: SweepKind): Promise<void> {
    const {store, limits} = this.#options
    if (!(await store.claimSweep({kind, everyMs: this.#sweepEveryMs[kind]}))) return
    const rowsMax = kind === 'jobs' ? limits.noticeSweepPage : limits.noticeSweepRowsMax
    let after: string | null = ''
    while (after !== null && !this.#aborts.signal.aborted) {
      const step: SweepStep = {kind, after, rowsMax}
      const read = await store.sweepNotices(step)
      after = read.changes ? (await this.#evaluate(step)).next : read.next
    }
  }

  /** Evaluates all facts, then the step of a sweep. */
  async #evaluate(sweep: SweepStep | null): Promise<EvaluateResult> {
    const {store, random, events, limits, isLeader, report} = this.#options
    const olderThanMs = isLeader() ? 0 : limits.noticeFollowerMs
    for (;;) {
      const result = await store.evaluateNotices({
        olderThanMs,
        sweep,
        seed: random.id(),
        ...(report && {report}),
      })
      for (const change of result.opened) events.emit('incident_opened', change)
      for (const change of result.closed) events.emit('incident_closed', change)
      if (result.dropped > 0) events.emit('notice_facts_dropped', {count: result.dropped})
      if (result.messages > 0) this.#wakeDelivery()
      if (!result.hasMore || this.#aborts.signal.aborted) return result
    }
  }

  async #prune(): Promise<void> {
    const {store, clock, isLeader} = this.#options
    const now = clock.monotonicMs()
    if (!isLeader() || now - this.#prunedAt < PRUNE_EVERY_MS) return
    this.#prunedAt = now
    await store.pruneNotices()
  }

  #wakeDelivery(): void {
    this.#mayDeliver = true
    this.#delivery.wake()
  }

  async #deliver(): Promise<number> {
    const {store, sender} = this.#options
    if (!this.#mayDeliver) return UNTIL_WOKEN_MS
    this.#mayDeliver = false
    const free = Object.fromEntries(
      [...this.#paces.keys()].map((channel) => [channel, Math.floor(this.#paceOf(channel).left)]),
    )
    const claimed = await store.claimNotices({sender, free, otherwise: BURST_MAX})
    for (const notice of claimed) {
      const pace = this.#paceOf(notice.channel)
      this.#paces.set(notice.channel, {...pace, left: pace.left - 1})
      const sending = this.#send(notice).finally(() => this.#sending.delete(sending))
      this.#sending.add(sending)
    }
    if (claimed.length === 0) return UNTIL_WOKEN_MS
    this.#mayDeliver = true
    return PAUSE_MS
  }

  #paceOf(channel: string): Pace {
    const at = this.#options.clock.monotonicMs()
    const known = this.#paces.get(channel) ?? {left: BURST_MAX, at}
    return {left: Math.min(BURST_MAX, known.left + (at - known.at) / EVERY_MS), at}
  }

  /** Never rejects. What fails here is sent again when the claim expires. */
  async #send({channel, message}: ClaimedNotice): Promise<void> {
    const {store, events, sender} = this.#options
    try {
      const delivery = await this.#attempt({channel, message})
      if (this.#aborts.signal.aborted) return
      const {id, attempt, kind} = message
      const isMarked = await store.markNotice({...delivery, id, channel, attempt, sender})
      if (!isMarked) return
      const data = {channel, message: id, kind, attempt}
      if (delivery.outcome === 'sent') events.emit('notice_sent', data)
      else events.emit('notice_failed', {...data, cause: delivery.cause})
      // The next message of the channel may wait for this one.
      this.#wakeDelivery()
    } catch (error) {
      events.emit('step_failed', {step: 'notice_delivery', message: String(error)})
    }
  }

  async #attempt({
    channel: name,
    message,
  }: ClaimedNotice): Promise<{readonly outcome: DeliveryOutcome; readonly cause: string}> {
    const {store, channels} = this.#options
    const channel = await store.channel(name)
    if (channel === null) return {outcome: 'permanent', cause: 'the channel was deleted'}
    if (!channel.enabled) return {outcome: 'permanent', cause: 'the channel is disabled'}
    return await channels.send(channel, message, this.#aborts.signal)
  }
}
