/**
 * Lines of the log about launches that an operator should see: planned times that were missed, found no node,
 * or were launched late. A job that stays in this state has one line when it begins and one when it ends.
 */
import type {EventPayloads} from '../core/events.ts'

/** Exceeds a leader's takeover or a busy minute. */
const LATE_MS = 60_000
/** Jobs in such a state; beyond it, the oldest are dropped. Some 100 bytes each. */
const JOBS_MAX = 10_000

type Launch = EventPayloads['launch_decided']
type Trouble = 'no_target' | 'late'

export interface Line {
  readonly message: string
  readonly fields: Readonly<Record<string, unknown>>
}

export class LaunchLines {
  readonly #jobs = new Map<string, {readonly trouble: Trouble; count: number}>()

  /** `null` = nothing that an operator should see. */
  lineOf(launch: Launch): Line | null {
    const known = this.#jobs.get(launch.job)
    const trouble = troubleOf(launch)
    if (trouble !== null && known?.trouble === trouble) {
      known.count += missing(launch)
      return null
    }
    if (trouble !== null) {
      this.#note(launch, trouble)
      return {message: BEGINS[trouble], fields: lateBy(launch)}
    }
    if (launch.decision === 'missed') return {message: 'planned times missed', fields: {}}
    if (known === undefined || launch.decision !== 'launched') return null
    this.#jobs.delete(launch.job)
    const {count: times} = known
    return {message: ENDS[known.trouble], fields: times === 0 ? {} : {times}}
  }

  #note(launch: Launch, trouble: Trouble): void {
    this.#jobs.delete(launch.job)
    this.#jobs.set(launch.job, {trouble, count: missing(launch)})
    const [oldest] = this.#jobs.keys()
    if (this.#jobs.size > JOBS_MAX) this.#jobs.delete(oldest!)
  }
}

/** A launch that waits for a node is counted when the wait is over. */
function missing({decision}: Launch): number {
  return decision === 'pending' ? 0 : 1
}

const BEGINS = {
  no_target: 'job not launched: no node matches its tags',
  late: 'job falls behind: launched late',
} as const

const ENDS = {
  no_target: 'job launched again: a node matches its tags',
  late: 'job is on time again',
} as const

function troubleOf(launch: Launch): Trouble | null {
  const {decision, reason, cause} = launch
  if (decision === 'skipped') return /^no_target(?:$|:)/.test(reason) ? 'no_target' : null
  if (decision === 'pending') return reason === 'waits_for_node' ? 'no_target' : null
  const isLate = decision === 'launched' && cause === 'schedule' && lateMs(launch) > LATE_MS
  return isLate ? 'late' : null
}

function lateMs({decided_at: decidedAt, scheduled_at: scheduledAt}: Launch): number {
  return decidedAt - scheduledAt
}

function lateBy(launch: Launch): Record<string, unknown> {
  return {late_by_ms: Math.max(0, lateMs(launch))}
}
