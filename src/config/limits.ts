/**
 * The bounds that are not settings: each with its unit in its name and the reason for its size, in one table
 * so that they can be read together. Some only make sense in relation to others; those relations are asserted
 * at every start.
 */
import {assert} from '../lib/assert.ts'

const KIB = 1024
const MIB = 1024 * KIB

/** The least of `--keep-left` and `--keep-failed`: a node that restarts stays listed, work is lost first. */
export const MEMBER_KEPT_MIN_MS = 60_000

interface Limit {
  readonly value: number
  /** Why not less and not more. */
  readonly reason: string
}

/** Every limit; docs/reference/configuration.md shows the same table. */
export const LIMITS = {
  bodyBytesMax: {
    value: MIB,
    reason: 'the largest job that validation lets pass fits several times',
  },
  restoreBytesMax: {value: 256 * MIB, reason: 'some hundred thousand jobs in one file'},
  outputTailBytes: {
    value: 256 * KIB,
    reason: 'a long stack trace and its surroundings, for each of a hundred launches of a job',
  },
  outputFlushBytes: {value: 64 * KIB, reason: 'a crash loses at most this much of what was shown'},
  outputFlushMs: {
    value: 1_000,
    reason: 'someone who watches sees it live, a chatty job costs a write a second',
  },
  outputPauseMs: {value: 250, reason: 'a flood of output costs the store four writes a second'},
  launchBatchMax: {value: 1_000, reason: 'one transaction stays well below 100 ms'},
  claimBatchMax: {value: 256, reason: 'a node starts work while the rest is still being claimed'},
  claimFreshMs: {
    value: 1_000,
    reason:
      'a claim older than this at its start is verified again, so that a paused node starts nothing stale',
  },
  claimVerifyMs: {
    value: 5_000,
    reason:
      'a server that was taken for dead and lives runs beside its successor no longer; costs a small read',
  },
  commitWaitMs: {
    value: 2,
    reason: 'nobody notices it, and one fsync then carries everything that came meanwhile',
  },
  commitItemsMax: {value: 256, reason: 'a commit stays below a few milliseconds'},
  pollMs: {
    value: 1_000,
    reason: 'with every wake-up lost, work still starts within about a second',
  },
  catchUpMax: {
    value: 100,
    reason: 'an outage of a night by a job of every minute does not become hundreds of runs',
  },
  pruneAllMs: {
    value: 600_000,
    reason:
      'a job that is launched no more keeps too much for so long at most; a look at all jobs costs time',
  },
  unlaunchedRowsKept: {
    value: 1_000,
    reason: 'the reasons of the last thousand times a job did not run',
  },
  clockStepMs: {
    value: 60_000,
    reason: 'a smaller difference of the clocks is the ordinary work of a time service',
  },
  clockLookMs: {value: 5_000, reason: 'a clock that was set is told of soon after'},
  leaseTtlMs: {value: 6_000, reason: 'a dead leader is replaced within eight seconds'},
  leaseRenewMs: {value: 2_000, reason: 'two renewals may be lost before the lease is'},
  leaseAcquireEveryMs: {
    value: 500,
    reason:
      'a lease that ran out is free no longer than this; costs a follower two small statements a second',
  },
  leaseMarginMs: {
    value: 1_000,
    reason: 'the leader stops trusting its lease this long before others may take it',
  },
  heartbeatMs: {value: 2_000, reason: 'four may be lost before a node counts as failed'},
  agentTimeoutMs: {
    value: 4_000,
    reason: 'an agent whose heartbeats the store has not answered by then goes to another server',
  },
  agentPollMs: {
    value: 2_000,
    reason: 'its server rings when there is work; with every ring lost it still starts in time',
  },
  disconnectedMs: {
    value: 12_000,
    reason:
      'a node that the store has not answered for this long ends what must not run twice, before it is ' +
      'started elsewhere',
  },
  failedAfterMs: {
    value: 10_000,
    reason: 'longer than any pause of a healthy machine, short enough to send work elsewhere',
  },
  lostAfterMs: {
    value: 25_000,
    reason: 'a node that was cut off has ended its forbidden work by itself before this',
  },
  failureDetectorPauseMaxMs: {
    value: 4_000,
    reason: 'a leader that did not look for this long has not listened, and judges nobody by it',
  },
  failureDetectorIntervalMs: {
    value: 1_000,
    reason: 'a dead node is noticed within a second of the time it takes',
  },
  memberRetentionIntervalMs: {
    value: 10_000,
    reason: 'a member is forgotten soon after its time; the look is one small query',
  },
  claimRepickMs: {
    value: 3_000,
    reason: 'a node that has not claimed its work by then is busy or gone; another may have it',
  },
  killAfterMs: {
    value: 10_000,
    reason:
      'between asking a command to end and ending it: time to write a file, not to hang a shutdown',
  },
  drainTimeoutMs: {
    value: 20_000,
    reason:
      'longer than ending a command takes; a store that takes no ends must not hold up a shutdown for ever',
  },
  forceStopTimeoutMs: {
    value: 3_000,
    reason:
      'the rest of the output of what was killed, and one try at the store; nobody who hurries waits longer',
  },
  drainMs: {
    value: 2_000,
    reason:
      'output of a command that has ended, held open by a grandchild, is waited for no longer',
  },
} as const satisfies Readonly<Record<string, Limit>>

export type LimitName = keyof typeof LIMITS
export type Limits = Readonly<Record<LimitName, number>>

/** The values alone, frozen, their relations asserted. */
export function checkedLimits(): Limits {
  const values = Object.fromEntries(
    Object.entries(LIMITS).map(([name, limit]) => [name, limit.value]),
  ) as Record<LimitName, number>
  assertLimits(values)
  return Object.freeze(values)
}

/** Throws when limits contradict each other. */
export function assertLimits(limits: Limits): void {
  const trustMs = limits.leaseTtlMs - limits.leaseMarginMs
  const relations: readonly (readonly [boolean, string])[] = [
    [Object.values(limits).every((value) => Number.isSafeInteger(value) && value > 0), 'positive'],
    [limits.leaseRenewMs * 2 < trustMs, 'two renewals fit into the time a lease is trusted'],
    [limits.leaseMarginMs < limits.leaseTtlMs, 'trust ends before the lease does'],
    [limits.heartbeatMs * 4 < limits.failedAfterMs, 'four heartbeats may be lost'],
    [limits.failedAfterMs < limits.lostAfterMs, 'a node is failed before its work is lost'],
    [limits.lostAfterMs < MEMBER_KEPT_MIN_MS, 'work is lost before its node is forgotten'],
    [
      limits.memberRetentionIntervalMs < MEMBER_KEPT_MIN_MS,
      'a member is forgotten soon after its time',
    ],
    [
      limits.failureDetectorIntervalMs < limits.failureDetectorPauseMaxMs,
      'a judge that looks in time has listened',
    ],
    [limits.failureDetectorPauseMaxMs < limits.failedAfterMs, 'a paused judge fails nobody'],
    [limits.claimFreshMs < limits.claimRepickMs, 'stale claims are verified before work moves on'],
    [limits.pollMs <= limits.claimVerifyMs, 'claims are verified when a server looks anyway'],
    [limits.pollMs < limits.claimRepickMs, 'a node polls before its work is given away'],
    [limits.killAfterMs < limits.lostAfterMs, 'work can be ended before it is declared lost'],
    [
      limits.outputPauseMs <= limits.outputFlushMs,
      'the pause between writes is not the longer one',
    ],
    [limits.outputFlushBytes <= limits.outputTailBytes, 'one write fits into what is kept'],
    [limits.heartbeatMs < limits.agentTimeoutMs, 'a link is judged by more than one heartbeat'],
    [limits.agentTimeoutMs * 2 < limits.failedAfterMs, 'an agent finds another server in time'],
    [limits.agentPollMs < limits.claimRepickMs, 'an agent polls before its work is given away'],
    [limits.agentTimeoutMs < limits.disconnectedMs, 'another server is tried before work is ended'],
    [
      limits.disconnectedMs + limits.killAfterMs < limits.lostAfterMs,
      'work that a node ends by itself is over before it is declared lost',
    ],
    [limits.drainMs < limits.forceStopTimeoutMs, 'the output of what was killed is waited for'],
    [
      limits.forceStopTimeoutMs < limits.drainTimeoutMs,
      'a stop that is hurried is the quicker one',
    ],
    [limits.killAfterMs < limits.drainTimeoutMs, 'a stop waits for the commands it ends'],
    [limits.commitWaitMs < limits.pollMs, 'a commit waits less than anybody polls'],
    [limits.bodyBytesMax < limits.restoreBytesMax, 'a file of jobs may be larger than one job'],
    [limits.outputTailBytes <= limits.bodyBytesMax, 'the output kept fits into one answer'],
  ]
  for (const [holds, what] of relations) assert(holds, `limits: ${what}`)
}
