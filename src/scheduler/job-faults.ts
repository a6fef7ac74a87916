/**
 * Isolates jobs that cannot be decided: a stored schedule that this version cannot read, a damaged
 * definition, a decision that the store rejects. The others are decided. Such a job is reported once in a
 * term by an event and a row of its launch history, and tried again from time to time; an edit is tried at
 * once.
 *
 * Failed assertions are isolated too: every leader in turn would end on the same job.
 */
import {reasonText} from '../core/launch-reasons.ts'
import type {JobFault} from '../core/launch-record.ts'
import {type PendingWork, UnreadableSchedule} from '../core/launch.ts'
import {messageOf} from '../lib/error.ts'
import type {Events} from '../ports/events.ts'
import type {DueJob} from '../ports/leader-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable, TermOver} from '../ports/store-errors.ts'

/** A failed write is tried with all others and then in pieces: often enough after a repair, and cheap. */
const RETRY_MS = 60_000
/** Faults remembered; beyond it the oldest is reported and tried again. About 100 bytes each. */
const FAULTS_MAX = 10_000
const MESSAGE_LENGTH_MAX = 300

/** Subject of a fault: a job in one revision, or one pending launch of it. */
export interface FaultSubject {
  readonly jobId: number
  readonly job: string
  readonly revision: number
  /** `null` = the due times of the job. */
  readonly group: number | null
}

export class JobFaults {
  readonly #clock: Pick<Clock, 'monotonicMs'>
  readonly #events: Events
  /** Monotonic instant of the next try, by key; oldest first. */
  readonly #retryAt = new Map<string, number>()
  #unrecorded: JobFault[] = []

  constructor({clock, events}: {clock: Pick<Clock, 'monotonicMs'>; events: Events}) {
    this.#clock = clock
    this.#events = events
  }

  /** Decides each item by itself; returns the decisions of those that can be decided. */
  decideEach<Item, Decision>(
    items: readonly Item[],
    isolate: (item: Item) => FaultSubject,
    decide: (item: Item) => Decision,
  ): Decision[] {
    return items.flatMap((item) => {
      if (this.#waits(isolate(item))) return []
      try {
        return [decide(item)]
      } catch (error) {
        this.add(isolate(item), error)
        return []
      }
    })
  }

  /**
   * Applies the decisions together. If the store rejects them, finds the one at fault by halves. Throws
   * errors that are no fault of a decision: the store is unavailable, or the term is over.
   */
  async applyEach<Decision>(
    decisions: readonly Decision[],
    isolate: (decision: Decision) => FaultSubject,
    apply: (decisions: readonly Decision[]) => Promise<void>,
  ): Promise<void> {
    try {
      await apply(decisions)
    } catch (error) {
      if (isPassing(error)) throw error
      const [only] = decisions
      if (decisions.length === 1 && only !== undefined) return this.add(isolate(only), error)
      const middle = Math.ceil(decisions.length / 2)
      await this.applyEach(decisions.slice(0, middle), isolate, apply)
      await this.applyEach(decisions.slice(middle), isolate, apply)
    }
  }

  add(isolated: FaultSubject, error: unknown): void {
    const key = keyOf(isolated)
    const isKnown = this.#retryAt.delete(key)
    this.#retryAt.set(key, this.#clock.monotonicMs() + RETRY_MS)
    const [oldest] = this.#retryAt.keys()
    if (this.#retryAt.size > FAULTS_MAX && oldest !== undefined) this.#retryAt.delete(oldest)
    if (isKnown) return
    const message = messageOf(error)
    const code = error instanceof UnreadableSchedule ? 'schedule_unreadable' : 'undecidable'
    const reason = reasonText(code, message.slice(0, MESSAGE_LENGTH_MAX))
    this.#events.emit('job_undecided', {job: isolated.job, reason})
    this.#unrecorded.push({jobId: isolated.jobId, reason})
  }

  /** Faults since the last call, for the launch history. Each is recorded at most once. */
  takeUnrecorded(): readonly JobFault[] {
    const taken = this.#unrecorded
    this.#unrecorded = []
    return taken
  }

  #waits(isolated: FaultSubject): boolean {
    if (this.#retryAt.size === 0) return false
    const retryAt = this.#retryAt.get(keyOf(isolated))
    return retryAt !== undefined && this.#clock.monotonicMs() < retryAt
  }
}

function keyOf({jobId, revision, group}: FaultSubject): string {
  return `${jobId} ${revision} ${group ?? ''}`
}

/** The error is no fault of a job. */
export function isPassing(error: unknown): boolean {
  return (
    error instanceof TermOver ||
    error instanceof StoreUnavailable ||
    error instanceof OutcomeUnknown
  )
}

export function isolatedJob({job}: DueJob): FaultSubject {
  return {jobId: job.id, job: job.spec.name, revision: job.revision, group: null}
}

export function isolatedRequest({launch: {group}, job}: PendingWork): FaultSubject {
  return {jobId: job.id, job: job.spec.name, revision: job.revision, group}
}
