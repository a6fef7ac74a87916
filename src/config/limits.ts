/**
 * Fixed bounds, in one table: each has its unit in its name and the reason for its size. Relations between
 * bounds are asserted at every start.
 */
import {OUTPUT_KEPT_BYTES, OUTPUT_START_BYTES} from '../core/execution.ts'
import {assert} from '../lib/assert.ts'

const KIB = 1024
const MIB = 1024 * KIB

/**
 * Minimum of `--keep-left` and `--keep-failed`. A restarting node stays listed, and its work is lost first.
 */
export const MEMBER_KEPT_MIN_MS = 60_000

interface Limit {
  readonly value: number
  /** Why it is neither smaller nor larger. */
  readonly reason: string
}

/** docs/reference/limits.md shows the same table. */
export const LIMITS = {
  bodyBytesMax: {value: MIB, reason: 'several times the largest job that passes validation'},
  restoreBytesMax: {value: 256 * MIB, reason: 'some hundred thousand jobs in one file'},
  connectionsMax: {
    value: 10_000,
    reason: 'all agents and clients of a large cluster; idle, they use some hundred megabytes',
  },
  networkConnectionsPercent: {
    value: 25,
    reason:
      'of connectionsMax, without a valid token: all agents may reconnect through one address or IPv6 /64',
  },
  reservedConnectionsPercent: {
    value: 5,
    reason:
      'of connectionsMax: some hundred known callers connect at once while strangers take all others',
  },
  anonymousKeepAliveMs: {
    value: 5_000,
    reason:
      'a browser loads a page over one connection; a stranger keeps none without new requests',
  },
  agentConnectionsMax: {
    value: 100,
    reason: 'several scrapers and health checks of one agent, each with a few connections',
  },
  replyStalledMs: {
    value: 30_000,
    reason: 'a client that reads nothing for this long is gone; its reply is held in memory',
  },
  longListsMax: {
    value: 4,
    reason: 'each list without a limit may hold all jobs in memory: some 200 MB at 100,000 jobs',
  },
  streamsMax: {value: 200, reason: 'each event stream costs a socket, a subscription and a buffer'},
  tokenStreamsMax: {
    value: 50,
    reason:
      'many open pages of one team; three others have as many. Management tokens have no share',
  },
  agentsMax: {value: 2_000, reason: 'some 20 KB each; more than one server process serves well'},
  agentTokenLinksMax: {
    value: 8,
    reason:
      'an agent has one; those that broke without a word count until they are silent for long',
  },
  joinTokenLinksMax: {
    value: 200,
    reason: 'a large fleet joins at once, each agent for a moment; one token cannot fill a server',
  },
  agentConnectGapMs: {
    value: 5_000,
    reason:
      'an agent that was refused comes back in time for its heartbeat; each join is several writes',
  },
  agentConnectsPerSecond: {
    value: 20,
    reason: 'some percent of a processor; for agents that reconnect more than twice in 30 s',
  },
  agentItemsPerSecond: {
    value: 2_000,
    reason: 'claims and results of one agent: some times what 256 slots with short commands need',
  },
  verifiedPerSecond: {
    value: 8_000,
    reason: 'claims that all agents of a server verify: some percent of a processor',
  },
  outputTailBytes: {
    value: OUTPUT_KEPT_BYTES,
    reason: 'a long stack trace with its context, for each of a hundred launches of a job',
  },
  outputStartBytes: {
    value: OUTPUT_START_BYTES,
    reason: 'the first lines of a long output say what ran and with what; the first error is there',
  },
  outputFlushBytes: {value: 64 * KIB, reason: 'a crash loses at most this much of the output'},
  outputFlushMs: {
    value: 1_000,
    reason: 'output can be followed live; a job that prints much costs one write per second',
  },
  outputPauseMs: {
    value: 250,
    reason: 'a flood of output costs the store four writes per second',
  },
  launchBatchMax: {value: 1_000, reason: 'one transaction stays well below 100 ms'},
  launchFirstMax: {
    value: 200,
    reason: 'of many jobs that are due at once, nodes start the first while the rest is decided',
  },
  claimBatchMax: {value: 256, reason: 'a node starts work while it claims the rest'},
  claimFreshMs: {
    value: 1_000,
    reason: 'older claims are verified before the start, so a paused node starts nothing stale',
  },
  claimAheadMs: {
    value: 500,
    reason: 'work that a node claimed ahead and cannot start by then is released for other nodes',
  },
  claimPauseMs: {
    value: 100,
    reason:
      'under load, a claim fills many slots at once; work claimed ahead keeps the others busy',
  },
  burstMin: {
    value: 5_000,
    reason: 'a leader records this many planned times in about a second; fewer do not delay others',
  },
  burstClaimMax: {
    value: 8,
    reason:
      'while the leader records very many planned times, starting commands takes a small share of the time',
  },
  burstPauseMs: {
    value: 250,
    reason:
      'the pause between these claims; idle nodes start some 30 executions a second meanwhile',
  },
  claimVerifyMs: {
    value: 5_000,
    reason:
      'a live server that was declared failed soon stops running beside its successor; costs a small read',
  },
  commitWaitMs: {
    value: 2,
    reason: 'too short to notice, and one fsync then covers all writes that arrived meanwhile',
  },
  commitPauseMs: {
    value: 50,
    reason:
      'under load, results wait this long, so that a commit covers the ends of many executions',
  },
  commitItemsMax: {value: 256, reason: 'a commit stays below a few milliseconds'},
  pollMs: {
    value: 1_000,
    reason: 'if every notification is lost, work still starts within about a second',
  },
  catchUpMax: {
    value: 100,
    reason: 'a night of downtime does not turn a job of every minute into hundreds of runs',
  },
  queuedPerJobMax: {
    value: 100,
    reason:
      'the queue of a job that nodes start more slowly than it is planned does not grow without end',
  },
  pruneAllMs: {
    value: 600_000,
    reason:
      'a job that no longer launches exceeds its limits for at most this long; a full scan is slow',
  },
  unlaunchedRowsKept: {
    value: 1_000,
    reason: 'the reasons of the last thousand times a job did not run',
  },
  clockStepMs: {
    value: 60_000,
    reason: 'smaller differences between clocks are normal corrections by a time service',
  },
  clockFarMs: {
    value: 3_600_000,
    reason:
      'a shorter step ahead is like an outage of that length; a longer one would silence all jobs so long',
  },
  clockConfirmMs: {
    value: 180_000,
    reason: 'a time service corrects a wrong clock sooner; a machine that slept waits this long',
  },
  metricsNodesMax: {
    value: 1_000,
    reason: 'four series each; a larger cluster is watched through the metrics of its agents',
  },
  metricsJobsMax: {
    value: 1_000,
    reason: 'three series each on every server; few jobs need an alert of their own',
  },
  clockLookMs: {value: 5_000, reason: 'a step of the clock is reported soon after'},
  leaseTtlMs: {value: 6_000, reason: 'a leader that stands still is replaced within eight seconds'},
  leaseRenewMs: {value: 1_000, reason: 'the lease survives four lost renewals'},
  leaseClosedMs: {
    value: 1_500,
    reason:
      'a killed leader is replaced within 2.5 seconds; a live one has opened a new connection by then',
  },
  leaseAcquireEveryMs: {
    value: 500,
    reason:
      'an expired lease is free for at most this long; costs a follower six small statements per second',
  },
  leaseMarginMs: {
    value: 1_000,
    reason: 'the leader stops trusting its lease this long before others may take it',
  },
  heartbeatMs: {value: 2_000, reason: 'a node survives four lost heartbeats'},
  agentTimeoutMs: {
    value: 4_000,
    reason: 'an agent changes its server if the store acknowledges no heartbeat for this long',
  },
  agentPollMs: {
    value: 2_000,
    reason:
      'the server notifies its agents; if every notification is lost, work still starts in time',
  },
  disconnectedMs: {
    value: 12_000,
    reason:
      'a node without an answer from the store ends work that must not run twice, before it starts elsewhere',
  },
  failedAfterMs: {
    value: 10_000,
    reason: 'longer than any pause of a healthy machine, short enough to move work elsewhere',
  },
  lostAfterMs: {
    value: 25_000,
    reason: 'by then a disconnected node has ended all work that must not run twice',
  },
  failureDetectorPauseMaxMs: {
    value: 4_000,
    reason:
      'a leader that paused this long may have missed heartbeats, so it marks no node as failed',
  },
  failureDetectorIntervalMs: {
    value: 1_000,
    reason: 'a dead node is detected at most a second after its timeout',
  },
  memberRetentionIntervalMs: {
    value: 10_000,
    reason: 'a member is removed soon after its time; the check is one small query',
  },
  claimRepickMs: {
    value: 3_000,
    reason:
      'a node that has not claimed its work by then is busy or gone; another node may take it',
  },
  killAfterMs: {
    value: 10_000,
    reason: 'from TERM to KILL: enough to write a file, too short to stall a shutdown',
  },
  drainTimeoutMs: {
    value: 20_000,
    reason: 'longer than ending a command takes; a store that is down must not block a shutdown',
  },
  forceStopTimeoutMs: {
    value: 3_000,
    reason: 'time for the last output of killed commands and one write to the store, and no longer',
  },
  drainDeadlineMs: {
    value: 600_000,
    reason: 'of a drain without a deadline: most jobs end by then, and maintenance can begin',
  },
  drainDeadlineMaxMs: {
    value: 7 * 86_400_000,
    reason: 'the longest jobs of a week; a drain is for maintenance, and not for ever',
  },
  drainMs: {
    value: 2_000,
    reason: 'limits the wait for output of an ended command that a grandchild holds open',
  },
  noticeIdleMs: {
    value: 60_000,
    reason: 'without rules of notices a server looks once a minute; a new rule wakes it',
  },
  noticeFollowerMs: {
    value: 15_000,
    reason: 'a leader evaluates within a second; another server does what waits this long',
  },
  noticeClusterSweepMs: {
    value: 10_000,
    reason: 'no leader, or a failed node, is noticed soon; some rows by any server',
  },
  noticeExecutionSweepMs: {
    value: 15_000,
    reason: 'the shortest delay that a rule may have is twice as long',
  },
  noticeJobSweepMs: {
    value: 60_000,
    reason: 'reads a narrow row of every job: some hundred milliseconds at 100,000 jobs',
  },
  noticeSweepRowsMax: {
    value: 10_000,
    reason: 'what waits and runs, the oldest first; a read of some ten milliseconds',
  },
  noticeSweepPage: {value: 1_000, reason: 'jobs of one read and of one transaction'},
  noticeProbeMs: {
    value: 10_000,
    reason: 'a store that cannot be written is noticed within a minute and a half; a small write',
  },
  noticePingMs: {
    value: 60_000,
    reason: 'the shortest period of most monitors; planned times may be undecided for as long',
  },
  noticePingAgainMs: {
    value: 10_000,
    reason: 'pings continue soon after an outage; a read of some counts',
  },
  noticeProbeWaitMs: {value: 5_000, reason: 'a store that works answers within some milliseconds'},
} as const satisfies Readonly<Record<string, Limit>>

export type LimitName = keyof typeof LIMITS
export type Limits = Readonly<Record<LimitName, number>>

/** The frozen values, with their relations asserted. */
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
    [limits.leaseMarginMs < limits.leaseTtlMs, 'trust in a lease ends before the lease'],
    [limits.leaseRenewMs < limits.leaseClosedMs, 'a live leader renews before it is replaced'],
    [limits.leaseClosedMs < trustMs, 'a killed leader is replaced before its lease expires'],
    [limits.heartbeatMs * 4 < limits.failedAfterMs, 'a node survives four lost heartbeats'],
    [limits.launchFirstMax <= limits.launchBatchMax, 'the first batch of a round is not larger'],
    [limits.failedAfterMs < limits.lostAfterMs, 'a node fails before its work is lost'],
    [limits.lostAfterMs < MEMBER_KEPT_MIN_MS, 'work is lost before its node is removed'],
    [
      limits.memberRetentionIntervalMs < MEMBER_KEPT_MIN_MS,
      'a member is removed soon after its time',
    ],
    [
      limits.failureDetectorIntervalMs < limits.failureDetectorPauseMaxMs,
      'a failure detector that runs on time has not paused',
    ],
    [
      limits.failureDetectorPauseMaxMs < limits.failedAfterMs,
      'a failure detector that paused marks no node as failed',
    ],
    [limits.claimAheadMs * 2 <= limits.claimFreshMs, 'what is claimed ahead starts unverified'],
    [limits.claimFreshMs < limits.claimRepickMs, 'stale claims are verified before work moves on'],
    [limits.burstPauseMs < limits.pollMs, 'a burst ends within a poll'],
    [limits.burstClaimMax <= limits.claimBatchMax, 'a burst makes claims smaller'],
    [limits.pollMs <= limits.claimVerifyMs, 'claims are verified at most once per poll'],
    [limits.pollMs < limits.claimRepickMs, 'a node polls before its work is reassigned'],
    [limits.killAfterMs < limits.lostAfterMs, 'work can be ended before it is declared lost'],
    [limits.outputPauseMs <= limits.outputFlushMs, 'the pause is not longer than the interval'],
    [limits.outputFlushBytes <= limits.outputTailBytes, 'one write fits into the output kept'],
    [
      limits.outputStartBytes <= limits.outputFlushBytes,
      'the start of an output fits into one write',
    ],
    [limits.heartbeatMs < limits.agentTimeoutMs, 'a link times out after more than one heartbeat'],
    [limits.agentTimeoutMs * 2 < limits.failedAfterMs, 'an agent finds another server in time'],
    [limits.agentPollMs < limits.claimRepickMs, 'an agent polls before its work is reassigned'],
    [limits.agentTimeoutMs < limits.disconnectedMs, 'another server is tried before work is ended'],
    [
      limits.disconnectedMs + limits.killAfterMs < limits.lostAfterMs,
      'a disconnected node has ended its work before the work is declared lost',
    ],
    [limits.drainMs < limits.forceStopTimeoutMs, 'a forced stop waits for the last output'],
    [limits.forceStopTimeoutMs < limits.drainTimeoutMs, 'a forced stop is the faster one'],
    [limits.killAfterMs < limits.drainTimeoutMs, 'a stop waits for the commands it ends'],
    [
      limits.drainDeadlineMs < limits.drainDeadlineMaxMs,
      'the default deadline of a drain is allowed',
    ],
    [limits.commitWaitMs < limits.pollMs, 'a commit waits less than the poll interval'],
    [limits.commitWaitMs <= limits.commitPauseMs, 'commits are larger under load'],
    [limits.claimPauseMs < limits.claimAheadMs, 'a claim precedes the release of claims ahead'],
    [limits.bodyBytesMax < limits.restoreBytesMax, 'a file of jobs may be larger than one job'],
    [limits.outputTailBytes <= limits.bodyBytesMax, 'the output kept fits into one reply'],
    [limits.tokenStreamsMax < limits.streamsMax, 'one token leaves event streams for others'],
    [limits.agentsMax < limits.connectionsMax, 'agents leave connections for clients'],
    [
      limits.agentsMax * 100 < limits.connectionsMax * limits.networkConnectionsPercent,
      'all agents may connect from one network',
    ],
    [
      limits.networkConnectionsPercent + limits.reservedConnectionsPercent < 100,
      'one network leaves connections for others',
    ],
    [limits.joinTokenLinksMax * 4 < limits.agentsMax, 'a join token leaves places for agents'],
    [
      limits.agentItemsPerSecond < limits.verifiedPerSecond,
      'one agent leaves verifications for others',
    ],
    [
      limits.agentTokenLinksMax < limits.joinTokenLinksMax,
      'a token of one agent needs fewer links',
    ],
    [limits.agentConnectGapMs < limits.failedAfterMs, 'an agent that waits is not failed'],
  ]
  for (const [holds, relation] of relations) assert(holds, `limits: ${relation}`)
}
