/** Sizes and durations of each section, for quick and full runs. */
import {availableParallelism} from 'node:os'

export interface Plan {
  readonly mode: 'quick' | 'full'
  /** Rounds of each comparison; the compared things alternate within a round. */
  readonly rounds: number
  /** A section starts no round after this time: a busy machine gets fewer samples, not a longer run. */
  readonly sectionLimitMs: number
  /** Processes at a time of the plain loops. More of them do not make a loop faster. */
  readonly parallel: number
  readonly spawnLoopMs: number
  /** Measured time of a saturated server. */
  readonly windowMs: number
  /** Rounds of the offers beyond the best rate. */
  readonly overloadRounds: number
  /** Rounds in which the server that holds memory is measured too. */
  readonly heldRounds: number
  readonly heldMiB: number
  /** Length of one burst of real processes, if they start as fast as the plain loop's. */
  readonly processBurstMs: number
  /** Measure the flow alone with posix_spawn too: the real server uses it anyway where it can. */
  readonly posixAlone: boolean
  /** Executions in one burst that starts nothing. */
  readonly bookkeepingBurst: number
  readonly submitMs: number
  /** Rounds of the submits, shorter and more than the others. */
  readonly submitRounds: number
  readonly submitClients: number
  readonly steadyMs: number
  readonly steadyPerSecond: number
  readonly burstsDue: readonly number[]
  readonly sizes: readonly number[]
  readonly starts: number
  readonly listRequests: number
  readonly passes: number
  readonly idleMs: number
  readonly peer: PeerPlan
  readonly cluster: ClusterPlan
}

/** Sizes of the comparison with another server. */
export interface PeerPlan {
  readonly rounds: number
  /** Rounds of the every-second jobs and of each burst. */
  readonly startRounds: number
  /** Jobs in the list of which the first page is read. */
  readonly listed: number
  readonly burstsDue: readonly number[]
  /** Jobs of the first step of the ramp. */
  readonly rampFirst: number
  /** Share of the every-second jobs that each step of the ramp adds. */
  readonly rampGrowth: number
  readonly rampLimitMs: number
  /** Time for which commands are counted in each step, whole seconds. */
  readonly windowMs: number
  /** Commands started, as a share of those planned, to count as keeping up. */
  readonly keptUpShare: number
}

/** Sizes that differ for servers on PostgreSQL. */
export interface ClusterPlan {
  /** Numbers of servers that are compared. */
  readonly servers: readonly number[]
  readonly rounds: number
  readonly bookkeepingBurst: number
  readonly submitRounds: number
  readonly steadyMs: number
  /** Jobs due in the same second, whose executions are awaited. */
  readonly burstDue: number
  /** Jobs due in the same second, of which only the launches are awaited. */
  readonly floodDue: number
  /** Requests are measured for this time after those launches are due. */
  readonly probeMs: number
  readonly sizes: readonly number[]
  readonly passes: number
  readonly idleMs: number
  /** Leaders ended by each signal. */
  readonly takeovers: number
  readonly takeoverJobs: number
}

const PARALLEL_PER_CORE = 8
const PARALLEL_MIN = 16

const SHARED = {
  parallel: Math.max(PARALLEL_MIN, PARALLEL_PER_CORE * availableParallelism()),
  heldMiB: 300,
  submitClients: 50,
  steadyPerSecond: 200,
} as const

/** About three minutes on two idle cores; on PostgreSQL within two. */
export const QUICK: Plan = {
  ...SHARED,
  mode: 'quick',
  rounds: 2,
  sectionLimitMs: 26_000,
  spawnLoopMs: 1_000,
  windowMs: 2_500,
  overloadRounds: 1,
  heldRounds: 1,
  processBurstMs: 1_500,
  posixAlone: false,
  bookkeepingBurst: 10_000,
  submitMs: 500,
  submitRounds: 4,
  steadyMs: 3_000,
  burstsDue: [1_000, 5_000],
  sizes: [1_000, 10_000],
  starts: 2,
  listRequests: 60,
  passes: 60,
  idleMs: 2_000,
  peer: {
    rounds: 2,
    listed: 2_000,
    burstsDue: [1_000],
    startRounds: 1,
    rampFirst: 25,
    rampGrowth: 0.6,
    rampLimitMs: 60_000,
    windowMs: 2_000,
    keptUpShare: 0.95,
  },
  cluster: {
    servers: [1, 3],
    rounds: 1,
    bookkeepingBurst: 5_000,
    submitRounds: 2,
    steadyMs: 3_000,
    burstDue: 1_000,
    floodDue: 10_000,
    probeMs: 8_000,
    sizes: [1_000, 10_000],
    passes: 60,
    idleMs: 5_000,
    takeovers: 3,
    takeoverJobs: 30,
  },
}

/** About fifteen minutes on two cores; on PostgreSQL less than eight. */
export const FULL: Plan = {
  ...SHARED,
  mode: 'full',
  rounds: 5,
  sectionLimitMs: 200_000,
  spawnLoopMs: 2_000,
  windowMs: 6_000,
  overloadRounds: 3,
  heldRounds: 5,
  processBurstMs: 3_000,
  posixAlone: true,
  bookkeepingBurst: 20_000,
  submitMs: 1_000,
  submitRounds: 12,
  steadyMs: 15_000,
  burstsDue: [1_000, 5_000, 10_000],
  sizes: [1_000, 10_000, 100_000],
  starts: 5,
  listRequests: 300,
  passes: 300,
  // A round of pruning takes 10 s at least.
  idleMs: 15_000,
  peer: {
    rounds: 4,
    listed: 10_000,
    burstsDue: [1_000, 5_000],
    startRounds: 2,
    rampFirst: 25,
    rampGrowth: 0.25,
    rampLimitMs: 150_000,
    windowMs: 3_000,
    keptUpShare: 0.95,
  },
  cluster: {
    servers: [1, 3],
    rounds: 2,
    bookkeepingBurst: 10_000,
    submitRounds: 5,
    steadyMs: 10_000,
    burstDue: 10_000,
    floodDue: 100_000,
    probeMs: 8_000,
    sizes: [1_000, 10_000, 100_000],
    passes: 200,
    idleMs: 15_000,
    takeovers: 20,
    takeoverJobs: 30,
  },
}
