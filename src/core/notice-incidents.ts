/**
 * Incidents of notices: how a fact opens, counts or closes the incidents of a condition. Pure, and without
 * messages: `notice-evaluation.ts` decides which messages follow, and when.
 */
import type {LaunchStatus} from './launch-record.ts'
import {
  type Condition,
  type ConditionParameters,
  CONDITIONS,
  covers,
  lengthOf,
  type NoticeJob,
  type RuleDefinition,
} from './notice-rule.ts'

/** Content of a fact besides its kind. Texts are for people. */
interface FactBase {
  readonly at: number
  readonly job: NoticeJob
  readonly launch: number | null
  /** `''` = none. */
  readonly execution: string
  /** Sentence that no stored launch tells; `''` = the launch tells all. */
  readonly sentence: string
  /** Incidents with the same cause are shown together: `node web-2 failed`. */
  readonly cause: string
}

/** A change of a job or one of its launches, stored in the transaction of the change. */
export type NoticeFact = FactBase &
  (
    | {
        readonly kind: 'ended'
        readonly status: LaunchStatus
        /** Launches in a row that failed, with this one. */
        readonly streak: number
        readonly hasOutput: boolean
      }
    | {readonly kind: 'skipped'; readonly code: string}
    | {
        readonly kind:
          | 'launched'
          | 'missed'
          | 'lost'
          | 'quarantined'
          | 'disabled'
          | 'enabled'
          | 'deleted'
          | 'created'
      }
  )
export type FactKind = NoticeFact['kind']

/** Reasons that `skipped` is about unless the rule names its own. A person caused none of them on purpose. */
export const SKIPPED_REASONS: readonly string[] = [
  'forbid',
  'behind',
  'no_target',
  'undecidable',
  'schedule_unreadable',
]

/** Reasons of rows of dependents that did not run: they belong to the failure above them. */
export const OF_DEPENDENTS: ReadonlySet<string> = new Set(['parent_failed', 'parent_skipped'])

/** Changes of an incident within an hour after which it is flapping. */
export const FLAPPING_CHANGES = 5
export const FLAPPING_WITHIN_MS = 3_600_000
const DELETED_FOR_MS = 24 * 3_600_000

export interface Closing {
  readonly kind: FactKind
  readonly launch: number | null
  readonly execution: string
}

/** Instants in ms. The row of a subject and a condition; it is used again when the incident reopens. */
export interface Incident {
  /** `rule/subject/condition`. */
  readonly key: string
  readonly rule: string
  readonly condition: Condition
  /** Name of a job or a node. */
  readonly subject: string
  /** `''` = about the cluster. */
  readonly job: string
  /** `waiting`: it opens at `opensAt`, unless it is over before. */
  readonly state: 'waiting' | 'open' | 'closed'
  readonly openedAt: number
  readonly closedAt: number | null
  readonly opensAt: number | null
  /** The incident closes by itself then; `null` = it does not. */
  readonly endsAt: number | null
  /** Facts since it opened. */
  readonly count: number
  readonly cause: string
  readonly sentence: string
  readonly launch: number | null
  readonly execution: string
  /** The fact that closed it; `null` = it is open, or closed by time or a sweep. */
  readonly closing: Closing | null
  /** Failures that count for `failed_times`. */
  readonly times: readonly number[]
  /** The newest openings and closings of the last hour. */
  readonly changes: readonly number[]
  /** True if the newest message says that it is open. */
  readonly isTold: boolean
  /** Earliest instant of the message about its opening; `null` = there is none to send. */
  readonly openDue: number | null
  readonly closeDue: number | null
  readonly repeatAt: number | null
  readonly lastSentAt: number | null
  /** Set while it opens and closes too often for messages of each change. */
  readonly flapping: {
    readonly changedAt: number
    /** When the next message about it may be sent; `null` = nothing happened since the last one. */
    readonly due: number | null
  } | null
}

export function incidentKey(rule: string, subject: string, condition: Condition): string {
  return `${rule}/${subject}/${condition}`
}

/** Effect of a fact on the incident of a condition. */
export type Effect =
  | {readonly kind: 'open'; readonly endsAt: number | null}
  | {readonly kind: 'wait'; readonly opensAt: number}
  | {readonly kind: 'close'}
  /** A failure that counts together with others. */
  | {readonly kind: 'collect'; readonly times: number; readonly withinMs: number}
  /** A message at once, without an incident. */
  | {readonly kind: 'tell'}

const OPEN: Effect = {kind: 'open', endsAt: null}
const CLOSE: Effect = {kind: 'close'}
const TELL: Effect = {kind: 'tell'}

function isFailure(fact: NoticeFact): boolean {
  return fact.kind === 'ended' && (fact.status === 'failed' || fact.status === 'partially_failed')
}

function isSuccess(fact: NoticeFact): boolean {
  return fact.kind === 'ended' && fact.status === 'success'
}

type Judge = (fact: NoticeFact, parameters: ConditionParameters) => Effect | null

/** Conditions that facts open or close. The others are found by sweeps. */
const JUDGES: Readonly<Partial<Record<Condition, Judge>>> = {
  failed: (fact, {after = 1}) => {
    if (isSuccess(fact) || fact.kind === 'deleted') return CLOSE
    return isFailure(fact) && fact.kind === 'ended' && fact.streak >= Number(after) ? OPEN : null
  },
  failed_times: (fact, {times, within}) => {
    if (fact.kind === 'deleted') return CLOSE
    if (!isFailure(fact)) return null
    return {kind: 'collect', times: Number(times), withinMs: lengthOf(within, 0)}
  },
  skipped: (fact, {reasons = SKIPPED_REASONS}) => {
    if (fact.kind === 'launched' || fact.kind === 'deleted') return CLOSE
    const isAsked = Array.isArray(reasons) && fact.kind === 'skipped' && reasons.includes(fact.code)
    return isAsked ? OPEN : null
  },
  missed: (fact) => {
    if (fact.kind === 'launched' || fact.kind === 'deleted') return CLOSE
    return fact.kind === 'missed' ? OPEN : null
  },
  lost: (fact) => {
    if (isSuccess(fact) || fact.kind === 'deleted') return CLOSE
    return fact.kind === 'lost' ? OPEN : null
  },
  quarantined: (fact) => {
    if (fact.kind === 'enabled' || fact.kind === 'deleted') return CLOSE
    return fact.kind === 'quarantined' ? OPEN : null
  },
  disabled: (fact, {for: wait}) => {
    if (fact.kind === 'enabled' || fact.kind === 'deleted') return CLOSE
    return fact.kind === 'disabled' ? {kind: 'wait', opensAt: fact.at + lengthOf(wait, 0)} : null
  },
  deleted: (fact) => {
    if (fact.kind === 'created') return CLOSE
    return fact.kind === 'deleted' ? {kind: 'open', endsAt: fact.at + DELETED_FOR_MS} : null
  },
  late: (fact) => (fact.kind === 'deleted' ? CLOSE : null),
  running: (fact) => (fact.kind === 'deleted' ? CLOSE : null),
  no_success_for: (fact) => (isSuccess(fact) ? CLOSE : null),
  expected_by: (fact) => (isSuccess(fact) ? CLOSE : null),
  output: (fact) => (fact.kind === 'ended' && fact.hasOutput ? TELL : null),
  succeeded: (fact) => (isSuccess(fact) ? TELL : null),
  started: (fact) => (fact.kind === 'launched' ? TELL : null),
}

/** Effects of the fact on the conditions of the rule. */
export function effectsOf(
  rule: RuleDefinition,
  fact: NoticeFact,
): readonly {readonly condition: Condition; readonly effect: Effect}[] {
  const isCovered = covers(rule, fact.job)
  return Object.entries(rule.when).flatMap(([name, parameters]) => {
    const condition = name as Condition
    const effect = JUDGES[condition]?.(fact, parameters) ?? null
    // The job may have changed since the incident opened; a deleted one has neither owner nor metadata.
    if (effect === null || (!isCovered && effect.kind !== 'close')) return []
    return [{condition, effect}]
  })
}

/** Kinds of facts that may open an incident of the condition, or make a message at once. */
const OPENED_BY: Readonly<Partial<Record<Condition, readonly ScopeKind[]>>> = {
  failed: ['failed'],
  failed_times: ['failed'],
  skipped: ['skipped'],
  missed: ['missed'],
  lost: ['lost'],
  quarantined: ['quarantined'],
  disabled: ['disabled'],
  deleted: ['deleted'],
  output: ['output'],
  succeeded: ['succeeded'],
  started: ['launched'],
}

/** Kinds that a transaction asks the scopes for. */
export type ScopeKind =
  | 'failed'
  | 'succeeded'
  | 'output'
  | 'launched'
  | 'skipped'
  | 'dependents'
  | 'missed'
  | 'lost'
  | 'quarantined'
  | 'disabled'
  | 'deleted'

/**
 * Names and kinds of facts that any rule is about: the row that transactions read. A fact that only closes
 * is stored for watched jobs.
 */
export interface NoticeScope {
  readonly jobs: string
  readonly kinds: readonly ScopeKind[]
}

export function scopesOf(rules: readonly RuleDefinition[]): readonly NoticeScope[] {
  const kinds = new Map<string, Set<ScopeKind>>()
  for (const {jobs, when} of rules) {
    const known = kinds.get(jobs) ?? new Set()
    for (const [name, parameters] of Object.entries(when)) {
      for (const kind of OPENED_BY[name as Condition] ?? []) known.add(kind)
      if (name === 'skipped' && namesDependents(parameters)) known.add('dependents')
    }
    if (known.size > 0) kinds.set(jobs, known)
  }
  return [...kinds].map(([jobs, of]) => ({jobs, kinds: [...of].toSorted()}))
}

/** Most rules are not about dependents: a chain that fails costs them nothing. */
function namesDependents({reasons = SKIPPED_REASONS}: ConditionParameters): boolean {
  return Array.isArray(reasons) && reasons.some((code) => OF_DEPENDENTS.has(String(code)))
}

/** A new incident of a subject that had none. */
export function newIncident(
  rule: string,
  condition: Condition,
  {subject, at}: {readonly subject: string; readonly at: number},
): Incident {
  return {
    key: incidentKey(rule, subject, condition),
    rule,
    condition,
    subject,
    job: CONDITIONS[condition].subject === 'job' ? subject : '',
    state: 'closed',
    openedAt: at,
    closedAt: null,
    opensAt: null,
    endsAt: null,
    count: 0,
    cause: '',
    sentence: '',
    launch: null,
    execution: '',
    closing: null,
    times: [],
    changes: [],
    isTold: false,
    openDue: null,
    closeDue: null,
    repeatAt: null,
    lastSentAt: null,
    flapping: null,
  }
}

/** Evidence of an opening or a further count, for people. */
export type Evidence = Pick<FactBase, 'at' | 'launch' | 'execution' | 'sentence' | 'cause'>

/** Opens the incident, or counts once more if it is open. */
export function opened(
  incident: Incident,
  evidence: Evidence,
  groupWaitMs: number,
  endsAt: number | null = null,
): Incident {
  const {at, launch, execution, sentence, cause} = evidence
  const known = {launch, execution, sentence, cause, endsAt, opensAt: null}
  if (incident.state === 'open') return {...incident, ...known, count: incident.count + 1}
  const open = {
    ...incident,
    ...known,
    state: 'open',
    openedAt: at,
    closedAt: null,
    closing: null,
    count: 1,
  } as const
  const changed = withChange(open, at, groupWaitMs)
  if (changed.flapping !== null) return changed
  // Receivers believe that it is open: there is nothing to tell but that it still is.
  if (changed.isTold) return {...changed, closeDue: null}
  return {...changed, openDue: changed.openDue ?? at + groupWaitMs, closeDue: null}
}

/** Closes the incident. `isSilent`: without a message, as when its rule was deleted. */
export function closed(
  incident: Incident,
  at: number,
  groupWaitMs: number,
  isSilent: boolean,
): Incident {
  const over = {opensAt: null, endsAt: null, repeatAt: null, times: []}
  if (isSilent) {
    const nothing = {openDue: null, closeDue: null, isTold: false, flapping: null}
    const closedAt = incident.state === 'open' ? at : incident.closedAt
    return {...incident, ...over, ...nothing, state: 'closed', closedAt}
  }
  if (incident.state === 'waiting') return {...incident, ...over, state: 'closed'}
  if (incident.state === 'closed') return incident
  const changed = withChange({...incident, ...over, state: 'closed', closedAt: at}, at, groupWaitMs)
  return changed.flapping === null ? {...changed, closeDue: at + groupWaitMs} : changed
}

/** True if a success of this launch is about the incident: not one that began before. */
export function isNewer(incident: Incident, fact: NoticeFact): boolean {
  return fact.launch === null || incident.launch === null || fact.launch >= incident.launch
}

function withChange(incident: Incident, at: number, groupWaitMs: number): Incident {
  const changes = [...incident.changes.filter((change) => change > at - FLAPPING_WITHIN_MS), at]
  const {flapping} = incident
  if (flapping !== null)
    return {...incident, flapping: {changedAt: at, due: flapping.due ?? nextFlapping(incident, at)}}
  if (changes.length < FLAPPING_CHANGES) return {...incident, changes}
  const nothing = {openDue: null, closeDue: null, repeatAt: null}
  return {
    ...incident,
    ...nothing,
    changes: [],
    flapping: {changedAt: at, due: at + groupWaitMs},
  }
}

/** Messages about flapping are an hour apart. */
function nextFlapping({lastSentAt}: Incident, at: number): number {
  return Math.max(at, (lastSentAt ?? at) + FLAPPING_WITHIN_MS)
}
