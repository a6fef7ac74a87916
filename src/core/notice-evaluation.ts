/**
 * Evaluation of notices: facts and sweeps change incidents, and incidents become messages. Time moves from
 * event to event, so the result is the same however often and however late it is evaluated. Pure: the
 * store loads the incidents that are concerned and writes the result in one transaction.
 */
import {matchesText} from './access/glob.ts'
import {
  closed,
  type Effect,
  effectsOf,
  type Evidence,
  type Incident,
  incidentKey,
  isNewer,
  newIncident,
  type NoticeFact,
  opened,
} from './notice-incidents.ts'
import type {MessageKind} from './notice-message.ts'
import {type CompiledRule, type Condition, quietUntil} from './notice-rule.ts'
import type {Found} from './notice-sweeps.ts'

/** Openings of a rule after a message wait this long; so do recoveries. */
const SPACING_MS = 60_000
const FLAPPING_OVER_MS = 30 * 60_000

export interface NoticeMute {
  /** `''` = every rule. */
  readonly rule: string
  readonly jobs: string
  readonly from: number
  /** Exclusive. */
  readonly until: number
}

/** Subjects of a condition at an instant, compared with its open incidents. */
export interface Sweep {
  readonly at: number
  readonly rule: string
  readonly condition: Condition
  /** Subjects that it holds for. An open incident of them stays as it is. */
  readonly found: readonly Found[]
  /** Subjects that it no longer holds for: their incidents are over. */
  readonly over: readonly string[]
}

/** When the newest message of each kind was made, by rule. */
export type NewestMessages = ReadonlyMap<string, Readonly<Partial<Record<MessageKind, number>>>>

export interface Evaluation {
  readonly now: number
  readonly rules: readonly CompiledRule[]
  readonly mutes: readonly NoticeMute[]
  /** All that are waiting, have something due, or are about a subject of the facts and sweeps. */
  readonly incidents: readonly Incident[]
  readonly newest: NewestMessages
  /** The oldest first. */
  readonly facts: readonly NoticeFact[]
  readonly sweeps: readonly Sweep[]
  /** False = the author of the rule may not read the job. Absent = it may. */
  readonly isReadable?: (rule: string, job: string) => boolean
}

/** A message before it has channels. */
export interface NewNotice {
  readonly rule: string
  readonly kind: MessageKind
  readonly madeAt: number
  /** Held by quiet hours until then. */
  readonly sendAt: number
  /** Copies from when the message was made. */
  readonly incidents: readonly Incident[]
}

export interface Evaluated {
  /** Only those that changed. */
  readonly incidents: readonly Incident[]
  readonly messages: readonly NewNotice[]
  readonly newest: NewestMessages
}

export function evaluateNotices(evaluation: Evaluation): Evaluated {
  return new Evaluating(evaluation).run()
}

/** The next instant at which something happens to the incident without a fact; `null` = never. */
export function wakeAt(incident: Incident): number | null {
  const {opensAt, endsAt, openDue, closeDue, repeatAt, flapping} = incident
  const calm = flapping === null ? null : flapping.changedAt + FLAPPING_OVER_MS
  const times = [opensAt, endsAt, openDue, closeDue, repeatAt, flapping?.due ?? null, calm]
  const earliest = Math.min(...times.filter((time) => time !== null))
  return earliest === Infinity ? null : earliest
}

type Event = {readonly at: number} & (
  | {readonly kind: 'fact'; readonly fact: NoticeFact}
  | {readonly kind: 'sweep'; readonly sweep: Sweep}
)

type Hold = {readonly until: number; readonly by: 'quiet' | 'mute'}

class Evaluating {
  readonly #in: Evaluation
  readonly #rules: ReadonlyMap<string, CompiledRule>
  /** Keys: rule, then key of the incident. */
  readonly #incidents = new Map<string, Map<string, Incident>>()
  readonly #before = new Map<string, Incident>()
  readonly #newest: Map<string, Partial<Record<MessageKind, number>>>
  readonly #messages: NewNotice[] = []
  /** No timer of the rule is due before this. Too early is harmless. */
  readonly #wakes = new Map<string, number>()

  constructor(evaluation: Evaluation) {
    this.#in = evaluation
    this.#rules = new Map(evaluation.rules.map((rule) => [rule.name, rule]))
    this.#newest = new Map([...evaluation.newest].map(([rule, kinds]) => [rule, {...kinds}]))
    for (const incident of evaluation.incidents) {
      this.#before.set(incident.key, incident)
      this.#set(incident)
    }
  }

  run(): Evaluated {
    this.#closeOrphans()
    for (const rule of this.#rules.values()) this.#wakes.set(rule.name, this.#nextTimer(rule))
    for (const event of this.#events()) {
      this.#fireTimers(event.at)
      if (event.kind === 'fact') this.#applyFact(event.fact)
      else this.#applySweep(event.sweep)
    }
    this.#fireTimers(this.#in.now + 1)
    const all = [...this.#incidents.values()].flatMap((byKey) => [...byKey.values()])
    return {
      incidents: all.filter((incident) => this.#before.get(incident.key) !== incident),
      messages: this.#messages,
      newest: this.#newest,
    }
  }

  #events(): readonly Event[] {
    const facts = this.#in.facts.map((fact) => ({at: fact.at, kind: 'fact', fact}) as const)
    const sweeps = this.#in.sweeps.map((sweep) => ({at: sweep.at, kind: 'sweep', sweep}) as const)
    return [...facts, ...sweeps].toSorted((a, b) => a.at - b.at)
  }

  #set(incident: Incident): void {
    const byKey = this.#incidents.get(incident.rule) ?? new Map<string, Incident>()
    this.#incidents.set(incident.rule, byKey.set(incident.key, incident))
    const wake = wakeAt(incident) ?? Infinity
    this.#wakes.set(incident.rule, Math.min(this.#wakes.get(incident.rule) ?? Infinity, wake))
  }

  #of(rule: CompiledRule): readonly Incident[] {
    return [...(this.#incidents.get(rule.name)?.values() ?? [])]
  }

  /** Incidents of rules and conditions that are gone, or unreadable now, close without a message. */
  #closeOrphans(): void {
    for (const incident of this.#before.values()) {
      const rule = this.#rules.get(incident.rule)
      const isMeant = Object.hasOwn(rule?.definition.when ?? {}, incident.condition)
      const isReadable = incident.job === '' || (rule && this.#isReadable(rule, incident.job))
      if (!isMeant || isReadable !== true) this.#set(closed(incident, this.#in.now, 0, true))
    }
  }

  #applyFact(fact: NoticeFact): void {
    for (const rule of this.#rules.values()) {
      if (!this.#isReadable(rule, fact.job.name)) continue
      for (const {condition, effect} of effectsOf(rule.definition, fact))
        this.#applyEffect(rule, condition, effect, fact)
    }
  }

  #isReadable({name}: CompiledRule, job: string): boolean {
    return this.#in.isReadable?.(name, job) ?? true
  }

  #applyEffect(rule: CompiledRule, condition: Condition, effect: Effect, fact: NoticeFact): void {
    const {at} = fact
    const key = incidentKey(rule.name, fact.job.name, condition)
    const known = this.#incidents.get(rule.name)?.get(key)
    const incident = known ?? newIncident(rule.name, condition, {subject: fact.job.name, at})
    switch (effect.kind) {
      case 'open':
        return this.#set(opened(incident, fact, rule.groupWaitMs, effect.endsAt))
      case 'wait':
        return incident.state === 'closed'
          ? this.#set(waiting(incident, fact, effect.opensAt))
          : undefined
      case 'close':
        if (known !== undefined && (fact.kind !== 'ended' || isNewer(known, fact))) {
          const {kind, launch, execution} = fact
          const closing = known.state === 'open' ? {kind, launch, execution} : known.closing
          this.#set(closed({...known, closing}, at, rule.groupWaitMs, false))
        }
        return
      case 'collect': {
        const times = [...incident.times.filter((time) => time > at - effect.withinMs), at]
        const collected = {...incident, times: times.slice(-effect.times)}
        const endsAt = at + effect.withinMs
        if (incident.state === 'open' || collected.times.length >= effect.times)
          return this.#set(opened(collected, fact, rule.groupWaitMs, endsAt))
        return this.#set(collected)
      }
      case 'tell': {
        const hold = this.#holdAt(rule, incident, at)
        if (hold?.by === 'mute') return
        const told = {...opened(incident, fact, 0), state: 'closed', closedAt: at} as const
        const sendAt = this.#release(rule, incident, at)
        this.#add(rule, condition as MessageKind, at, [told], sendAt)
      }
    }
  }

  #applySweep({at, rule: name, condition, found, over}: Sweep): void {
    const rule = this.#rules.get(name)
    if (rule === undefined) return
    const known = (subject: string) =>
      this.#incidents.get(name)?.get(incidentKey(name, subject, condition))
    for (const {subject, evidence} of found) {
      const incident = known(subject) ?? newIncident(name, condition, {subject, at})
      if (incident.state !== 'open') this.#set(opened(incident, evidence, rule.groupWaitMs))
    }
    for (const subject of over) {
      const incident = known(subject)
      if (incident !== undefined) this.#set(closed(incident, at, rule.groupWaitMs, false))
    }
  }

  /** Fires all timers before `end`, in the order of their times. */
  #fireTimers(end: number): void {
    for (;;) {
      let first: CompiledRule | null = null
      for (const rule of this.#rules.values())
        if (first === null || this.#wakeOf(rule) < this.#wakeOf(first)) first = rule
      if (first === null || this.#wakeOf(first) >= end) return
      const at = this.#nextTimer(first)
      if (at < end) this.#fire(first, at)
      this.#wakes.set(first.name, this.#nextTimer(first))
    }
  }

  #wakeOf({name}: CompiledRule): number {
    return this.#wakes.get(name) ?? Infinity
  }

  /** Exact time of the next timer of the rule. */
  #nextTimer(rule: CompiledRule): number {
    let next = Infinity
    for (const incident of this.#of(rule))
      for (const [, at] of this.#timersOf(rule, incident)) next = Math.min(next, at)
    return next
  }

  #timersOf(rule: CompiledRule, incident: Incident): readonly (readonly [Timer, number])[] {
    const {opensAt, endsAt, repeatAt, flapping} = incident
    const timers: (readonly [Timer, number])[] = []
    if (opensAt !== null) timers.push(['opens', opensAt])
    if (endsAt !== null) timers.push(['ends', endsAt])
    if (flapping !== null) timers.push(['calm', flapping.changedAt + FLAPPING_OVER_MS])
    for (const [timer, due] of [
      ['opened', incident.openDue],
      ['closed', isClosable(incident) ? incident.closeDue : null],
      ['flapping', flapping?.due ?? null],
      ['reminder', repeatAt],
    ] as const)
      if (due !== null)
        timers.push([timer, this.#release(rule, incident, this.#spaced(rule, timer, due))])
    return timers
  }

  #fire(rule: CompiledRule, at: number): void {
    const due = (timer: Timer) =>
      this.#of(rule).filter((incident) =>
        this.#timersOf(rule, incident).some(([kind, time]) => kind === timer && time <= at),
      )
    for (const incident of due('opens'))
      this.#set(opened(incident, evidenceOf(incident, at), rule.groupWaitMs))
    for (const incident of due('ends')) this.#set(closed(incident, at, rule.groupWaitMs, false))
    for (const incident of due('calm')) this.#set(calmed(incident, at))
    if (due('opened').length > 0) this.#tellOpened(rule, at)
    if (due('closed').length > 0) this.#tellClosed(rule, at)
    const flapping = due('flapping')
    if (flapping.length > 0) this.#tellFlapping(rule, at, flapping)
    const repeated = due('reminder')
    if (repeated.length > 0) this.#remind(rule, at, repeated)
  }

  /** Tells all openings that wait, with recoveries if quiet hours end here. */
  #tellOpened(rule: CompiledRule, at: number): void {
    const pending = this.#of(rule).filter(
      (incident) => incident.openDue !== null && this.#holdAt(rule, incident, at) === null,
    )
    const heldBy = new Map(
      pending.map((incident) => {
        const hold = this.#holdAt(rule, incident, this.#spaced(rule, 'opened', incident.openDue!))
        return [incident.key, hold?.by]
      }),
    )
    // An incident that opened and closed during a mute gets no message.
    const [muted, told] = split(pending, ({key, state}) => {
      return heldBy.get(key) === 'mute' && state !== 'open'
    })
    for (const incident of muted) this.#set({...incident, openDue: null, closeDue: null})
    if (told.some(({key}) => heldBy.get(key) === 'quiet')) return this.#tellDigest(rule, at, told)
    if (told.length === 0) return
    this.#add(rule, 'opened', at, told)
    for (const incident of told) this.#set(toldOpen(rule, incident, at))
  }

  #tellClosed(rule: CompiledRule, at: number): void {
    const pending = this.#closable(rule, at)
    const isHeld = pending.some((incident) => {
      const due = this.#spaced(rule, 'closed', incident.closeDue!)
      return this.#holdAt(rule, incident, due)?.by === 'quiet'
    })
    if (isHeld) return this.#tellDigest(rule, at, [])
    if (rule.definition.recovered) this.#add(rule, 'closed', at, pending)
    for (const incident of pending) this.#set(toldClosed(incident, at))
  }

  #closable(rule: CompiledRule, at: number): readonly Incident[] {
    return this.#of(rule).filter(
      (incident) =>
        isClosable(incident) &&
        incident.closeDue !== null &&
        this.#holdAt(rule, incident, at) === null,
    )
  }

  /** A digest at the end of quiet hours lists all that opened and closed meanwhile. */
  #tellDigest(rule: CompiledRule, at: number, openings: readonly Incident[]): void {
    const closings = this.#closable(rule, at)
    const {recovered} = rule.definition
    const shown = recovered ? [...openings, ...closings] : openings
    if (shown.length > 0) this.#add(rule, 'digest', at, shown)
    for (const incident of openings)
      this.#set(
        incident.state === 'open'
          ? toldOpen(rule, incident, at)
          : toldClosed({...incident, openDue: null}, at),
      )
    for (const incident of closings) this.#set(toldClosed(incident, at))
  }

  #tellFlapping(rule: CompiledRule, at: number, incidents: readonly Incident[]): void {
    this.#add(rule, 'flapping', at, incidents)
    for (const incident of incidents) {
      const flapping = {...incident.flapping!, due: null}
      this.#set({...incident, flapping, isTold: true, lastSentAt: at})
    }
  }

  #remind(rule: CompiledRule, at: number, incidents: readonly Incident[]): void {
    this.#add(rule, 'reminder', at, incidents)
    for (const incident of incidents)
      this.#set({...incident, lastSentAt: at, repeatAt: this.#nextRepeat(rule, at)})
  }

  /** Repetitions that a late evaluation has passed are not sent. */
  #nextRepeat({repeatMs}: CompiledRule, at: number): number | null {
    if (repeatMs === null) return null
    return at + repeatMs * Math.max(1, Math.ceil((this.#in.now + 1 - at) / repeatMs))
  }

  #add(
    rule: CompiledRule,
    kind: MessageKind,
    madeAt: number,
    incidents: readonly Incident[],
    sendAt = madeAt,
  ): void {
    this.#messages.push({rule: rule.name, kind, madeAt, sendAt, incidents})
    const newest = this.#newest.get(rule.name) ?? {}
    const kinds = kind === 'digest' ? (['digest', 'opened', 'closed'] as const) : [kind]
    this.#newest.set(rule.name, {
      ...newest,
      ...Object.fromEntries(kinds.map((each) => [each, madeAt])),
    })
  }

  #spaced({name}: CompiledRule, timer: MessageTimer, due: number): number {
    const newest = this.#newest.get(name)?.[timer]
    return newest === undefined ? due : Math.max(due, newest + SPACING_MS)
  }

  #release(rule: CompiledRule, incident: Incident, from: number): number {
    let at = from
    for (;;) {
      const hold = this.#holdAt(rule, incident, at)
      if (hold === null) return at
      at = hold.until
    }
  }

  /** Quiet hours or a mute that hold messages about the incident at this instant. */
  #holdAt(rule: CompiledRule, {job}: Incident, at: number): Hold | null {
    const muted = this.#in.mutes
      .filter(({rule: of, jobs, from, until}) => {
        const isConcerned = (of === '' || of === rule.name) && matchesText(jobs, job)
        return isConcerned && from <= at && at < until
      })
      .map(({until}) => until)
    if (muted.length > 0) return {until: Math.max(...muted), by: 'mute'}
    const quiet = quietUntil(rule, at)
    return quiet === null ? null : {until: quiet, by: 'quiet'}
  }
}

/** Timers of which a message follows. */
type MessageTimer = 'opened' | 'closed' | 'flapping' | 'reminder'
type Timer = MessageTimer | 'opens' | 'ends' | 'calm'

/** A recovery waits for the message about its opening. */
function isClosable({isTold, openDue, flapping}: Incident): boolean {
  return isTold && openDue === null && flapping === null
}

function waiting(incident: Incident, fact: NoticeFact, opensAt: number): Incident {
  const {launch, execution, sentence, cause} = fact
  return {...incident, launch, execution, sentence, cause, state: 'waiting', opensAt}
}

function evidenceOf({launch, execution, sentence, cause}: Incident, at: number): Evidence {
  return {at, launch, execution, sentence, cause}
}

/** The end of flapping: a message says which state stays. */
function calmed(incident: Incident, at: number): Incident {
  const calm = {...incident, flapping: null, changes: []}
  if (incident.state === 'open') return {...calm, isTold: false, openDue: at}
  return incident.isTold ? {...calm, closeDue: at} : {...calm, openDue: at, closeDue: at}
}

function toldOpen({repeatMs}: CompiledRule, incident: Incident, at: number): Incident {
  const repeatAt = repeatMs === null || incident.state !== 'open' ? null : at + repeatMs
  return {...incident, isTold: true, openDue: null, lastSentAt: at, repeatAt}
}

function toldClosed(incident: Incident, at: number): Incident {
  return {...incident, isTold: false, closeDue: null, lastSentAt: at}
}

function split<Item>(
  items: readonly Item[],
  isFirst: (item: Item) => boolean,
): readonly [Item[], Item[]] {
  return [items.filter(isFirst), items.filter((item) => !isFirst(item))]
}
