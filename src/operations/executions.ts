/** History: executions, launches, statistics, and the reset of a job's history. */
import {type ExecutionRecord, OUTPUT_KEPT_BYTES, parseExecutionId} from '../core/execution.ts'
import type {JobRecord} from '../core/job.ts'
import type {LaunchDecision, LaunchRecord} from '../core/launch-record.ts'
import {DomainError} from '../core/errors.ts'
import type {DayStatistics, ExecutionQuery, ExecutionView} from '../ports/history-store.ts'
import type {Page, Slice} from '../ports/page.ts'
import {LISTED_OUTPUT_BYTES} from '../wire/execution.ts'
import type {OperationsContext} from './context.ts'
import {executionUnknown, jobUnknown, requireJob} from './jobs.ts'

/** Output in one reply, over all its executions. */
const REPLY_OUTPUT_BYTES_MAX = 32 * 1024 * 1024

/** `outputBytes` `null` = the request does not limit the output. */
export type ExecutionsCall = Omit<ExecutionQuery, 'outputBytes'> & {
  readonly outputBytes: number | null
}

export interface LaunchWithExecutions {
  readonly launch: LaunchRecord
  readonly executions: readonly ExecutionRecord[]
}

export function createHistory({store}: OperationsContext) {
  /** Throws `job_unknown`. */
  async function executions(name: string, call: ExecutionsCall): Promise<Page<ExecutionView>> {
    const read = async (outputBytes: number) => {
      const page = await store.readSlice(call, (data) =>
        data.executions(name, {...call, outputBytes}),
      )
      if (page === null) throw jobUnknown(name)
      return page
    }
    return withinBudget(call.outputBytes, read)
  }

  function busy(slice: Slice, outputBytes: number | null): Promise<Page<ExecutionView>> {
    return withinBudget(outputBytes, (bytes) =>
      store.readSlice(slice, (data) => data.busy({...slice, outputBytes: bytes})),
    )
  }

  /** With all stored output. Throws `job_unknown`, `execution_unknown`. */
  async function execution(name: string, id: string): Promise<ExecutionView> {
    const key = parseExecutionId(id)
    const view =
      key === null ? null : await store.read((data) => data.execution(name, key, OUTPUT_KEPT_BYTES))
    if (view === null) throw await executionUnknown(store, name, id)
    return view
  }

  /** Deletes the finished executions and resets the counters. Throws `job_unknown`. */
  async function resetHistory(name: string): Promise<JobRecord> {
    return requireJob(name, await store.write((data) => data.resetHistory(name)))
  }

  /** One row per day, oldest first. */
  function statistics(days: number): Promise<readonly DayStatistics[]> {
    return store.read((data) => data.statistics(days))
  }

  return {executions, busy, execution, resetHistory, statistics}
}

export function createLaunches({store}: OperationsContext) {
  /** Newest first. Throws `job_unknown`. */
  async function launches(
    name: string,
    query: Slice & {readonly decision: LaunchDecision | null},
  ): Promise<Page<LaunchWithExecutions>> {
    const page = await store.read((data) => data.launches(name, query))
    if (page === null) throw jobUnknown(name)
    const rows: LaunchWithExecutions[] = []
    for (const launch of page.rows) {
      const found =
        launch.decision === 'launched'
          ? await store.read((data) => data.launch(name, launch.group))
          : null
      rows.push(found ?? {launch, executions: []})
    }
    return {total: page.total, rows}
  }

  /** Throws `job_unknown`, `launch_unknown`. */
  async function launch(name: string, groupText: string): Promise<LaunchWithExecutions> {
    const group = /^[1-9]\d{0,15}$/.test(groupText) ? Number(groupText) : NaN
    const found = Number.isSafeInteger(group)
      ? await store.read((data) => data.launch(name, group))
      : null
    if (found !== null) return found
    requireJob(name, await store.read((data) => data.job(name)))
    throw new DomainError('launch_unknown', `The job "${name}" has no such launch.`)
  }

  return {launches, launch}
}

/**
 * Reads each row with the requested output. If all rows together may exceed the limit of a reply, every row
 * gets an equal share, and its `output_truncated` is true.
 */
async function withinBudget(
  requested: number | null,
  read: (outputBytes: number) => Promise<Page<ExecutionView>>,
): Promise<Page<ExecutionView>> {
  if (requested === null || requested <= LISTED_OUTPUT_BYTES)
    return read(requested ?? LISTED_OUTPUT_BYTES)
  const {rows} = await read(0)
  return read(Math.min(requested, Math.floor(REPLY_OUTPUT_BYTES_MAX / Math.max(1, rows.length))))
}
