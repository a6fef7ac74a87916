/**
 * The loop of a leader's service. A service is created for one term and writes under its number. A write
 * under an older term throws `TermOver`; the loop then ends this leader's term, which stops all its services.
 */
import type {Loop} from '../lib/loop.ts'
import {stepLoop, type StepLoopOptions} from '../node/step-loop.ts'
import type {Step} from '../core/steps.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

/** Options of every leader's service. */
export interface TermOptions {
  /** Fencing number of the lease. */
  readonly term: number
  /** Ends the term. Idempotent; must not wait for the service that calls it. */
  readonly onTermOver: () => void
  readonly clock: Clock
  readonly events: Events
}

export function leaderLoop(
  name: Step,
  {clock, events, onTermOver}: Omit<TermOptions, 'term'>,
  {onFailure, ...options}: Omit<StepLoopOptions, 'clock' | 'events'>,
): Loop {
  return stepLoop(name, {
    ...options,
    clock,
    events,
    onFailure: (error) => {
      onFailure?.(error)
      if (error instanceof TermOver) onTermOver()
    },
  })
}
