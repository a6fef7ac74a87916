/**
 * Marks that the jobs themselves write to a file, outside of Belfry: the ground truth for the audit of the
 * launches. Every execution appends one line at its start and one at its end; the audit matches them with
 * planned times by identity.
 */
import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {temporaryDirectory, type Answer, type Owner} from '../../test/support/server-process.ts'

export interface Mark {
  readonly job: string
  /** Planned time, ms since the epoch. */
  readonly scheduledAt: number
  readonly attempt: number
  readonly node: string
  readonly execution: string
  readonly what: 'start' | 'end'
}

/** The file for all jobs of a test; appends of lines this short are atomic. */
export class Marks {
  readonly #file: string

  constructor(owner: Owner) {
    this.#file = join(temporaryDirectory(owner), 'marks')
  }

  /** Shell command that marks its start, runs `body`, and marks its end unless it is killed. */
  command(body = 'true'): string {
    const identity =
      '$BELFRY_JOB $BELFRY_SCHEDULED_AT $BELFRY_ATTEMPT $BELFRY_NODE $BELFRY_EXECUTION'
    const mark = (what: string) => `echo "${identity} ${what}" >> ${this.#file}`
    return `${mark('start')}; ${body}; status=$?; ${mark('end')}; exit $status`
  }

  /** Job that fires every second and marks its runs; `more` replaces fields. */
  everySecond(name: string, more: Readonly<Record<string, unknown>> = {}) {
    return {
      name,
      schedule: '* * * * * *',
      executor: 'shell',
      executor_config: {shell: 'true', command: this.command()},
      ...more,
    }
  }

  read(): Mark[] {
    if (!existsSync(this.#file)) return []
    const lines = readFileSync(this.#file, 'utf8').split('\n')
    // The last line may be incomplete.
    return lines.slice(0, -1).map((line) => {
      const [job, scheduledAt, attempt, node, execution, what] = line.split(' ')
      return {
        job: job!,
        scheduledAt: Date.parse(scheduledAt!),
        attempt: Number(attempt),
        node: node!,
        execution: execution!,
        what: what as Mark['what'],
      }
    })
  }
}

export interface LaunchAudit {
  /** Planned times in the audited range. */
  readonly planned: number
  /** Number of these that were launched, started at least once, and skipped or missed with a reason. */
  readonly launched: number
  readonly started: number
  readonly refused: number
  /** Planned times without a row, or launched without a mark and a `lost` or `cancelled` execution. */
  readonly missing: readonly string[]
  /** Planned times with two launch rows, and executions that started twice. */
  readonly doubled: readonly string[]
  /** Planned times with more than one started execution, none of them `lost`. */
  readonly repeated: readonly string[]
  /** Executions recorded as succeeded without both marks. */
  readonly incomplete: readonly string[]
  /** Delay from planned time to decision of each launch, ms, ascending. */
  readonly lagsMs: readonly number[]
}

export interface AuditedJob {
  readonly name: string
  /** Launches of the job; rows with another cause than `schedule` are ignored. */
  readonly launches: readonly Answer['json'][]
  readonly marks: readonly Mark[]
  /** Audited planned times, ms since the epoch: `from` <= time < `to`, one every `stepMs`. */
  readonly from: number
  readonly to: number
  readonly stepMs?: number
}

/** Compares the launches of a job that runs on one node at a time with its marks. */
export function auditLaunches({
  name,
  launches,
  marks,
  from,
  to,
  stepMs = 1_000,
}: AuditedJob): LaunchAudit {
  const starts = startsOf(name, marks)
  const ended = new Set(marks.flatMap(({what, execution}) => (what === 'end' ? execution : [])))
  const rowsAt = rowsByTime(launches, stepMs)
  const audit = {
    planned: 0,
    launched: 0,
    started: 0,
    refused: 0,
    missing: [] as string[],
    doubled: [] as string[],
    repeated: [] as string[],
    incomplete: [] as string[],
    lagsMs: [] as number[],
  }
  for (let time = from; time < to; time += stepMs) {
    audit.planned += 1
    const at = `${name} ${new Date(time).toISOString()}`
    const rows = rowsAt.get(time) ?? []
    if (rows.length > 1) audit.doubled.push(`${at}: ${rows.length} rows`)
    const [row] = rows
    if (row === undefined) {
      audit.missing.push(`${at}: no row`)
      continue
    }
    if (row.decision !== 'launched') {
      audit.refused += 1
      continue
    }
    audit.launched += 1
    audit.lagsMs.push(Date.parse(row.decided_at) - time)
    const startsAt = starts.get(time) ?? new Map<string, number>()
    const statuses = row.executions.map(({status}: Answer['json']) => status)
    const isLost = statuses.includes('lost')
    const isCancelled = statuses.includes('cancelled')
    if (startsAt.size > 0) audit.started += 1
    else if (!isLost && !isCancelled) audit.missing.push(`${at}: launched, not started`)
    if (startsAt.size > 1 && !isLost)
      audit.repeated.push(`${at}: ${[...startsAt.keys()].join(' ')}`)
    for (const {id, status} of row.executions)
      if (status === 'succeeded' && !(startsAt.has(id) && ended.has(id)))
        audit.incomplete.push(`${at}: ${id} lacks a start or end mark`)
    for (const [execution, times] of startsAt)
      if (times > 1) audit.doubled.push(`${at}: ${execution} started ${times} times`)
  }
  audit.lagsMs.sort((a, b) => a - b)
  return audit
}

/** Start marks by planned time: execution id and number of starts. */
function startsOf(name: string, marks: readonly Mark[]): Map<number, Map<string, number>> {
  const starts = new Map<number, Map<string, number>>()
  for (const {job, scheduledAt, execution, what} of marks) {
    if (job !== name || what !== 'start') continue
    const startsAt = starts.get(scheduledAt) ?? new Map<string, number>()
    starts.set(scheduledAt, startsAt)
    startsAt.set(execution, (startsAt.get(execution) ?? 0) + 1)
  }
  return starts
}

/** Rows by planned time; a skipped or missed row may cover many. */
function rowsByTime(launches: readonly Answer['json'][], stepMs: number) {
  const rows = new Map<number, Answer['json'][]>()
  for (const row of launches) {
    if (row.cause !== 'schedule') continue
    const until = Date.parse(row.scheduled_until)
    for (let time = Date.parse(row.scheduled_at); time <= until; time += stepMs)
      rows.set(time, [...(rows.get(time) ?? []), row])
  }
  return rows
}
