/**
 * The flow of one server, wired: what every node runs, and what lives as long as a term. Stands apart
 * from `server.ts`, which holds the order of starting and stopping.
 */
import {join} from 'node:path'
import type {Config} from '../config/server.ts'
import {systemTags} from '../core/node.ts'
import {createExecutors, type ExecutorRegistry} from '../executors/registry.ts'
import {AssertionFailed} from '../lib/assert.ts'
import {Batcher} from '../lib/batcher.ts'
import type {Service} from '../lib/loop.ts'
import type {StartRecorder} from '../node/execution-run.ts'
import {Finisher} from '../node/finisher.ts'
import {type Disconnection, type RunnerOptions, Runner} from '../node/runner.ts'
import {StartLog, deletePreviousIncarnations, readPreviousIncarnations} from '../node/start-log.ts'
import {VERSION} from '../platform/version.ts'
import type {Events} from '../ports/events.ts'
import type {
  PreviousIncarnation,
  FinishItem,
  JoinRequest,
  NodeStore,
  OutputAppend,
} from '../ports/node-store.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import {openChain} from '../processors/chain.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {FailureDetectorService} from '../scheduler/failure-detector.ts'
import {Launcher} from '../scheduler/launcher.ts'
import {Reassigner} from '../scheduler/reassigner.ts'
import {MemberRetention, HistoryRetention} from '../scheduler/retention.ts'
import type {Log} from '../telemetry/log.ts'
import {StartRefused} from './start-refused.ts'

export interface FlowParts {
  readonly config: Config
  readonly store: Store
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
}

/** The services of a term, in the order they start. */
export function leaderServices(
  {config, ...ports}: FlowParts,
  defaultZone: string,
  term: number,
  over: () => void,
): readonly Service[] {
  const {limits} = config
  return [
    new Launcher({
      ...ports,
      term,
      over,
      defaultZone,
      defaultTarget: config.defaultTarget,
      lateAfterMs: config.lateAfterMs,
      targetWaitMs: config.targetWaitMs,
      catchUpMax: limits.catchUpMax,
      batchMax: limits.launchBatchMax,
      pollMs: limits.pollMs,
    }),
    new FailureDetectorService({
      ...ports,
      term,
      over,
      limits: {
        failedAfterMs: limits.failedAfterMs,
        lostAfterMs: limits.lostAfterMs,
        pauseMaxMs: limits.failureDetectorPauseMaxMs,
      },
      lookEveryMs: limits.failureDetectorIntervalMs,
    }),
    new Reassigner({
      ...ports,
      term,
      over,
      defaultTarget: config.defaultTarget,
      unclaimedMs: limits.claimRepickMs,
      targetWaitMs: config.targetWaitMs,
      lookEveryMs: limits.failureDetectorIntervalMs,
    }),
    new MemberRetention({
      ...ports,
      term,
      over,
      leftAfterMs: config.keepLeftMs,
      failedAfterMs: config.keepFailedMs,
      lookEveryMs: limits.memberRetentionIntervalMs,
    }),
    new HistoryRetention({
      ...ports,
      term,
      over,
      keep: {
        keepLaunches: config.keepLaunches,
        keepUnlaunched: limits.unlaunchedRowsKept,
        keepMs: config.keepMs,
        keepOutputBytes: config.keepOutputBytes,
      },
      allEveryMs: limits.pruneAllMs,
    }),
  ]
}

/** What runs a node's executions needs of the store no more than any node has. */
export interface RunParts extends Omit<FlowParts, 'config' | 'store'> {
  readonly config: Pick<Config, 'slots' | 'limits'>
  readonly store: NodeStore
}

/** In what the nodes that run jobs differ. */
export interface NodeRun {
  /** Absent for a server that is the only one: nobody else gives its work away. */
  readonly cutOff?: Disconnection
  readonly pollMs?: number
  readonly verifyEveryMs?: number
  readonly takenAway?: RunnerOptions['takenAway']
  /** Where what is begun is written down. */
  readonly begun?: StartRecorder
  /** Around the finish of each execution. */
  readonly finishing?: (item: FinishItem, finish: () => Promise<unknown>) => Promise<unknown>
}

/** What runs a node's executions. */
export function createRunner(
  {config, ...ports}: RunParts,
  node: {readonly id: string; readonly incarnation: string},
  executors: ExecutorRegistry,
  processors: ProcessorRegistry,
  {cutOff, pollMs, verifyEveryMs, takenAway, begun, finishing}: NodeRun = {},
): Runner {
  const {limits} = config
  const {store, clock} = ports
  // Batched here and not only by the store's write queue: SQLite's queue gives each call its own savepoint,
  // which costs about 15 % more CPU in the bookkeeping benchmark, and an agent would send a message an item.
  const batch = {clock, waitMs: limits.commitWaitMs, itemsMax: limits.commitItemsMax}
  const finisher = new Finisher({...ports, batchWaitMs: batch.waitMs, batchMax: batch.itemsMax})
  const appends = new Batcher<OutputAppend, boolean>({
    ...batch,
    flush: (items) => store.appendOutput(items),
  })
  return new Runner({
    ...ports,
    executors,
    openChain: (jobProcessors, run, keep) =>
      openChain({processors: jobProcessors, registry: processors, run, keep, clock}),
    finish: (item) => {
      const finish = () => finisher.finish(item)
      return finishing === undefined ? finish() : finishing(item, finish)
    },
    append: (item) => appends.add(item),
    nodeId: node.id,
    incarnation: node.incarnation,
    slots: config.slots,
    claimMax: limits.claimBatchMax,
    claimFreshMs: limits.claimFreshMs,
    verifyEveryMs: verifyEveryMs ?? limits.claimVerifyMs,
    pollMs: pollMs ?? limits.pollMs,
    ...(cutOff === undefined ? {} : {cutOff}),
    ...(takenAway === undefined ? {} : {takenAway}),
    ...(begun === undefined ? {} : {begun}),
    drainTimeoutMs: limits.drainTimeoutMs,
    forceStopTimeoutMs: limits.forceStopTimeoutMs,
    keepOutputBytes: limits.outputTailBytes,
    flushBytes: limits.outputFlushBytes,
    flushMs: limits.outputFlushMs,
    flushPauseMs: limits.outputPauseMs,
  })
}

/*
 * The executors of a node, opened: what an earlier life of it left running is ended before anything new can
 * start. The same for a server and an agent.
 */

export interface ExecutorParts {
  readonly config: Pick<Config, 'dataDirectory' | 'limits' | 'suAllow' | 'netAllow' | 'netDeny'>
  readonly nodeId: string
  readonly clock: Clock
  readonly log: Log
  /** The environment the node was started with. */
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** Started; whoever asked for them stops them. Throws `StartRefused` when commands cannot be started here. */
export async function openExecutors({
  config,
  nodeId,
  clock,
  log,
  environment,
}: ExecutorParts): Promise<ExecutorRegistry> {
  const {dataDirectory, limits, suAllow, netAllow, netDeny} = config
  const executors = createExecutors({
    dataDir: dataDirectory,
    nodeId,
    clock,
    environment,
    suAllowed: suAllow,
    cwdAllowed: null,
    netAllow,
    netDeny,
    killAfterMs: limits.killAfterMs,
    drainMs: limits.drainMs,
    spawn: 'auto',
    report: (sentence) => log.logger.warn(sentence),
  })
  try {
    const {ended} = await executors.endOrphans()
    for (const execution of ended)
      log.logger.warn({execution}, 'ended what an earlier life of this node had left running')
    await executors.start()
  } catch (error) {
    if (!(error instanceof Error) || error instanceof AssertionFailed) throw error
    const problem = `Commands cannot be run from the data directory ${dataDirectory}: ${error.message}.`
    throw new StartRefused(problem, {cause: error})
  }
  return executors
}

/*
 * The lives of a node: what it can prove of earlier ones when it returns, and the record of this one for
 * the next. The same for a server and an agent. Stands apart from `server.ts` and `agent.ts`, which hold the
 * order of starting: the store is told of earlier lives after the node has joined and before it runs
 * anything.
 */

export interface PreviousIncarnations {
  /** What can be proved of them. */
  readonly earlier: readonly PreviousIncarnation[]
  /** The store has been told, and gave back so many executions. */
  told(givenBack: number): void
  /** Begins the record of this life, which is open as long as the process is there. */
  begin(incarnation: string): StartLog
}

export function previousIncarnations({
  dataDirectory,
  log: {logger},
}: {
  readonly dataDirectory: string
  readonly log: Log
}): PreviousIncarnations {
  const directory = join(dataDirectory, 'executions')
  return {
    earlier: readPreviousIncarnations(directory),
    told: (givenBack) => {
      deletePreviousIncarnations(directory)
      if (givenBack > 0)
        logger.info(
          {executions: givenBack},
          'gave back what an earlier life of this node had claimed and never started',
        )
    },
    begin: (incarnation) =>
      new StartLog({directory, incarnation, report: (sentence) => logger.warn(sentence)}),
  }
}

/* What a server tells the cluster about itself. */

export interface Identity {
  /** Kept in the data directory. */
  readonly id: string
  /** Of this process start. */
  readonly incarnation: string
}

/** The user's tags, and over them the ones every server has. */
export function memberOf(
  {nodeName, tags, slots, run}: Config,
  node: Identity,
  {address, port}: {readonly address: string; readonly port: number},
): JoinRequest['member'] {
  const place = {name: nodeName, address, port, server: true, version: VERSION}
  const {id, incarnation} = node
  return {...place, id, incarnation, tags: {...tags, ...systemTags(place)}, runs: run, slots}
}
