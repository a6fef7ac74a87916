/**
 * Audit of an idle cluster: compares every planned time with the marks of the jobs, every `lost` execution
 * with the faults that could explain it, counters with executions, and acknowledged client calls with the
 * store.
 */
import assert from 'node:assert/strict'
import type {Answer, ServerProcess} from '../../test/support/server-process.ts'
import type {Clients} from './clients.ts'
import type {Fault} from './faults.ts'
import type {Load, LoadJob} from './load.ts'
import {auditLaunches, type Mark} from './marks.ts'
import type {NoticeAudit} from './notices.ts'
import {neverStarted, type Operators} from './operators.ts'

type Json = Answer['json']

/** A node fails after 25 s without heartbeats; a frozen one may have sent one just before. */
const FAILED_AFTER_MS = 20_000
/** A disconnected node ends executions that must not overlap sooner. */
const DISCONNECTED_AFTER_MS = 10_000
/**
 * A node that thaws ends what it claimed before its pause and has not started, if it must not run twice and
 * no heartbeat is acknowledged by then.
 */
const THAW_MS = 3_000
/** A decision within this time is never `missed`. */
const LATE_AFTER_MS = 30_000
const MISSED_REASONS = new Set(['catch_up_latest', 'catch_up_skip', 'catch_up_cap'])

export interface AuditInput {
  readonly load: Load
  readonly marks: readonly Mark[]
  readonly clients: Clients
  readonly operators: Operators
  readonly faults: readonly Fault[]
  /** Unexplained behaviour of nodes during the run. */
  readonly nodeProblems: readonly string[]
}

export interface ClusterAudit {
  planned: number
  launched: number
  started: number
  /** `lost` executions; the node of each died, sent no heartbeats for long, or was drained. */
  lost: number
  /** Executions of `lost` that the deadline of a drain stopped. */
  drained: number
  /** `cancelled` executions; the cancellation of each was asked for. */
  cancelled: number
  /** `lost` executions with an end mark: the work was done, but the result could not be reported. */
  lostAfterWork: number
  /** Planned times that were skipped or missed, by reason. */
  readonly refused: Map<string, number>
  readonly missing: string[]
  readonly doubled: string[]
  readonly repeated: string[]
  /** All other violations. */
  readonly problems: string[]
  /** Delay from planned time to decision, ms, ascending. */
  lagsMs: number[]
  /** Launches of all jobs with a schedule. */
  readonly rows: Json[]
  /** `null` = the trial had no notices. */
  notices: NoticeAudit | null
}

export async function auditCluster(
  server: ServerProcess,
  trial: AuditInput,
): Promise<ClusterAudit> {
  const {load, marks, clients} = trial
  const audit: ClusterAudit = {
    planned: 0,
    launched: 0,
    started: 0,
    lost: 0,
    drained: 0,
    cancelled: 0,
    lostAfterWork: 0,
    refused: new Map(),
    missing: [],
    doubled: [],
    repeated: [],
    problems: [...trial.nodeProblems],
    lagsMs: [],
    rows: [],
    notices: null,
  }
  const histories = new Map<string, Json[]>()
  for (const job of load.jobs) {
    const launches = await server.launches(job.name)
    histories.set(job.name, launches)
    add(audit, {...job, to: endOf(job, launches)}, launches, trial)
    await checkCounters(audit, server, job.name, launches)
  }
  await checkChain(audit, server, trial, histories)
  audit.problems.push(...(await clients.problems(server, marks)))
  audit.lagsMs.sort((a, b) => a - b)
  return audit
}

/** Adds what is wrong with the notices of the trial. */
export function addNotices(audit: ClusterAudit, notices: NoticeAudit): void {
  audit.notices = notices
  for (const list of ['missing', 'doubled', 'problems'] as const)
    audit[list].push(...notices[list].map((line) => `notice ${line}`))
}

/** Throws with all violations, if there are any. */
export function assertSound({missing, doubled, repeated, problems, planned}: ClusterAudit): void {
  assert.deepEqual({missing, doubled, repeated, problems}, NOTHING)
  assert(planned > 0)
}

/** Throws unless every planned time was launched, except for `forbid` and the final disabling. */
export function assertAllLaunched({refused}: ClusterAudit): void {
  const others = [...refused.keys()].filter((reason) => !['forbid', 'disabled'].includes(reason))
  assert.deepEqual(others, [])
}

/** Summary in one line. */
export function summaryOf({planned, launched, started, lost, lagsMs}: ClusterAudit): string {
  const worst = lagsMs.at(-1) ?? 0
  const counts = `${planned} planned, ${launched} launched, ${started} started, ${lost} lost`
  return `${counts}; launched at most ${worst} ms late`
}

const NOTHING = {missing: [], doubled: [], repeated: [], problems: []}

export function isSound({missing, doubled, repeated, problems}: ClusterAudit): boolean {
  return [missing, doubled, repeated, problems].every(({length}) => length === 0)
}

/** End of the audited range: a quarantined job is disabled, and nothing is planned after that. */
function endOf(job: LoadJob, launches: readonly Json[]): number {
  const quarantine = launches.find(({reason}) => reason.startsWith('quarantined'))
  if (quarantine === undefined) return job.to
  return Math.min(job.to, Math.floor(Date.parse(quarantine.decided_at) / 1_000) * 1_000)
}

function add(
  audit: ClusterAudit,
  job: LoadJob,
  launches: readonly Json[],
  trial: AuditInput,
): void {
  const {marks, faults, operators} = trial
  const jobAudit = auditLaunches({name: job.name, launches, marks, from: job.from, to: job.to})
  audit.planned += jobAudit.planned
  audit.launched += jobAudit.launched
  audit.started += jobAudit.started
  audit.missing.push(...jobAudit.missing)
  audit.doubled.push(...jobAudit.doubled)
  audit.repeated.push(...jobAudit.repeated)
  audit.problems.push(...jobAudit.incomplete)
  audit.lagsMs.push(...jobAudit.lagsMs)
  const ended = new Set(marks.flatMap(({what, execution}) => (what === 'end' ? execution : [])))
  for (const row of launches) {
    if (row.cause !== 'schedule') continue
    audit.rows.push(row)
    if (row.decision !== 'launched') addRefused(audit, job, row, operators)
    else if (operators.isPaused(row))
      audit.problems.push(`${job.name} ${row.scheduled_at}: launched during a pause`)
    for (const execution of row.executions) {
      const {id, status, reason} = execution
      if (startedOnCordoned(execution, trial))
        audit.problems.push(`${job.name} ${id} started on a cordoned node: ${spanOf(execution)}`)
      if (status === 'lost') {
        audit.lost += 1
        if (ended.has(id)) audit.lostAfterWork += 1
        const isDrained = reason === 'node_drained' && operators.hasDrained(execution)
        if (isDrained) audit.drained += 1
        else if (
          reason === 'not_requested' ||
          !faults.some((fault) => explains(fault, job, execution))
        )
          audit.problems.push(
            `${job.name} ${id} is lost by ${reason}, unexplained: ${spanOf(execution)}`,
          )
        if (!operators.hasCancelled(execution) && !isRetriedAsAsked(job, row, execution, launches))
          audit.problems.push(`${job.name} ${id} is lost, but was not retried`)
      } else if (status === 'cancelled') {
        audit.cancelled += 1
        if (!operators.hasCancelled(execution))
          audit.problems.push(`${job.name} ${id} is cancelled, unasked: ${spanOf(execution)}`)
      } else if (status !== 'succeeded') audit.problems.push(`${job.name} ${id}: ${status}`)
    }
  }
}

function spanOf({started_at: from, finished_at: to}: Json): string {
  return `claimed ${from}, ended ${to}`
}

/** A node that a fault kept from the store may not know its cordon. */
function startedOnCordoned(execution: Json, {faults, operators}: AuditInput): boolean {
  const cordon = operators.cordonOf(execution)
  if (cordon === undefined) return false
  return !faults.some(({node, kind, from, to}) => {
    const isOfStore = node === null || kind === 'cut from the servers'
    const isNear = from < Date.parse(execution.started_at) && to > cordon.askedAt
    return isNear && (isOfStore || node === execution.node_name)
  })
}

/** Longest time to disable the jobs at the end of a run. */
const DISABLING_MS = 5_000

/** Counts the planned times of a skipped or missed row that are in the audited range. */
function addRefused(audit: ClusterAudit, job: LoadJob, row: Json, operators: Operators): void {
  const [reason] = row.reason.split(':') as [string]
  const [first, last] = [Date.parse(row.scheduled_at), Date.parse(row.scheduled_until)]
  for (let time = Math.max(first, job.from); time <= last && time < job.to; time += 1_000)
    audit.refused.set(reason, (audit.refused.get(reason) ?? 0) + 1)
  const isLate = Date.parse(row.decided_at) - last >= LATE_AFTER_MS
  const isMissed = row.decision === 'missed' && isLate && MISSED_REASONS.has(reason)
  const isForbidden = row.decision === 'skipped' && job.forbids && reason === 'forbid'
  // If the launcher is behind, disabling the job decides its overdue times.
  const isDisabled =
    reason === 'disabled' && (Date.parse(row.decided_at) >= job.to || isLastSpan(job, row))
  const isPaused = reason.startsWith('firing_paused') && operators.explainsSkip(row)
  // The first of the load is enabled only after its dependent exists, which may take a second.
  const isAudited = first < job.to && last >= job.from
  if (isAudited && !isMissed && !isForbidden && !isDisabled && !isPaused)
    audit.problems.push(
      `${job.name} ${row.scheduled_at}: ${row.decision} by ${row.reason} at ${row.decided_at}`,
    )
}

/** The end of a run disables all jobs; a time may be due between that and its reply, which is `job.to`. */
function isLastSpan(job: LoadJob, {reason}: Json): boolean {
  const [, since = ''] = / since (\S+)$/.exec(reason) ?? []
  return Date.parse(since) >= job.to - DISABLING_MS
}

/** True if the fault explains why the execution is `lost`. */
export function explains(
  fault: Pick<Fault, 'kind' | 'node' | 'from' | 'to'>,
  job: Pick<LoadJob, 'forbids'>,
  execution: Json,
): boolean {
  const isCutOff = execution.reason === 'cut_off'
  // Heartbeats are acknowledged out of the store.
  if (fault.node !== execution.node_name && !(fault.node === null && isCutOff)) return false
  const claimedAt = Date.parse(execution.started_at)
  const lostAt = Date.parse(execution.finished_at)
  const isFrozen = fault.kind === 'freeze' || fault.kind === 'store frozen'
  const isThawed = isFrozen && isCutOff && neverStarted(execution)
  if (claimedAt > fault.to + (isThawed ? THAW_MS : 0) || lostAt < fault.from) return false
  if (fault.kind === 'kill') return true
  const silentMs = fault.to - fault.from
  return (
    fault.kind !== 'stop' && silentMs >= (job.forbids ? DISCONNECTED_AFTER_MS : FAILED_AFTER_MS)
  )
}

function isRetriedAsAsked(
  job: LoadJob,
  row: Json,
  {attempt}: Json,
  launches: readonly Json[],
): boolean {
  const isOwed = attempt <= job.retries
  const hasNext = row.executions.some((other: Json) => other.attempt === attempt + 1)
  const isQuarantined = launches.some(({reason}) => reason.startsWith('quarantined'))
  return isOwed === hasNext || isQuarantined
}

async function checkCounters(
  audit: ClusterAudit,
  server: ServerProcess,
  name: string,
  launches: readonly Json[],
): Promise<void> {
  const statuses = launches.flatMap(({executions}) => executions.map(({status}: Json) => status))
  const succeeded = statuses.filter((status) => status === 'succeeded').length
  const {success_count: success, error_count: error} = (await server.get(`/jobs/${name}`)).json
  if (success !== succeeded || error !== statuses.length - succeeded)
    audit.problems.push(
      `${name} has counters ${success} and ${error}, but ${succeeded} and ${statuses.length - succeeded}`,
    )
}

/**
 * Each successful launch of the parent launched the child exactly once, or found it paused. Each other row of
 * the parent left one row that says so; the span of a disabled parent leaves none.
 */
async function checkChain(
  audit: ClusterAudit,
  server: ServerProcess,
  {load: {chain}, operators}: AuditInput,
  histories: ReadonlyMap<string, readonly Json[]>,
): Promise<void> {
  const rows = (histories.get(chain.parent) ?? []).filter(
    ({reason}) => !reason.startsWith('disabled: '),
  )
  const parents = rows.filter(({decision, executions}) => {
    const last = executions.at(-1)
    return decision === 'launched' && last?.status === 'succeeded'
  })
  const children = await server.launches(chain.child)
  const told = children.filter(({reason}) => /^parent_(failed|skipped)/.test(reason))
  const decided = children.filter((row) => {
    const isPaused = row.reason.startsWith('firing_paused') && operators.explainsSkip(row)
    return row.decision === 'launched' || isPaused
  })
  const others = children.length - told.length
  if (decided.length !== parents.length || others !== decided.length)
    audit.problems.push(
      `${parents.length} successes of ${chain.parent} launched ${chain.child} ` +
        `${decided.length} times of ${others}`,
    )
  if (told.length !== rows.length - parents.length)
    audit.problems.push(
      `${rows.length - parents.length} rows of ${chain.parent} without a success left ` +
        `${told.length} rows of ${chain.child}`,
    )
}
