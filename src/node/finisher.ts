/**
 * Finish step: stores the results of executions, many in one transaction, and announces what each changed. A
 * result is kept until the store has it: an outage of the store delays results and loses none.
 *
 * Crash points: before the commit the execution is still running in the store and ends as `lost`; after it
 * the follow-ups (retry, dependents' requests) are durable. Notifications may be lost: polling finds the
 * work. Events are emitted at most once: never if the commit's reply is lost.
 */
import type {Limits} from '../config/limits.ts'
import {executionId, type ExecutionRecord} from '../core/execution.ts'
import {AssertionFailed} from '../lib/assert.ts'
import {BatchQueue} from '../lib/batch-queue.ts'
import {pause} from '../lib/pause.ts'
import type {Events} from '../ports/events.ts'
import type {FinishOutcome} from '../core/end-requests.ts'
import type {FinishItem} from '../ports/node-store.ts'
import type {Clock, Wakeup} from '../ports/runtime.ts'

export interface FinisherOptions<Item, Outcome> {
  readonly store: {readonly finish: (items: readonly Item[]) => Promise<readonly Outcome[]>}
  readonly clock: Clock
  readonly events: Events
  /** Called after each commit. Absent on an agent: its server announces the ends. */
  readonly announce?: (outcomes: readonly Outcome[]) => void
  readonly limits: CommitLimits
}

export type CommitLimits = Pick<Limits, 'commitWaitMs' | 'commitPauseMs' | 'commitItemsMax'>

/**
 * Batches of results and of output. Batched here and not only by the store's write queue: SQLite's queue
 * gives each call its own savepoint, which costs about 15 % more CPU in the bookkeeping benchmark, and an
 * agent would send a message an item.
 */
export function commitBatch({commitWaitMs, commitPauseMs, commitItemsMax}: CommitLimits) {
  return {waitMs: commitWaitMs, pauseMs: commitPauseMs, itemsMax: commitItemsMax}
}

/** Retry interval while the store is unavailable. */
const RETRY_MS = 500

/** `Item`: a result as the store takes it. */
export class Finisher<Item = FinishItem, Outcome = FinishOutcome> {
  readonly #options: FinisherOptions<Item, Outcome>
  readonly #batches: BatchQueue<Item, Outcome>

  constructor(options: FinisherOptions<Item, Outcome>) {
    this.#options = options
    this.#batches = new BatchQueue({
      clock: options.clock,
      ...commitBatch(options.limits),
      flush: (items) => this.#flush(items),
    })
  }

  /** Resolves when the store has the result; retries without limit. */
  async finish(item: Item): Promise<Outcome> {
    for (let isFirst = true; ; isFirst = false) {
      try {
        if (isFirst) return await this.#batches.add(item)
        // Alone: a batch fails as a whole, and a row that another result needs may be locked for long.
        const [outcome] = await this.#flush([item])
        return outcome!
      } catch (error) {
        if (error instanceof AssertionFailed) throw error
        // A repeated finish changes nothing, so an unknown outcome is simply retried.
        this.#options.events.emit('step_failed', {step: 'finish', message: String(error)})
        await pause(this.#options.clock, RETRY_MS)
      }
    }
  }

  async #flush(items: readonly Item[]): Promise<readonly Outcome[]> {
    const outcomes = await this.#options.store.finish(items)
    this.#options.announce?.(outcomes)
    return outcomes
  }
}

/** Emits events and notifies after the commit of any finish: by its node, as `lost`, or by a reassignment. */
export function announceFinished(
  outcomes: readonly FinishOutcome[],
  {wakeup, events}: {readonly wakeup: Wakeup; readonly events: Events},
): void {
  let retries = false
  let closed = false
  for (const outcome of outcomes) {
    if (outcome.kind === 'already') {
      // Perhaps stored by an earlier attempt whose reply was lost: its follow-ups were not announced.
      retries = true
      closed = true
    }
    if (outcome.kind !== 'finished') continue
    const {execution, retry} = outcome
    retries ||= retry !== null
    closed ||= outcome.closed !== null && outcome.closed.wakesLauncher !== false
    emitFinished(events, execution, retry !== null)
    for (const ended of outcome.endedRetries ?? []) emitFinished(events, ended, false)
    if (outcome.jobDisabled)
      events.emit('job_disabled', {job: execution.jobName, reason: 'quarantined'})
    if (outcome.jobDeleted) events.emit('job_deleted', {job: execution.jobName})
  }
  if (retries) wakeup.notify('run')
  if (closed) wakeup.notify('launch')
}

function emitFinished(events: Events, execution: ExecutionRecord, retried: boolean): void {
  const {status, startedAt, finishedAt} = execution
  if (status === 'pending' || status === 'running') return
  events.emit('execution_finished', {
    job: execution.jobName,
    execution: executionId(execution),
    node: execution.node,
    status,
    attempt: execution.attempt,
    duration_ms: startedAt === null || finishedAt === null ? 0 : finishedAt - startedAt,
    retried,
  })
}
