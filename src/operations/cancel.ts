/**
 * Cancellation of one execution, or of all open executions of a job. It is stored for the node, which ends
 * the process; nothing is stopped here.
 */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {
  executionId,
  type ExecutionKey,
  type ExecutionRecord,
  type ExecutionStatus,
  LISTED_OUTPUT_BYTES,
  parseExecutionId,
} from '../core/execution.ts'
import type {ExecutionView} from '../ports/history-store.ts'
import type {CancelResult} from '../ports/node-store.ts'
import type {OperationsContext} from './context.ts'
import {requireLaunch} from './executions.ts'
import {executionUnknown, jobUnknown} from './jobs.ts'

/** Executions in one request: some seconds of writes. The reply says that there are more. */
const CANCELLED_MAX = 1_000
/** Open executions of a job that are looked at: more than the slots of a large cluster. */
const OPEN_READ_MAX = 20_000
const OPEN_STATUSES = ['pending', 'running'] as const
/** Rows of one read. */
const ROWS_MAX = 1_000
/** Writes at once: the store merges them. */
const TOGETHER = 50

function isOpen(status: ExecutionStatus): boolean {
  return status === 'pending' || status === 'running'
}

/** Ids of the executions whose end was requested; `more`: there are others, beyond `CANCELLED_MAX`. */
export interface Cancelled {
  readonly cancelled: readonly string[]
  readonly more: boolean
}

export function createCancellations(context: OperationsContext) {
  const {wakeup, events, store, announce} = context

  async function request(name: string, key: ExecutionKey, actor: Actor): Promise<CancelResult> {
    const result = await store.cancelExecution(name, key, actor)
    if (result.kind !== 'requested') return result
    const {status} = result.execution
    events.emit('execution_changed', {job: name, execution: executionId(key), status})
    announce(result.ended)
    return result
  }

  /**
   * Requests the end of a pending or running execution. Throws `job_unknown`, `execution_unknown`,
   * `execution_over`.
   */
  async function cancel(name: string, id: string, actor: Actor): Promise<ExecutionView> {
    const key = parseExecutionId(id)
    if (key === null) throw await executionUnknown(store, name, id)
    const result = await request(name, key, actor)
    if (result.kind === 'unknown') throw await executionUnknown(store, name, id)
    if (result.kind === 'over')
      throw new DomainError(
        'execution_over',
        `The execution cannot be cancelled: it has ended as ${result.status}.`,
        {members: {execution_status: result.status}},
      )
    wakeup.notify('cancel')
    const view = await store.execution(name, key, LISTED_OUTPUT_BYTES)
    return view ?? {...result.execution, output: new Uint8Array(), outputTruncated: false}
  }

  /**
   * Cancels all open executions that it finds, until it finds no others: a retry may take the place of one.
   * Throws `job_unknown`, `launch_unknown`.
   */
  async function cancelOpen(name: string, group: string | null, actor: Actor): Promise<Cancelled> {
    // Another request may have cancelled it, or it may have ended: it is not asked again.
    const asked = new Set<string>()
    const cancelled: string[] = []
    for (;;) {
      const found = (await openOf(context, name, group)).filter(
        (key) => !asked.has(executionId(key)),
      )
      if (found.length === 0) return {cancelled, more: false}
      for (let at = 0; at < found.length; at += TOGETHER) {
        if (cancelled.length >= CANCELLED_MAX) return {cancelled, more: true}
        const batch = found.slice(at, at + TOGETHER)
        for (const key of batch) asked.add(executionId(key))
        const results = await Promise.all(batch.map((key) => request(name, key, actor)))
        for (const [index, {kind}] of results.entries())
          if (kind === 'requested') cancelled.push(executionId(batch[index]!))
        wakeup.notify('cancel')
      }
    }
  }

  return {cancel, cancelOpen}
}

/** Open executions that are not cancelled yet, of the job or of one launch. */
async function openOf(
  context: OperationsContext,
  name: string,
  group: string | null,
): Promise<readonly ExecutionKey[]> {
  const found: ExecutionRecord[] = []
  if (group !== null) {
    const {executions} = await requireLaunch(context.store, name, group)
    found.push(...executions.filter(({status}) => isOpen(status)))
  } else
    for (const status of OPEN_STATUSES)
      for (let start = 0, isMore = true; isMore; start += ROWS_MAX) {
        const slice = {start, end: start + ROWS_MAX}
        const query = {sort: 'id', order: 'asc', status, outputBytes: 0} as const
        const page = await context.store.executions(name, {...slice, ...query})
        if (page === null) throw jobUnknown(name)
        found.push(...page.rows)
        isMore = page.rows.length === ROWS_MAX && found.length < OPEN_READ_MAX
      }
  return found.filter(({cancelRequestedAt}) => cancelRequestedAt === null)
}
