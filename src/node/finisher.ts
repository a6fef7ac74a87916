/**
 * The finish step: carries the ends of executions into the store, many in one transaction, and tells
 * the world what each did. An end is held until the store has taken it: a store that is away delays it
 * and loses nothing.
 *
 * Crash points: before the commit the execution is still running in the store and is rescued as `lost`;
 * after it the follow-ups (retry, dependents' requests) are durable. Bells may be lost, polls find the work;
 * events are told once or, when nobody heard what a commit did, never.
 */
import {executionId, type ExecutionRecord} from '../core/execution.ts'
import {AssertionFailed} from '../lib/assert.ts'
import {Batcher} from '../lib/batcher.ts'
import type {Events} from '../ports/events.ts'
import type {FinishItem, FinishOutcome, NodeStore} from '../ports/node-store.ts'
import type {Clock, Wakeup} from '../ports/runtime.ts'

export interface FinisherOptions {
  readonly store: Pick<NodeStore, 'finish'>
  readonly clock: Clock
  readonly wakeup: Wakeup
  readonly events: Events
  readonly batchWaitMs: number
  readonly batchMax: number
}

/** While the store is away an end is offered again this often. */
const AGAIN_MS = 500

export class Finisher {
  readonly #options: FinisherOptions
  readonly #batcher: Batcher<FinishItem, FinishOutcome>

  constructor(options: FinisherOptions) {
    this.#options = options
    this.#batcher = new Batcher({
      clock: options.clock,
      waitMs: options.batchWaitMs,
      itemsMax: options.batchMax,
      flush: (items) => this.#flush(items),
    })
  }

  /** Resolves when the store has taken the end; tries for as long as it takes. */
  async finish(item: FinishItem): Promise<FinishOutcome> {
    for (let isFirst = true; ; isFirst = false) {
      try {
        if (isFirst) return await this.#batcher.add(item)
        // Alone: what another end needs may be held for long, and together they fail together.
        const [outcome] = await this.#flush([item])
        return outcome!
      } catch (error) {
        if (error instanceof AssertionFailed) throw error
        // Finishing twice changes nothing, so an unknown outcome is simply offered again.
        this.#options.events.emit('step_failed', {step: 'finish', message: String(error)})
        await new Promise<void>((resolve) => this.#options.clock.after(AGAIN_MS, resolve))
      }
    }
  }

  async #flush(items: readonly FinishItem[]): Promise<readonly FinishOutcome[]> {
    const outcomes = await this.#options.store.finish(items)
    announceFinished(outcomes, this.#options)
    return outcomes
  }
}

/** Events and bells of what was finished, by a node's own ends and by rescue alike. After the commit. */
export function announceFinished(
  outcomes: readonly FinishOutcome[],
  {wakeup, events}: {readonly wakeup: Wakeup; readonly events: Events},
): void {
  let retries = false
  let closed = false
  for (const outcome of outcomes) {
    if (outcome.kind === 'already') {
      // Perhaps stored by an earlier try whose answer was lost, and nobody was told what follows.
      retries = true
      closed = true
    }
    if (outcome.kind !== 'finished') continue
    const {execution, retry} = outcome
    retries ||= retry !== null
    closed ||= outcome.closed !== null
    emitFinished(events, execution, retry !== null)
    for (const ended of outcome.endedRetries ?? []) emitFinished(events, ended, false)
    if (outcome.jobDisabled)
      events.emit('job_disabled', {job: execution.jobName, reason: 'quarantined'})
    if (outcome.jobDeleted) events.emit('job_deleted', {job: execution.jobName})
  }
  if (retries) wakeup.notify('run')
  // Dependents' turns, and planned times that waited for this launch to close.
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
