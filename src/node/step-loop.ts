/**
 * A background loop of one named step: each failure is emitted as `step_failed`, then the step is retried
 * with exponential backoff. Every recurring step of a node and of the leader runs in one.
 */
import {Loop} from '../lib/loop.ts'
import type {Step} from '../core/steps.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

export interface StepLoopOptions {
  readonly clock: Clock
  readonly events: Events
  /** Runs once and returns the wait before the next run, in ms. */
  readonly step: () => Promise<number>
  /** Called before the event is emitted. */
  readonly onFailure?: (error: unknown) => void
  /** Called when the step has written under an older term. Absent on loops that do not belong to a term. */
  readonly onTermOver?: () => void
  /** Longest wait after a failure, in ms. Absent = the default of `Loop`. */
  readonly backoffMaxMs?: number
}

/** `name` is the value of `step` in `step_failed`, and a label value of the metrics. */
export function stepLoop(name: Step, options: StepLoopOptions): Loop {
  const {events, onFailure, onTermOver} = options
  return new Loop({
    ...options,
    failed: (error) => {
      onFailure?.(error)
      if (error instanceof TermOver) onTermOver?.()
      events.emit('step_failed', {step: name, message: String(error)})
    },
  })
}
