/**
 * What jobs themselves wrote down, outside of Belfry: the truth that its ledger is held against. Every
 * execution appends one line when it starts and one when it ends; a verdict matches planned times with
 * these by identity.
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

/** One file for all jobs of a test; lines this short are appended whole. */
export class Marks {
  readonly #file: string

  constructor(owner: Owner) {
    this.#file = join(temporaryDirectory(owner), 'marks')
  }

  /** A shell command that marks its start, runs `body`, and marks its end if it gets there. */
  command(body = 'true'): string {
    const identity =
      '$BELFRY_JOB $BELFRY_SCHEDULED_AT $BELFRY_ATTEMPT $BELFRY_NODE $BELFRY_EXECUTION'
    const mark = (what: string) => `echo "${identity} ${what}" >> ${this.#file}`
    return `${mark('start')}; ${body}; status=$?; ${mark('end')}; exit $status`
  }

  /** A job of the shell executor that fires each second and marks its runs; `more` replaces fields. */
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
    // The last line may be under way.
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

export interface Verdict {
  /** Planned times in the range that was judged. */
  readonly planned: number
  /** How many of them were launched, started at least once, and skipped or missed with a reason. */
  readonly launched: number
  readonly started: number
  readonly refused: number
  /** Planned times without a launch row, or launched without a mark and not lost. */
  readonly missing: readonly string[]
  /** Planned times with two launch rows, and executions that started twice. */
  readonly doubled: readonly string[]
  /** Planned times of which more than one execution started, though none of them was lost. */
  readonly repeated: readonly string[]
  /** Executions that are recorded as succeeded without having marked both their start and their end. */
  readonly incomplete: readonly string[]
  /** From planned to decided, of what was launched, in ms, ascending. */
  readonly lagsMs: readonly number[]
}

export interface JudgedJob {
  readonly name: string
  /** The whole ledger of the job; rows of other causes are left out of account. */
  readonly launches: readonly Answer['json'][]
  readonly marks: readonly Mark[]
  /** Planned times judged, ms since the epoch: `from` <= time < `to`, one every `stepMs`. */
  readonly from: number
  readonly to: number
  readonly stepMs?: number
}

/** Holds one job, which runs on one node a time, against its marks. */
export function judge({name, launches, marks, from, to, stepMs = 1_000}: JudgedJob): Verdict {
  const starts = startsOf(name, marks)
  const ended = new Set(marks.flatMap(({what, execution}) => (what === 'end' ? execution : [])))
  const rowsAt = rowsByTime(launches, stepMs)
  const verdict = {
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
    verdict.planned += 1
    const at = `${name} ${new Date(time).toISOString()}`
    const rows = rowsAt.get(time) ?? []
    if (rows.length > 1) verdict.doubled.push(`${at}: ${rows.length} rows`)
    const [row] = rows
    if (row === undefined) {
      verdict.missing.push(`${at}: no row`)
      continue
    }
    if (row.decision !== 'launched') {
      verdict.refused += 1
      continue
    }
    verdict.launched += 1
    verdict.lagsMs.push(Date.parse(row.decided_at) - time)
    const began = starts.get(time) ?? new Map<string, number>()
    const isLost = row.executions.some(({status}: Answer['json']) => status === 'lost')
    if (began.size > 0) verdict.started += 1
    else if (!isLost) verdict.missing.push(`${at}: launched, not started`)
    if (began.size > 1 && !isLost) verdict.repeated.push(`${at}: ${[...began.keys()].join(' ')}`)
    for (const {id, status} of row.executions)
      if (status === 'succeeded' && !(began.has(id) && ended.has(id)))
        verdict.incomplete.push(`${at}: ${id} has not marked its start and its end`)
    for (const [execution, times] of began)
      if (times > 1) verdict.doubled.push(`${at}: ${execution} started ${times} times`)
  }
  verdict.lagsMs.sort((a, b) => a - b)
  return verdict
}

/** By planned time: executions that said they started, with how often each did. */
function startsOf(name: string, marks: readonly Mark[]): Map<number, Map<string, number>> {
  const starts = new Map<number, Map<string, number>>()
  for (const {job, scheduledAt, execution, what} of marks) {
    if (job !== name || what !== 'start') continue
    const began = starts.get(scheduledAt) ?? new Map<string, number>()
    starts.set(scheduledAt, began)
    began.set(execution, (began.get(execution) ?? 0) + 1)
  }
  return starts
}

/** A row that did not launch may stand for many planned times. */
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
