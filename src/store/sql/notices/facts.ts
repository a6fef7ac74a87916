/**
 * Facts for notices, stored in the transaction of the change that they are about, if a rule covers them. The
 * scopes of all rules are one row of `meta`, so a change that no rule covers costs one look-up. A fact that
 * may open an incident marks its job as watched: the next launch and success of a watched job are facts too.
 */
import type {ExecutionRecord} from '../../../core/execution.ts'
import {executionId} from '../../../core/execution.ts'
import {endCause} from '../../../core/explain/executions.ts'
import {isNodeDeath} from '../../../core/finish.ts'
import type {BatchJob, EndingLaunch, FinishBatch} from '../../../core/finish-batch.ts'
import type {JobSpec} from '../../../core/job.ts'
import {reasonCode} from '../../../core/launch-reasons.ts'
import type {LaunchRecord} from '../../../core/launch-record.ts'
import {
  type FactKind,
  type NoticeFact,
  OF_DEPENDENTS,
  type ScopeKind,
} from '../../../core/notice-incidents.ts'
import type {NoticeJob} from '../../../core/notice-rule.ts'
import {type Query, sendEach, type Transaction} from '../query.ts'
import type {Scopes} from './scopes.ts'

type Without<Fact, Keys extends string> = Fact extends unknown ? Omit<Fact, Keys> : never

/** A fact before it is stored; `opens` = it may open an incident. */
interface NewFact {
  readonly jobId: number
  readonly jobName: string
  readonly opens: boolean
  /** The job as rules see it, if it is not there any more at the evaluation. */
  readonly job?: NoticeJob
  readonly fact: Without<NoticeFact, 'at' | 'job'>
}

/** Content of a stored fact besides its columns. */
export type StoredFact = Without<NoticeFact, 'at' | 'job'> & {readonly job?: NoticeJob}

function* recordFacts(tx: Transaction, facts: readonly NewFact[]): Query<void> {
  if (facts.length === 0) return
  yield* sendEach(
    `INSERT INTO notice_facts (fact_at, fact_kind, fact_job_id, fact_job_name, fact_data)
      VALUES (?, ?, ?, ?, ?)`,
    facts.map(({jobId, jobName, fact, job}) => {
      const stored = job === undefined ? fact : {...fact, job}
      return [tx.now, fact.kind, jobId, jobName, JSON.stringify(stored)]
    }),
  )
  const watched = new Set(facts.flatMap(({opens, jobId}) => (opens ? [jobId] : [])))
  yield* sendEach(
    `UPDATE jobs SET watched = 1 WHERE id = ? AND watched IS NULL`,
    [...watched].toSorted((a, b) => a - b).map((id) => [id]),
  )
}

const NONE = {launch: null, execution: '', sentence: '', cause: ''} as const

/** Records the launches and lost executions that end in this batch. Its jobs are locked. */
export function* recordEnds(tx: Transaction, batch: FinishBatch, scopes: Scopes): Query<void> {
  const isCovered = ({name, watched}: BatchJob) => watched || scopes(name).size > 0
  if (![...batch.jobs.values()].some(isCovered)) return
  const facts: NewFact[] = []
  const ends = new Map(batch.ended.map((end) => [end.launch.group, end]))
  for (const {record, executions} of batch.launches.values()) {
    const job = batch.jobs.get(record.jobId)
    if (job === undefined) continue
    const kinds = scopes(job.name)
    if (kinds.size === 0 && !job.watched) continue
    const of = {jobId: job.id, jobName: job.name}
    const lost = executions.find(
      ({record: {status}, change}) => status === 'lost' && change !== 'none',
    )
    if (lost !== undefined && kinds.has('lost'))
      facts.push({...of, opens: true, fact: {kind: 'lost', ...lostEvidence(lost.record)}})
    const end = ends.get(record.group)
    if (end === undefined) continue
    const {status, streak} = end
    const records = executions.map((execution) => execution.record)
    const hasOutput = records.some(({outputBytes}) => outputBytes > 0)
    const isFailure = status === 'failed' || status === 'partially_failed'
    const opens = isFailure && kinds.has('failed')
    const isTold =
      (status === 'success' && kinds.has('succeeded')) || (hasOutput && kinds.has('output'))
    const closes = status === 'success' && job.watched
    if (!opens && !isTold && !closes) continue
    const evidence = endEvidence(record, records)
    const ended = {kind: 'ended', status, streak: Math.max(isFailure ? 1 : 0, streak), hasOutput}
    facts.push({...of, opens, fact: {...ended, ...evidence} as NewFact['fact']})
  }
  for (const job of batch.jobs.values())
    if (job.quarantinedBy !== null && scopes(job.name).has('quarantined')) {
      const evidence = {...NONE, launch: job.quarantinedBy, cause: 'quarantined'}
      const of = {jobId: job.id, jobName: job.name}
      facts.push({...of, opens: true, fact: {kind: 'quarantined', ...evidence}})
    }
  yield* recordFacts(tx, facts)
}

function lostEvidence(record: ExecutionRecord) {
  return {
    launch: record.group,
    execution: executionId(record),
    sentence: '',
    cause: causeOf(record),
  }
}

/** The execution of a failure is the last attempt that ended badly; else the one with output. */
function endEvidence({group, status}: EndingLaunch, executions: readonly ExecutionRecord[]) {
  const bad = executions
    .filter((each) => each.status !== 'succeeded')
    .toSorted((a, b) => b.attempt - a.attempt)[0]
  const isGood = status === 'success' || bad === undefined
  const shown = isGood
    ? (executions.find(({outputBytes}) => outputBytes > 0) ?? executions[0])
    : bad
  const execution = shown === undefined ? '' : executionId(shown)
  return {launch: group, execution, sentence: '', cause: isGood ? '' : causeOf(bad)}
}

/** Words that are equal for executions that ended badly for one cause. */
function causeOf(execution: ExecutionRecord): string {
  const {status, node} = execution
  if (isNodeDeath(execution)) return `node ${node} failed`
  return status === 'timed_out' ? 'timed out' : endCause(execution)
}

/** Rows that did not launch for these reasons were not missed: a person asked for it. */
const NOT_MISSED: ReadonlySet<string> = new Set(['edited', 'disabled'])

/** Records rows that were decided. `watched`: jobs whose next launch closes an incident. */
export function* recordDecided(
  tx: Transaction,
  launches: readonly LaunchRecord[],
  watched: ReadonlySet<number>,
  scopes: Scopes,
): Query<void> {
  const facts = launches.flatMap(({jobId, jobName, group, decision, reason}): NewFact[] => {
    const kinds = scopes(jobName)
    const of = {jobId, jobName}
    if (decision === 'launched') {
      if (!watched.has(jobId) && !kinds.has('launched')) return []
      return [{...of, opens: false, fact: {kind: 'launched', ...NONE, launch: group}}]
    }
    const code = reasonCode(reason) ?? ''
    const evidence = {...NONE, launch: group, cause: code}
    if (decision === 'skipped' && kinds.has(OF_DEPENDENTS.has(code) ? 'dependents' : 'skipped'))
      return [{...of, opens: true, fact: {kind: 'skipped', code, ...evidence}}]
    if (decision === 'missed' && kinds.has('missed') && !NOT_MISSED.has(code))
      return [{...of, opens: true, fact: {kind: 'missed', ...evidence}}]
    return []
  })
  yield* recordFacts(tx, facts)
}

/** Kinds of facts about the definition of a job. */
type DefinitionKind = Extract<FactKind, 'disabled' | 'enabled' | 'deleted' | 'created'>

/** Kinds of a rule that a fact about the definition may open or close. */
const ABOUT: Readonly<Record<DefinitionKind, readonly ScopeKind[] | null>> = {
  disabled: ['disabled'],
  enabled: ['disabled', 'quarantined'],
  // A deletion closes incidents of every condition.
  deleted: null,
  created: ['deleted'],
}

/** A change of a definition, which is rare: the scopes are read for it. */
export interface DefinitionFact {
  readonly jobId: number
  readonly kind: DefinitionKind
  readonly spec: Pick<JobSpec, 'name' | 'owner' | 'metadata'>
  /** Sentence that names who made the change. */
  readonly sentence?: string
}

export function* recordDefinitions(
  tx: Transaction,
  changes: readonly DefinitionFact[],
  scopes: Scopes,
): Query<void> {
  const facts = changes.flatMap(({jobId, kind, spec, sentence = ''}): NewFact[] => {
    const {name, owner, metadata} = spec
    const kinds = scopes(name)
    const about = ABOUT[kind]
    const isCovered = about === null ? kinds.size > 0 : about.some((each) => kinds.has(each))
    if (!isCovered) return []
    const fact = {...NONE, kind, cause: kind, sentence}
    const opens = kind === 'disabled'
    return [{jobId, jobName: name, opens, job: {name, owner, metadata}, fact}]
  })
  yield* recordFacts(tx, facts)
}
