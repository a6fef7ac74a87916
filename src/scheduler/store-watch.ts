/**
 * Notices that the store cannot be written, from the memory of this server: while it works, rules with the
 * condition `store` and the secrets of their channels are kept, and a probe is written. Every server sends
 * its own messages. Their ids are the same, because the store numbers its outages.
 */
import type {Limits} from '../config/limits.ts'
import {nextAttempt} from '../core/notice-delivery.ts'
import {evaluateNotices, type NewestMessages, type NewNotice} from '../core/notice-evaluation.ts'
import {type Incident, incidentKey} from '../core/notice-incidents.ts'
import type {NoticeMessage} from '../core/notice-message.ts'
import {type CompiledRule, compileRule} from '../core/notice-rule.ts'
import {CLUSTER_SUBJECT, forMsOf} from '../core/notice-sweeps.ts'
import {summaryOf} from '../core/notice-summary.ts'
import {roughDuration} from '../lib/duration.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {Events} from '../ports/events.ts'
import type {NoticeChannels, NoticeSender} from '../ports/notice-channel.ts'
import type {NoticeEngineStore} from '../ports/notice-engine-store.ts'
import type {Clock} from '../ports/runtime.ts'
import type {StoreAlarms} from '../ports/store-alarms.ts'
import type {Store} from '../ports/store.ts'

export interface StoreWatchOptions {
  readonly store: Pick<NoticeEngineStore, 'storeAlarms' | 'endStoreOutage'> & Pick<Store, 'probe'>
  readonly channels: Pick<NoticeChannels, 'prepare'>
  readonly clock: Clock
  readonly events: Events
  readonly limits: Pick<Limits, 'noticeIdleMs' | 'noticeProbeMs' | 'noticeProbeWaitMs'>
}

/** Message that is not delivered. Its times are by the clock of this server. */
interface Waiting {
  readonly message: NoticeMessage
  readonly channel: string
  readonly send: NoticeSender
  readonly madeAt: number
  readonly sendAt: number
}

/** Intervals without a step after which the process stood still: a delivery takes at most 10 s. */
const STOOD_STILL = 3
/** An outage has fewer: reminders are at least 5 min apart. */
const WAITING_MAX = 1_000

const ADVICE = 'Look at the disk and the log of the database. Belfry continues by itself.'

function overSentence(openedAt: number, closedAt: number | null): string {
  const length = closedAt === null ? '' : ` for ${roughDuration(closedAt - openedAt)}`
  const since = new Date(openedAt).toISOString()
  return `The store accepts writes again. It was open${length} since ${since}.`
}

export class StoreWatch implements Service {
  readonly #options: StoreWatchOptions
  readonly #loop: Loop
  readonly #aborts = new AbortController()
  #isNeeded = false
  #alarms: StoreAlarms | null = null
  #senders: ReadonlyMap<string, NoticeSender> = new Map()
  /** Monotonic begin of the newest probe that was written. */
  #writtenAt: number
  /** Monotonic begin of the probe that has no answer yet; `null` = none is under way. */
  #probingSince: number | null = null
  #hasFailed = false
  /** Monotonic. */
  #steppedAt: number
  #incidents: readonly Incident[] = []
  #newest: NewestMessages = new Map()
  /** Messages of this outage by rule and kind, for their ids. */
  readonly #counts = new Map<string, number>()
  #waiting: readonly Waiting[] = []

  constructor(options: StoreWatchOptions) {
    this.#options = options
    this.#writtenAt = options.clock.monotonicMs()
    this.#steppedAt = this.#writtenAt
    this.#loop = stepLoop('store_watch', {...options, step: () => this.#step()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#aborts.abort()
    await this.#loop.stop()
  }

  /** A rule has the condition `store`, or none has. */
  watch(isNeeded: boolean): void {
    if (isNeeded === this.#isNeeded) return
    this.#isNeeded = isNeeded
    this.#loop.wake()
  }

  async #step(): Promise<number> {
    const {limits, clock} = this.#options
    const isBusy = this.#incidents.some(({state}) => state === 'open') || this.#waiting.length > 0
    if (!this.#isNeeded && !isBusy) {
      this.#writtenAt = clock.monotonicMs()
      this.#steppedAt = this.#writtenAt
      return limits.noticeIdleMs
    }
    const now = clock.monotonicMs()
    // This process stood still: what the store did meanwhile is not known.
    if (now - this.#steppedAt > STOOD_STILL * limits.noticeProbeMs) this.#writtenAt = now
    await this.#probe()
    this.#steppedAt = clock.monotonicMs()
    this.#evaluate()
    await this.#deliver()
    if (!this.#isFailing) await this.#refresh()
    return this.#isFailing || this.#waiting.length > 0
      ? limits.noticeProbeWaitMs
      : limits.noticeProbeMs
  }

  get #isFailing(): boolean {
    return this.#hasFailed || this.#probingSince !== null
  }

  /** Writes a probe, and waits for it for a moment. One that hangs stays the only one. */
  async #probe(): Promise<void> {
    const {store, clock, limits} = this.#options
    if (this.#probingSince !== null) return
    const begun = clock.monotonicMs()
    this.#probingSince = begun
    const answer = store.probe().then(
      () => {
        this.#writtenAt = begun
        this.#hasFailed = false
      },
      () => (this.#hasFailed = true),
    )
    const settled = answer.finally(() => (this.#probingSince = null))
    const patience = Promise.withResolvers<void>()
    const timer = clock.after(limits.noticeProbeWaitMs, patience.resolve)
    await Promise.race([settled, patience.promise])
    timer.cancel()
  }

  /** Keeps what the next outage needs, and ends the one that is over. */
  async #refresh(): Promise<void> {
    const {store, channels} = this.#options
    const isOver = this.#incidents.length > 0 && this.#waiting.length === 0
    const isQuiet = this.#incidents.every(
      ({state, openDue, closeDue}) => state === 'closed' && openDue === null && closeDue === null,
    )
    if (isOver && isQuiet && this.#alarms !== null) {
      await store.endStoreOutage(this.#alarms.outage)
      this.#incidents = []
      this.#counts.clear()
    }
    const alarms = await store.storeAlarms()
    const senders = await Promise.all(
      alarms.channels.map(
        async (channel) => [channel.name, await channels.prepare(channel)] as const,
      ),
    )
    // The number of an outage whose messages are not all sent stays.
    const outage = this.#incidents.length === 0 ? alarms.outage : this.#alarms!.outage
    this.#alarms = {...alarms, outage}
    this.#senders = new Map(senders)
  }

  #evaluate(): void {
    const alarms = this.#alarms
    if (alarms === null) return
    const {clock} = this.#options
    const now = clock.now()
    const silentMs = clock.monotonicMs() - this.#writtenAt
    const since = new Date(now - silentMs).toISOString()
    const rules = alarms.rules.map(compileRule)
    const sweeps = rules.map((rule) => {
      const isFound =
        this.#isFailing && silentMs >= forMsOf('store', rule.definition.when['store']!)
      const sentence = `The store accepts no writes, the last at ${since}: nothing is launched or recorded.`
      const cause = 'the store cannot be written'
      const evidence = {at: now, launch: null, execution: '', sentence, cause}
      return {
        at: now,
        rule: rule.name,
        condition: 'store',
        found: isFound ? [{subject: CLUSTER_SUBJECT, evidence}] : [],
        over: this.#isFailing ? [] : [CLUSTER_SUBJECT],
      } as const
    })
    const {mutes} = alarms
    const [incidents, newest] = [this.#incidents, this.#newest]
    const result = evaluateNotices({now, rules, mutes, incidents, newest, facts: [], sweeps})
    const changed = new Map(result.incidents.map((incident) => [incident.key, incident]))
    const known = incidents.filter(({key}) => !changed.has(key))
    this.#incidents = [...known, ...changed.values()]
    this.#newest = result.newest
    this.#report(incidents)
    for (const notice of result.messages)
      this.#queue(
        notice,
        rules.find(({name}) => name === notice.rule)!,
        alarms,
      )
  }

  #report(before: readonly Incident[]): void {
    const {events} = this.#options
    const wasOpen = new Set(before.filter(({state}) => state === 'open').map(({key}) => key))
    for (const {key, rule, state} of this.#incidents) {
      if (state === 'open' && !wasOpen.has(key)) events.emit('incident_opened', {key, rule})
      if (state === 'closed' && wasOpen.has(key)) events.emit('incident_closed', {key, rule})
    }
  }

  #queue(notice: NewNotice, {name, severity, definition}: CompiledRule, alarms: StoreAlarms): void {
    const {kind, madeAt, sendAt, incidents} = notice
    const count = (this.#counts.get(`${name} ${kind}`) ?? 0) + 1
    this.#counts.set(`${name} ${kind}`, count)
    const common = {
      kind,
      rule: name,
      severity,
      cluster: alarms.clusterId,
      sentAt: madeAt,
      summary: summaryOf(kind, incidents),
      incidents: incidents.map(({state, openedAt, closedAt, count: facts, sentence}) => ({
        key: incidentKey(name, CLUSTER_SUBJECT, 'store'),
        job: '',
        openedAt,
        closedAt: state === 'closed' ? closedAt : null,
        count: facts,
        launch: null,
        execution: '',
        ...(kind !== 'opened' && state === 'closed'
          ? {sentences: [overSentence(openedAt, closedAt)], advice: ''}
          : {sentences: [sentence], advice: ADVICE}),
        outputTail: '',
        url: '',
        ownerEmail: '',
      })),
      more: 0,
      part: 0,
      attempt: 0,
      repeat: false,
    }
    const added = definition.to.flatMap((channel): readonly Waiting[] => {
      const send = this.#senders.get(channel)
      if (send === undefined) return []
      const of = [alarms.clusterId, alarms.outage, name, kind, count, channel]
      const message = {...common, id: `ntc_store_${of.join('_')}`}
      return [{message, channel, send, madeAt, sendAt}]
    })
    this.#waiting = [...this.#waiting, ...added].slice(-WAITING_MAX)
  }

  /** Sends what is due; all at once, as each channel has few. */
  async #deliver(): Promise<void> {
    const {clock} = this.#options
    const now = clock.now()
    // The oldest of each channel: a recovery never overtakes the message about the opening.
    const oldest = new Map(this.#waiting.toReversed().map((each) => [each.channel, each]))
    const first = [...oldest.values()].filter(({sendAt}) => sendAt <= now)
    const left = await Promise.all(first.map((each) => this.#send(each)))
    const ended = new Set(first.filter((_each, index) => left[index] === null))
    const again = new Map(first.map((each, index) => [each, left[index]]))
    this.#waiting = this.#waiting
      .filter((each) => !ended.has(each))
      .map((each) => again.get(each) ?? each)
  }

  /** Message to send later; `null` = it was sent, or is given up. */
  async #send(waiting: Waiting): Promise<Waiting | null> {
    const {events, clock} = this.#options
    const {channel, madeAt} = waiting
    const attempt = waiting.message.attempt + 1
    const message = {...waiting.message, attempt, sentAt: clock.now()}
    const {outcome, cause, retryAfterMs} = await waiting.send(message, this.#aborts.signal)
    const data = {channel, message: message.id, kind: message.kind, attempt}
    if (outcome === 'sent') {
      events.emit('notice_sent', data)
      return null
    }
    events.emit('notice_failed', {...data, cause})
    const next = nextAttempt(outcome, attempt, madeAt, clock.now(), retryAfterMs)
    return next === null ? null : {...waiting, message, sendAt: next}
  }
}
