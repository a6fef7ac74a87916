/**
 * Notices of a server: evaluates facts and delivers messages. The leader evaluates at once; another server
 * does what has waited for 15 s, so that nothing here needs a leader. Every server delivers. Nothing of it
 * delays a run: it has loops of its own.
 */
import type {DeliveryOutcome} from '../core/notice-delivery.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {Events} from '../ports/events.ts'
import type {NoticeChannels} from '../ports/notice-channel.ts'
import type {ClaimedNotice, NoticeEngineStore, NoticeReport} from '../ports/notice-engine-store.ts'
import type {NoticeStore} from '../ports/notice-store.ts'
import type {Clock, Random} from '../ports/runtime.ts'

export interface NoticesOptions {
  readonly store: NoticeEngineStore & Pick<NoticeStore, 'channel'>
  readonly channels: Pick<NoticeChannels, 'send'>
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  /** Incarnation of the node: claims carry it. */
  readonly sender: string
  readonly isLeader: () => boolean
  /** Absent = a server without such settings. */
  readonly report?: NoticeReport
}

/** Waits of less than this are the leader's. */
const FOLLOWER_AFTER_MS = 15_000
const PAUSE_MS = 1_000
const FOLLOWER_PAUSE_MS = 5_000
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
  readonly #loops: readonly Loop[]
  readonly #paces = new Map<string, Pace>()
  readonly #aborts = new AbortController()
  readonly #sending = new Set<Promise<void>>()
  #prunedAt: number

  constructor(options: NoticesOptions) {
    this.#options = options
    this.#prunedAt = options.clock.monotonicMs()
    this.#loops = [
      stepLoop('notice_evaluation', {...options, step: () => this.#evaluate()}),
      stepLoop('notice_delivery', {...options, step: () => this.#deliver()}),
    ]
  }

  start(): void {
    for (const loop of this.#loops) loop.start()
  }

  /** A message that is being sent is given up: another server sends it again when its claim expires. */
  async stop(): Promise<void> {
    this.#aborts.abort()
    await Promise.all(this.#loops.map((loop) => loop.stop()))
    await Promise.all(this.#sending)
  }

  async #evaluate(): Promise<number> {
    const {store, random, events, isLeader, report} = this.#options
    const olderThanMs = isLeader() ? 0 : FOLLOWER_AFTER_MS
    const pauseMs = isLeader() ? PAUSE_MS : FOLLOWER_PAUSE_MS
    await this.#prune()
    const due = await store.noticesDue(olderThanMs)
    if (!due.evaluate) return pauseMs
    const result = await store.evaluateNotices({
      olderThanMs,
      sweeps: [],
      seed: random.id(),
      ...(report && {report}),
    })
    for (const change of result.opened) events.emit('incident_opened', change)
    for (const change of result.closed) events.emit('incident_closed', change)
    if (result.dropped > 0) events.emit('notice_facts_dropped', {count: result.dropped})
    if (result.messages > 0) this.#loops[1]!.wake()
    return result.hasMore ? 0 : pauseMs
  }

  async #prune(): Promise<void> {
    const {store, clock, isLeader} = this.#options
    const now = clock.monotonicMs()
    if (!isLeader() || now - this.#prunedAt < PRUNE_EVERY_MS) return
    this.#prunedAt = now
    await store.pruneNotices()
  }

  async #deliver(): Promise<number> {
    const {store, sender} = this.#options
    if (!(await store.noticesDue(0)).deliver) return PAUSE_MS
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
      this.#loops[1]!.wake()
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
