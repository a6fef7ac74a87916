/** What has happened: executions, launches, statistics, and the reset of a job's history. */
import {parseExecutionId} from '../core/execution.ts'
import type {JobRecord} from '../core/job.ts'
import type {LaunchDecision} from '../core/launch-record.ts'
import {DomainError} from '../core/errors.ts'
import type {
  DayStatistics,
  ExecutionQuery,
  ExecutionView,
  LaunchView,
} from '../ports/history-store.ts'
import type {Page, Slice} from '../ports/page.ts'
import {KEPT_OUTPUT_BYTES, LISTED_OUTPUT_BYTES} from '../wire/execution.ts'
import {executionUnknown, jobUnknown, known} from './jobs.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

/** Output that one answer may hold, over all its executions. */
const ANSWER_OUTPUT_BYTES_MAX = 32 * 1024 * 1024

/** `outputBytes` `null` = the caller did not say. */
export type ExecutionsCall = Omit<ExecutionQuery, 'outputBytes'> & {
  readonly outputBytes: number | null
}

export function createHistory(store: StoreWithDeadlines) {
  /** Throws `job_unknown`. */
  async function executions(name: string, call: ExecutionsCall): Promise<Page<ExecutionView>> {
    const read = async (outputBytes: number) => {
      const page = await store.executions(name, {...call, outputBytes})
      if (page === null) throw jobUnknown(name)
      return page
    }
    return withinBudget(call.outputBytes, read)
  }

  function busy(slice: Slice, outputBytes: number | null): Promise<Page<ExecutionView>> {
    return withinBudget(outputBytes, (bytes) => store.busy({...slice, outputBytes: bytes}))
  }

  /** With all the output that is kept. Throws `job_unknown`, `execution_unknown`. */
  async function execution(name: string, id: string): Promise<ExecutionView> {
    const key = parseExecutionId(id)
    const view = key === null ? null : await store.execution(name, key, KEPT_OUTPUT_BYTES)
    if (view === null) throw await executionUnknown(store, name, id)
    return view
  }

  /** Deletes the finished executions and resets the counters. Throws `job_unknown`. */
  async function resetHistory(name: string): Promise<JobRecord> {
    return known(name, await store.resetHistory(name))
  }

  /** One row a day, oldest first. */
  function statistics(days: number): Promise<readonly DayStatistics[]> {
    return store.statistics(days)
  }

  return {executions, busy, execution, resetHistory, statistics}
}

/** The ledger of a job. */
export function createLaunches(store: StoreWithDeadlines) {
  /** Newest first. Throws `job_unknown`. */
  async function launches(
    name: string,
    query: Slice & {readonly decision: LaunchDecision | null},
  ): Promise<Page<LaunchView>> {
    const page = await store.launches(name, query)
    if (page === null) throw jobUnknown(name)
    return page
  }

  /** Throws `job_unknown`, `launch_unknown`. */
  async function launch(name: string, groupText: string): Promise<LaunchView> {
    const group = /^[1-9]\d{0,15}$/.test(groupText) ? Number(groupText) : NaN
    const found = Number.isSafeInteger(group) ? await store.launch(name, group) : null
    if (found !== null) return found
    known(name, await store.job(name))
    throw new DomainError('launch_unknown', `The job "${name}" has no such launch.`)
  }

  return {launches, launch}
}

/**
 * Reads with as much output a row as the caller asked for, unless all rows together would be more than an
 * answer may hold: then each gets its equal part, and its `output_truncated` says so.
 */
async function withinBudget(
  asked: number | null,
  read: (outputBytes: number) => Promise<Page<ExecutionView>>,
): Promise<Page<ExecutionView>> {
  if (asked === null || asked <= LISTED_OUTPUT_BYTES) return read(asked ?? LISTED_OUTPUT_BYTES)
  const {rows} = await read(0)
  return read(Math.min(asked, Math.floor(ANSWER_OUTPUT_BYTES_MAX / Math.max(1, rows.length))))
}
