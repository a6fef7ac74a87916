/**
 * Sweeps: conditions of notices that no transaction sees, such as a success that does not come. The store
 * reads narrow rows, and this file says which subjects a condition finds in them. Pure.
 * `notice-evaluation.ts` turns the differences to the open incidents into messages, as it does with facts.
 */
import {formatDuration, roughDuration} from '../lib/duration.ts'
import type {Evidence} from './notice-incidents.ts'
import {
  type CompiledRule,
  type Condition,
  type ConditionParameters,
  lengthOf,
} from './notice-rule.ts'
import {parseSchedule} from './schedule/parse.ts'

/**
 * `cluster`: state of the cluster. `executions`: what waits or runs. `jobs`: all jobs by name, in pages.
 */
export const SWEEP_KINDS = ['cluster', 'executions', 'jobs'] as const
export type SweepKind = (typeof SWEEP_KINDS)[number]

const CLUSTER_CONDITIONS = [
  'no_leader',
  'node_failed',
  'firing_paused',
  'undecided',
  'notices_failing',
] as const satisfies readonly Condition[]
export type ClusterCondition = (typeof CLUSTER_CONDITIONS)[number]

const CONDITIONS_OF: Readonly<Record<SweepKind, readonly Condition[]>> = {
  cluster: CLUSTER_CONDITIONS,
  executions: ['late', 'running'],
  jobs: ['no_success_for', 'expected_by'],
}

/** Conditions of the kind that the rule has. */
export function sweptConditions(
  {definition}: Pick<CompiledRule, 'definition'>,
  kind: SweepKind,
): readonly Condition[] {
  return CONDITIONS_OF[kind].filter((condition) => Object.hasOwn(definition.when, condition))
}

/** True if the store must be written for the condition to be noticed: servers keep the rule in memory. */
export function hasStoreCondition({definition}: Pick<CompiledRule, 'definition'>): boolean {
  return Object.hasOwn(definition.when, 'store')
}

/** Work of the regular looks of servers, by all rules. */
export interface SweepWork {
  readonly rules: number
  readonly sweeps: readonly SweepKind[]
  /** A rule has the condition `store`. */
  readonly store: boolean
}

export function sweepWorkOf(rules: readonly Pick<CompiledRule, 'definition'>[]): SweepWork {
  const sweeps = SWEEP_KINDS.filter((kind) =>
    rules.some((rule) => sweptConditions(rule, kind).length > 0),
  )
  return {rules: rules.length, sweeps, store: rules.some(hasStoreCondition)}
}

/** Subject of incidents about the whole cluster. */
export const CLUSTER_SUBJECT = 'cluster'

/** A subject that a condition holds for, and the evidence of an incident about it. */
export interface Found {
  readonly subject: string
  readonly evidence: Evidence
}

/** State of the cluster. Instants in ms since the epoch, by the store's clock. */
export interface ClusterFacts {
  /** No server leads since then; `null` = one does. */
  readonly leaderlessSince: number | null
  readonly failed: readonly {readonly name: string; readonly heartbeatAt: number}[]
  /** Pauses in force. */
  readonly pauses: readonly {
    readonly jobs: string
    readonly reason: string
    readonly pausedBy: string
    readonly pausedAt: number
  }[]
  /** Firing is paused since the store was put back from a backup then; `null` = it is not. */
  readonly restoredAt: number | null
  /** The oldest planned time without a decision; `null` = there are no planned times. */
  readonly oldestPlannedAt: number | null
  readonly failingChannels: readonly {
    readonly name: string
    readonly since: number
    readonly error: string
  }[]
}

/** Waits of conditions about the cluster for which the rule gives no length. */
const DEFAULT_FOR_MS = {
  no_leader: 30_000,
  firing_paused: 3_600_000,
  undecided: 60_000,
  store: 60_000,
  notices_failing: 3_600_000,
} as const

/** How long a condition about the cluster must hold until its incident opens, in ms. */
export function forMsOf(
  condition: keyof typeof DEFAULT_FOR_MS,
  parameters: ConditionParameters,
): number {
  return lengthOf(parameters['for'], DEFAULT_FOR_MS[condition])
}

export function findInCluster(
  condition: ClusterCondition,
  parameters: ConditionParameters,
  facts: ClusterFacts,
  now: number,
): readonly Found[] {
  switch (condition) {
    case 'no_leader': {
      const since = facts.leaderlessSince
      if (since === null || now - since < forMsOf(condition, parameters)) return []
      const sentence = `No server has led since ${textOf(since)}, so nothing is launched.`
      return [aFinding(CLUSTER_SUBJECT, now, sentence, 'no server leads')]
    }
    case 'node_failed':
      return facts.failed.map(({name, heartbeatAt}) => {
        const sentence = `Node ${name} has sent no heartbeats since ${textOf(heartbeatAt)}.`
        return aFinding(name, now, sentence, 'node failed')
      })
    case 'firing_paused':
      return findPauses(facts, now - forMsOf(condition, parameters), now)
    case 'undecided': {
      const at = facts.oldestPlannedAt
      // While a restored store waits for a person, no planned time is decided.
      if (at === null || facts.restoredAt !== null) return []
      if (now - at < forMsOf(condition, parameters)) return []
      const sentence = `Planned times are undecided, the oldest since ${textOf(at)}.`
      return [aFinding(CLUSTER_SUBJECT, now, sentence, 'planned times are undecided')]
    }
    case 'notices_failing':
      return facts.failingChannels
        .filter(({since}) => now - since >= forMsOf(condition, parameters))
        .map(({name, since, error}) => {
          const sentence = `Channel ${name} has delivered nothing since ${textOf(since)}: ${error}.`
          return aFinding(name, now, sentence, 'the channel delivers nothing')
        })
  }
}

/** Subject of the pause that follows a restore: no glob has a blank. */
const RESTORED_SUBJECT = 'restored store'

function findPauses(facts: ClusterFacts, before: number, now: number): readonly Found[] {
  const paused = facts.pauses
    .filter(({pausedAt}) => pausedAt <= before)
    .map(({jobs, reason, pausedBy, pausedAt}) => {
      const why = reason === '' ? '' : `: ${JSON.stringify(reason)}`
      const sentence = `Firing of ${jobs} was paused by ${pausedBy} at ${textOf(pausedAt)}${why}.`
      return aFinding(jobs, now, sentence, 'firing is paused')
    })
  if (facts.restoredAt === null || facts.restoredAt > before) return paused
  const since = textOf(facts.restoredAt)
  const sentence = `Firing is paused: the store was put back from a backup at ${since}.`
  return [...paused, aFinding(RESTORED_SUBJECT, now, sentence, 'firing is paused')]
}

/** A planned time without a decision, or an execution that has not started. */
export interface WaitingRow {
  readonly job: string
  readonly plannedAt: number
  /** `null` = undecided. */
  readonly launch: number | null
  /** Node that it waits for; `''` = none is chosen. */
  readonly node: string
}

/** Finds each job once, by its oldest planned time. */
export function findLate(
  parameters: ConditionParameters,
  rows: readonly WaitingRow[],
  now: number,
): readonly Found[] {
  const byMs = lateMsOf(parameters)
  const oldest = new Map<string, WaitingRow>()
  for (const row of rows) {
    if (now - row.plannedAt < byMs) continue
    if (row.plannedAt < (oldest.get(row.job)?.plannedAt ?? Infinity)) oldest.set(row.job, row)
  }
  return [...oldest.values()].map(({job, plannedAt, launch, node}) => {
    const planned = `planned for ${textOf(plannedAt)}`
    const state = launch === null || node === '' ? 'is undecided' : `waits for node ${node}`
    const sentence =
      launch === null ? `A launch ${planned} ${state}.` : `Launch ${launch}, ${planned}, ${state}.`
    return aFinding(job, now, sentence, `late by ${formatDuration(byMs)}`, {launch})
  })
}

export function lateMsOf(parameters: ConditionParameters): number {
  return lengthOf(parameters['by'], 0)
}

export interface RunningRow {
  readonly job: string
  readonly launch: number
  /** Id of the execution. */
  readonly execution: string
  readonly node: string
  readonly startedAt: number
  /** Typical duration of a launch of the job; `null` = unknown. */
  readonly typicalMs: number | null
}

/** A job that takes seconds is not late by three of them. */
const TIMES_MIN_MS = 60_000

/** How long an execution runs at least when the condition finds it. */
export function runningMsOf(parameters: ConditionParameters, typicalMs: number | null): number {
  const forMs = lengthOf(parameters['for'], Infinity)
  const times = parameters['times']
  if (times === undefined || typicalMs === null) return forMs
  return Math.min(forMs, Math.max(TIMES_MIN_MS, typicalMs * Number(times)))
}

/** The shortest `runningMsOf` of any job. */
export function runningMinMsOf(parameters: ConditionParameters): number {
  return runningMsOf(parameters, 0)
}

/** Finds each job once, by its oldest execution. */
export function findRunning(
  parameters: ConditionParameters,
  rows: readonly RunningRow[],
  now: number,
): readonly Found[] {
  const oldest = new Map<string, RunningRow>()
  for (const row of rows) {
    if (now - row.startedAt < runningMsOf(parameters, row.typicalMs)) continue
    if (row.startedAt < (oldest.get(row.job)?.startedAt ?? Infinity)) oldest.set(row.job, row)
  }
  return [...oldest.values()].map(({job, launch, execution, node, startedAt, typicalMs}) => {
    const usual = typicalMs === null ? '' : `; it usually takes ${roughDuration(typicalMs)}`
    const sentence = `Launch ${launch} has run on ${node} since ${textOf(startedAt)}${usual}.`
    return aFinding(job, now, sentence, 'runs for too long', {launch, execution})
  })
}

/** A job as the sweep over all jobs reads it. */
export interface SweptJob {
  readonly name: string
  /** `null` = a rule names the job, and it is not stored. */
  readonly id: number | null
  readonly lastSuccessAt: number | null
  /** Creation, or the reset of its counters; of a job that is not stored, when the rule was stored. */
  readonly knownSince: number
  readonly isDisabled: boolean
  /** The next success of the job is a fact. */
  readonly isWatched: boolean
}

/** True if the last success is too old: then no later fact than a success changes that. */
export function isOverdue(
  condition: Condition,
  parameters: ConditionParameters,
  job: Pick<SweptJob, 'lastSuccessAt' | 'knownSince'>,
  expectedAt: number,
): boolean {
  const length = condition === 'expected_by' ? parameters['since'] : parameters['for']
  return (job.lastSuccessAt ?? job.knownSince) <= expectedAt - lengthOf(length, 0)
}

/**
 * The instant by which a success is expected: now, or the newest time of the schedule of `expected_by`;
 * `null` = there was none since `since`, when the rule was stored.
 */
export function expectedAtOf(
  condition: Condition,
  parameters: ConditionParameters,
  {now, since, defaultZone}: {readonly now: number; readonly since: number; defaultZone: string},
): number | null {
  if (condition !== 'expected_by') return now
  const timezone = String(parameters['timezone'] ?? defaultZone)
  const context = {timezone, name: '', anchorAt: 0}
  const parsed = parseSchedule(String(parameters['schedule']), context)
  const at = parsed.ok ? parsed.schedule.previous(now + 1) : null
  return at === null || at < since ? null : at
}

/** Further reasons why a job does not succeed. */
export interface JobCircumstances {
  /** Text about the pause of firing that covers it; `''` = none does. */
  readonly pause: string
  readonly hasNode: boolean
}

/** Evidence that an overdue job has not succeeded. */
export function overdueEvidence(
  condition: Condition,
  parameters: ConditionParameters,
  job: SweptJob,
  {now, expectedAt}: {readonly now: number; readonly expectedAt: number},
  {pause, hasNode}: JobCircumstances,
): Evidence {
  const {id, lastSuccessAt, knownSince, isDisabled} = job
  const since = lastSuccessAt === null ? `at least ${textOf(knownSince)}` : textOf(lastSuccessAt)
  const by = condition === 'expected_by' ? ` by ${textOf(expectedAt)}` : ''
  const reasons = [
    ...(id === null ? ['no job has this name'] : []),
    ...(isDisabled ? ['it is disabled'] : []),
    ...(pause === '' ? [] : [pause]),
    ...(hasNode || id === null ? [] : ['no node has its tags']),
  ]
  const why = reasons.length === 0 ? '' : `; ${reasons.join('; ')}`
  const sentence = `It was expected to succeed${by}, and has not since ${since}${why}.`
  const cause =
    condition === 'expected_by'
      ? `no success by ${textOf(expectedAt)}`
      : `no success for ${String(parameters['for'])}`
  return {at: now, launch: null, execution: '', sentence, cause}
}

/** Names of jobs without `*`: a rule about one of them also counts while no such job is stored. */
export function plainName({definition: {jobs}}: Pick<CompiledRule, 'definition'>): string | null {
  return jobs.includes('*') ? null : jobs
}

function aFinding(
  subject: string,
  at: number,
  sentence: string,
  cause: string,
  of: Partial<Pick<Evidence, 'launch' | 'execution'>> = {},
): Found {
  return {subject, evidence: {at, launch: null, execution: '', sentence, cause, ...of}}
}

function textOf(at: number): string {
  return new Date(at).toISOString().replace('.000Z', 'Z')
}
