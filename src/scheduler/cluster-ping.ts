/**
 * Pings for the cluster, leader only: a request every minute to each monitor that expects one while Belfry
 * works. If all servers are down, the monitor raises the alarm. Nothing is sent while planned times are
 * undecided, while the clock guard holds the clock, or under a term that is over. It has a loop of its own,
 * so a monitor that does not answer delays no launch.
 */
import type {Limits} from '../config/limits.ts'
import type {ClockGuard} from '../core/clock-guard.ts'
import {type ChannelRecord, pingsCluster} from '../core/notice-channel.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {HistoryStore} from '../ports/history-store.ts'
import type {LeaderStore} from '../ports/leader-store.ts'
import type {NoticeChannels} from '../ports/notice-channel.ts'
import type {ChannelUse, NoticeStore} from '../ports/notice-store.ts'
import type {Random} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import type {TermOptions} from './leadership.ts'

export interface ClusterPingOptions extends TermOptions {
  readonly store: Pick<NoticeStore, 'channels'> &
    Pick<HistoryStore, 'totals'> &
    Pick<LeaderStore, 'recordPings'> &
    Pick<Store, 'info'>
  readonly channels: Pick<NoticeChannels, 'send'>
  readonly random: Random
  readonly clockGuard: Pick<ClockGuard, 'heldMs'>
  readonly limits: Pick<Limits, 'noticePingMs' | 'noticePingAgainMs'>
}

export class ClusterPing implements Service {
  readonly #options: ClusterPingOptions
  readonly #loop: Loop
  readonly #aborts = new AbortController()
  /** Outcomes that the next write records: it comes before the next pings. */
  #uses: readonly ChannelUse[] = []

  constructor(options: ClusterPingOptions) {
    this.#options = options
    this.#loop = stepLoop('cluster_ping', {...options, step: () => this.#step()})
  }

  start(): void {
    this.#loop.start()
  }

  /** A ping that is being sent is given up: the next leader sends its own. */
  async stop(): Promise<void> {
    this.#aborts.abort()
    await this.#loop.stop()
  }

  async #step(): Promise<number> {
    const {store, term, clock, clockGuard, limits} = this.#options
    const beganAt = clock.monotonicMs()
    const channels = (await store.channels()).filter((each) => each.enabled && pingsCluster(each))
    if (channels.length === 0) return limits.noticePingMs
    const {lateMs} = await store.totals()
    if (lateMs > limits.noticePingMs || clockGuard.heldMs > 0) return limits.noticePingAgainMs
    // A write that succeeds under this term: no other server leads, and the store can be written.
    await store.recordPings({term, uses: this.#uses})
    this.#uses = []
    const {clusterId} = await store.info()
    this.#uses = await Promise.all(channels.map((each) => this.#ping(each, clusterId)))
    return Math.max(0, limits.noticePingMs - (clock.monotonicMs() - beganAt))
  }

  /** Takes at most 10 s. A failure is not repeated: the next ping follows soon. */
  async #ping(channel: ChannelRecord, cluster: string): Promise<ChannelUse> {
    const {channels, random, clock, events} = this.#options
    const {name} = channel
    const message = {
      id: `ntc_${random.id()}`,
      attempt: 1,
      repeat: false,
      kind: 'alive',
      rule: '',
      severity: 'info',
      cluster,
      sentAt: clock.now(),
      summary: 'Belfry works',
      incidents: [],
      more: 0,
      part: 0,
    } as const
    const {outcome, cause} = await channels.send(channel, message, this.#aborts.signal)
    const data = {channel: name, message: message.id, kind: message.kind, attempt: 1}
    if (outcome === 'sent') events.emit('notice_sent', data)
    else if (!this.#aborts.signal.aborted) events.emit('notice_failed', {...data, cause})
    return {name, error: outcome === 'sent' ? null : cause}
  }
}
