/**
 * The chain of a launch: the launch that began it, those of its dependents, theirs, and so on. Pure: says
 * which launches a caller sees, and which of them took the chain to its end.
 */
import type {ExecutionStatus} from './execution.ts'
import type {LaunchRecord} from './launch-record.ts'

export interface TracedLaunch extends Pick<
  LaunchRecord,
  | 'group'
  | 'jobName'
  | 'parentGroup'
  | 'cause'
  | 'decision'
  | 'reason'
  | 'status'
  | 'scheduledAt'
  | 'scheduledUntil'
  | 'count'
  | 'decidedAt'
> {
  /** Earliest start of an execution; `null` = none has started, or they are not kept. */
  readonly startedAt: number | null
  /** `null` = it is open, or did not run. */
  readonly endedAt: number | null
  /** The last execution with a bad end; `null` = none, or it is not kept. */
  readonly failure: {
    readonly status: ExecutionStatus
    readonly reason: string
    readonly exitCode: number | null
  } | null
}

export interface Trace {
  readonly launches: readonly TracedLaunch[]
  /** Numbers from the root to the launch that ended last, or is still open. */
  readonly criticalPath: readonly number[]
  /** Launches of jobs that the caller may not read. */
  readonly hidden: number
  /** The chain has more launches. */
  readonly isPartial: boolean
}

/** Children of a launch in a reply. */
export const CHILDREN_MAX = 100
/** Launches of one trace. */
export const TRACE_MAX = 1_000

/** `rows`: the chain in the order of its numbers, one more than `TRACE_MAX` if it is longer. */
export function traceOf(
  rows: readonly TracedLaunch[],
  isReadable: (job: string) => boolean,
): Trace {
  const chain = rows.slice(0, TRACE_MAX)
  const launches = chain.filter(({jobName}) => isReadable(jobName))
  const shown = new Set(launches.map(({group}) => group))
  return {
    launches,
    criticalPath: criticalPath(chain).filter((group) => shown.has(group)),
    hidden: chain.length - launches.length,
    isPartial: rows.length > chain.length,
  }
}

/** A launch begins when its parent ends, so the longest way leads to the last end. */
function criticalPath(chain: readonly TracedLaunch[]): readonly number[] {
  const byGroup = new Map(chain.map((launch) => [launch.group, launch]))
  const endOf = (launch: TracedLaunch) => launch.endedAt ?? (isOpen(launch) ? Infinity : -Infinity)
  let last: TracedLaunch | undefined
  for (const launch of chain) if (last === undefined || endOf(launch) > endOf(last)) last = launch
  const path: number[] = []
  for (let at = last; at !== undefined && path.length <= chain.length;) {
    path.unshift(at.group)
    at = at.parentGroup === null ? undefined : byGroup.get(at.parentGroup)
  }
  return path
}

function isOpen({decision, status}: TracedLaunch): boolean {
  return decision === 'pending' || (decision === 'launched' && status === null)
}
