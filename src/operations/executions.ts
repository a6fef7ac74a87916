/** History: executions, launches, statistics, and the reset of a job's history. */
import {LISTED_OUTPUT_BYTES, OUTPUT_KEPT_BYTES, parseExecutionId} from '../core/execution.ts'
import type {Actor} from '../core/audit.ts'
import {
  isShown,
  type Principal,
  readableExecutions,
  readableJobs,
} from '../core/access/authorization.ts'
import type {JobRecord} from '../core/job.ts'
import type {LaunchDecision} from '../core/launch-record.ts'
import {DomainError} from '../core/errors.ts'
import {type Trace, TRACE_MAX, traceOf} from '../core/trace.ts'
import type {
  DayStatistics,
  ExecutionListQuery,
  ExecutionQuery,
  ExecutionView,
  LaunchListQuery,
  LaunchView,
} from '../ports/history-store.ts'
import type {KeysetPage, Page, Slice} from '../ports/page.ts'
import type {Store} from '../ports/store.ts'
import type {OperationsContext} from './context.ts'
import {executionUnknown, jobUnknown, requireJob} from './jobs.ts'

/** Output in one reply, over all its executions. */
const REPLY_OUTPUT_BYTES_MAX = 32 * 1024 * 1024

/** `outputBytes` `null` = the request does not limit the output. */
export type ExecutionsCall = Omit<ExecutionQuery, 'outputBytes'> & {
  readonly outputBytes: number | null
}

export function createHistory({store}: OperationsContext) {
  /** Throws `job_unknown`. */
  async function executions(name: string, call: ExecutionsCall): Promise<Page<ExecutionView>> {
    const read = async (outputBytes: number, end: number | null) => {
      const page = await store.executions(name, {...call, end, outputBytes})
      if (page === null) throw jobUnknown(name)
      return page
    }
    return withinBudget(call, call.outputBytes, read)
  }

  /** Open executions of the jobs whose executions the caller may list. */
  function busy(
    slice: Slice,
    outputBytes: number | null,
    caller: Principal,
  ): Promise<Page<ExecutionView>> {
    const names = readableExecutions(caller)
    return withinBudget(slice, outputBytes, (bytes, end) =>
      store.busy({...slice, end, outputBytes: bytes, names}),
    )
  }

  /** Execution with all stored output. Throws `job_unknown`, `execution_unknown`. */
  async function execution(name: string, id: string): Promise<ExecutionView> {
    const key = parseExecutionId(id)
    const view = key === null ? null : await store.execution(name, key, OUTPUT_KEPT_BYTES)
    if (view === null) throw await executionUnknown(store, name, id)
    return view
  }

  /** Deletes the finished executions and resets the counters. Throws `job_unknown`. */
  async function resetHistory(name: string, actor: Actor): Promise<JobRecord> {
    return requireJob(name, await store.resetHistory(name, actor))
  }

  /** Rows, one per day, oldest first. */
  function statistics(days: number): Promise<readonly DayStatistics[]> {
    return store.statistics(days)
  }

  return {executions, busy, execution, resetHistory, statistics}
}

/** Rows across jobs, of the jobs that the caller may read. */
export type LaunchListCall = Omit<LaunchListQuery, 'names'>
export type ExecutionListCall = Omit<ExecutionListQuery, 'names'>

export function createLaunches({store}: OperationsContext) {
  /** Newest first. Throws `job_unknown`. */
  async function launches(
    name: string,
    query: Slice & {readonly decision: LaunchDecision | null},
    caller: Principal,
  ): Promise<Page<LaunchView>> {
    const page = await store.launches(name, query)
    if (page === null) throw jobUnknown(name)
    return {...page, rows: page.rows.map(withReadable(caller))}
  }

  /** Throws `job_unknown`, `launch_unknown`. */
  async function launch(name: string, groupText: string, caller: Principal): Promise<LaunchView> {
    return withReadable(caller)(await requireLaunch(store, name, groupText))
  }

  /** Throws `launch_unknown`, also if the caller may not read its job. */
  async function launchOfAny(groupText: string, caller: Principal): Promise<LaunchView> {
    const group = launchNumber(groupText)
    const found = group === null ? null : await store.launchOfAny(group, readableJobs(caller))
    if (found === null)
      throw new DomainError('launch_unknown', 'There is no such launch that you may read.')
    return withReadable(caller)(found)
  }

  /** The chain of the launch, without jobs that the caller may not read. Throws as `launchOfAny`. */
  async function trace(groupText: string, caller: Principal): Promise<Trace> {
    const {group} = await launchOfAny(groupText, caller)
    const names = readableJobs(caller)
    const chain = await store.trace(group, TRACE_MAX + 1)
    return traceOf(chain, (job) => isShown(names, job))
  }

  /** Newest first. */
  async function launchList(
    query: LaunchListCall,
    caller: Principal,
  ): Promise<KeysetPage<LaunchView>> {
    const page = await store.launchList({...query, names: readableJobs(caller)})
    return {...page, items: page.items.map(withReadable(caller))}
  }

  /** Newest first. All output together is at most that of one reply. */
  function executionList(
    query: ExecutionListCall,
    caller: Principal,
  ): Promise<KeysetPage<ExecutionView>> {
    const outputBytes = Math.min(
      query.outputBytes,
      Math.floor(REPLY_OUTPUT_BYTES_MAX / query.limit),
    )
    return store.executionList({...query, outputBytes, names: readableExecutions(caller)})
  }

  return {launches, launch, launchOfAny, trace, launchList, executionList}
}

/** Throws `job_unknown`, `launch_unknown`. */
export async function requireLaunch(
  store: Store,
  name: string,
  groupText: string,
): Promise<LaunchView> {
  const group = launchNumber(groupText)
  const found = group === null ? null : await store.launch(name, group)
  if (found !== null) return found
  requireJob(name, await store.job(name))
  throw new DomainError('launch_unknown', `The job "${name}" has no such launch.`)
}

/** `null` = it is none. */
function launchNumber(text: string): number | null {
  const group = /^[1-9]\d{0,15}$/.test(text) ? Number(text) : NaN
  return Number.isSafeInteger(group) ? group : null
}

/** Leaves out the parent and the children that the caller may not read. */
function withReadable(caller: Principal): (view: LaunchView) => LaunchView {
  const names = readableJobs(caller)
  const isReadable = ({jobName}: {readonly jobName: string}) => isShown(names, jobName)
  return (view) => ({
    ...view,
    parent: view.parent !== null && isReadable(view.parent) ? view.parent : null,
    children: view.children.filter(isReadable),
  })
}

/**
 * Reads each row with the requested output. If all rows together may exceed the limit of a reply, every row
 * gets an equal share, and its `output_truncated` is true. Rows that appear between the two reads are left
 * out: they are not in the share.
 */
async function withinBudget(
  {start, end}: Slice,
  requested: number | null,
  read: (outputBytes: number, end: number | null) => Promise<Page<ExecutionView>>,
): Promise<Page<ExecutionView>> {
  const bytes = requested ?? LISTED_OUTPUT_BYTES
  if (bytes === 0) return read(0, end)
  const fits = start + Math.floor(REPLY_OUTPUT_BYTES_MAX / bytes)
  const page = await read(bytes, Math.min(end ?? Infinity, fits))
  const last = Math.min(end ?? Infinity, page.total)
  if (last <= fits) return page
  return read(Math.floor(REPLY_OUTPUT_BYTES_MAX / (last - start)), last)
}
