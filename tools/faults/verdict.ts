/**
 * The verdict on a whole cluster that has come to rest: every planned time of every job held against the
 * marks that the jobs left, every `lost` execution against the faults that could explain it, counters against
 * executions, and what clients were promised against what is there.
 */
import assert from 'node:assert/strict'
import type {Answer, ServerProcess} from '../../test/support/server-process.ts'
import type {Clients} from './clients.ts'
import type {Fault} from './faults.ts'
import type {Load, LoadJob} from './load.ts'
import {judge, type Mark} from './marks.ts'

type Json = Answer['json']

/** A node is given up after 25 s of silence; a frozen one may have spoken just before. */
const GIVEN_UP_AFTER_MS = 20_000
/** What must not overlap is ended sooner by a node that is cut off. */
const ENDED_AFTER_MS = 10_000
/** What is decided within this is never missed. */
const LATE_AFTER_MS = 30_000
const MISSED_REASONS = new Set(['catch_up_latest', 'catch_up_skip', 'catch_up_cap'])

export interface Trial {
  readonly load: Load
  readonly marks: readonly Mark[]
  readonly clients: Clients
  readonly faults: readonly Fault[]
  /** What was noticed while it went on. */
  readonly noticed: readonly string[]
}

export interface ClusterVerdict {
  planned: number
  launched: number
  started: number
  /** Executions; every one of them had a node that died, or was silent for long. */
  lost: number
  /** Lost ones that had marked their end: the work was done, and nobody could be told. */
  lostAfterTheirEnd: number
  /** Planned times that were skipped or missed, by reason. */
  readonly refused: Map<string, number>
  readonly missing: string[]
  readonly doubled: string[]
  readonly repeated: string[]
  /** All else that must not be. */
  readonly problems: string[]
  /** From planned to decided, ms, ascending. */
  lagsMs: number[]
  /** Rows of the ledger of all jobs that fire by schedule. */
  readonly rows: Json[]
}

export async function verdictOn(server: ServerProcess, trial: Trial): Promise<ClusterVerdict> {
  const {load, marks, clients} = trial
  const verdict: ClusterVerdict = {
    planned: 0,
    launched: 0,
    started: 0,
    lost: 0,
    lostAfterTheirEnd: 0,
    refused: new Map(),
    missing: [],
    doubled: [],
    repeated: [],
    problems: [...trial.noticed],
    lagsMs: [],
    rows: [],
  }
  const ledgers = new Map<string, Json[]>()
  for (const job of load.jobs) {
    const launches = await server.launches(job.name)
    ledgers.set(job.name, launches)
    add(verdict, {...job, to: endOf(job, launches)}, launches, trial)
    await checkCounters(verdict, server, job.name, launches)
  }
  await checkChain(verdict, server, load, ledgers)
  verdict.problems.push(...(await clients.problems(server, marks)))
  verdict.lagsMs.sort((a, b) => a - b)
  return verdict
}

/** Throws with everything that is wrong, unless nothing is. */
export function assertSound({missing, doubled, repeated, problems, planned}: ClusterVerdict): void {
  assert.deepEqual({missing, doubled, repeated, problems}, NOTHING)
  assert(planned > 0)
}

/** Throws unless every planned time ran, but for those that a job forbids itself, and the last ones. */
export function assertAllLaunched({refused}: ClusterVerdict): void {
  const others = [...refused.keys()].filter((reason) => !['forbid', 'disabled'].includes(reason))
  assert.deepEqual(others, [])
}

/** One line. */
export function told({planned, launched, started, lost, lagsMs}: ClusterVerdict): string {
  const worst = lagsMs.at(-1) ?? 0
  const counts = `${planned} planned, ${launched} launched, ${started} started, ${lost} lost`
  return `${counts}; launched at most ${worst} ms late`
}

const NOTHING = {missing: [], doubled: [], repeated: [], problems: []}

export function isSound({missing, doubled, repeated, problems}: ClusterVerdict): boolean {
  return [missing, doubled, repeated, problems].every(({length}) => length === 0)
}

/** A job that is taken for what kills its nodes is disabled; nothing is planned from then on. */
function endOf(job: LoadJob, launches: readonly Json[]): number {
  const quarantine = launches.find(({reason}) => reason.startsWith('quarantined'))
  if (quarantine === undefined) return job.to
  return Math.min(job.to, Math.floor(Date.parse(quarantine.decided_at) / 1_000) * 1_000)
}

function add(verdict: ClusterVerdict, job: LoadJob, launches: readonly Json[], trial: Trial): void {
  const {marks, faults} = trial
  const judged = judge({name: job.name, launches, marks, from: job.from, to: job.to})
  verdict.planned += judged.planned
  verdict.launched += judged.launched
  verdict.started += judged.started
  verdict.missing.push(...judged.missing)
  verdict.doubled.push(...judged.doubled)
  verdict.repeated.push(...judged.repeated)
  verdict.problems.push(...judged.incomplete)
  verdict.lagsMs.push(...judged.lagsMs)
  const ended = new Set(marks.flatMap(({what, execution}) => (what === 'end' ? execution : [])))
  for (const row of launches) {
    if (row.cause !== 'schedule') continue
    verdict.rows.push(row)
    if (row.decision !== 'launched') addRefused(verdict, job, row)
    for (const execution of row.executions) {
      const {id, status} = execution
      if (status === 'lost') {
        verdict.lost += 1
        if (ended.has(id)) verdict.lostAfterTheirEnd += 1
        if (!faults.some((fault) => explains(fault, job, execution)))
          verdict.problems.push(
            `${job.name} ${id} is lost, and its node did not die: ${spanOf(execution)}`,
          )
        if (!isRetriedAsAsked(job, row, execution, launches))
          verdict.problems.push(`${job.name} ${id} is lost and was not tried again`)
      } else if (status !== 'succeeded') verdict.problems.push(`${job.name} ${id}: ${status}`)
    }
  }
}

function spanOf({started_at: from, finished_at: to}: Json): string {
  return `claimed ${from}, given up ${to}`
}

/** Neighbouring planned times share a row; only what lies in the range that is judged is counted. */
function addRefused(verdict: ClusterVerdict, job: LoadJob, row: Json): void {
  const [reason] = row.reason.split(':') as [string]
  const [first, last] = [Date.parse(row.scheduled_at), Date.parse(row.scheduled_until)]
  for (let time = Math.max(first, job.from); time <= last && time < job.to; time += 1_000)
    verdict.refused.set(reason, (verdict.refused.get(reason) ?? 0) + 1)
  const isLate = Date.parse(row.decided_at) - last >= LATE_AFTER_MS
  const isMissed = row.decision === 'missed' && isLate && MISSED_REASONS.has(reason)
  const isForbidden = row.decision === 'skipped' && job.forbids && reason === 'forbid'
  // A launch loop that is behind leaves due times that the disabling itself then decides.
  const isDisabled = reason === 'disabled' && Date.parse(row.decided_at) >= job.to
  if (!isMissed && !isForbidden && !isDisabled && first < job.to)
    verdict.problems.push(
      `${job.name} ${row.scheduled_at}: ${row.decision} by ${row.reason} at ${row.decided_at}`,
    )
}

/** Whether a fault can have cost that execution. */
function explains(fault: Fault, job: LoadJob, execution: Json): boolean {
  if (fault.node !== execution.node_name) return false
  const claimedAt = Date.parse(execution.started_at)
  const givenUpAt = Date.parse(execution.finished_at)
  if (claimedAt > fault.to || givenUpAt < fault.from) return false
  if (fault.kind === 'kill') return true
  const silentMs = fault.to - fault.from
  return fault.kind !== 'stop' && silentMs >= (job.forbids ? ENDED_AFTER_MS : GIVEN_UP_AFTER_MS)
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
  verdict: ClusterVerdict,
  server: ServerProcess,
  name: string,
  launches: readonly Json[],
): Promise<void> {
  const statuses = launches.flatMap(({executions}) => executions.map(({status}: Json) => status))
  const succeeded = statuses.filter((status) => status === 'succeeded').length
  const {success_count: success, error_count: error} = (await server.get(`/jobs/${name}`)).json
  if (success !== succeeded || error !== statuses.length - succeeded)
    verdict.problems.push(
      `${name} counts ${success} and ${error} of ${succeeded} and ${statuses.length - succeeded}`,
    )
}

/** Each launch of the parent that ended well launched the child once. */
async function checkChain(
  verdict: ClusterVerdict,
  server: ServerProcess,
  {chain}: Load,
  ledgers: ReadonlyMap<string, readonly Json[]>,
): Promise<void> {
  const parents = (ledgers.get(chain.parent) ?? []).filter(({decision, executions}) => {
    const last = executions.at(-1)
    return decision === 'launched' && last?.status === 'succeeded'
  })
  const children = await server.launches(chain.child)
  const launched = children.filter(({decision}) => decision === 'launched')
  if (launched.length !== parents.length || children.length !== launched.length)
    verdict.problems.push(
      `${parents.length} successes of ${chain.parent} launched ${chain.child} ` +
        `${launched.length} times of ${children.length}`,
    )
}
