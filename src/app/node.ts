/**
 * The flow of one server, wired: what every node runs, and what lives as long as a term. Stands apart
 * from `server.ts`, which holds the order of starting and stopping.
 */
import type {Config} from '../config/server.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {Finisher} from '../node/finisher.ts'
import {ForgetService} from '../scheduler/forget.ts'
import {JudgeService} from '../scheduler/failure-detector.ts'
import {LaunchService} from '../scheduler/launcher.ts'
import {PruneService} from '../scheduler/retention.ts'
import {RunService, type CutOff, type RunOptions} from '../node/runner.ts'
import type {Begun} from '../node/execution-run.ts'
import {StrayService} from '../scheduler/reassigner.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {Random} from '../ports/random.ts'
import type {FinishItem, NodeStore, OutputAppend} from '../ports/node-store.ts'
import type {Store} from '../ports/store.ts'
import type {Wakeup} from '../ports/wakeup.ts'
import {openChain} from '../processors/chain.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {Batcher} from '../lib/batcher.ts'
import type {Service} from '../lib/service.ts'

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
    new LaunchService({
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
    new JudgeService({
      ...ports,
      term,
      over,
      limits: {
        failedAfterMs: limits.failedAfterMs,
        lostAfterMs: limits.lostAfterMs,
        pauseMaxMs: limits.judgePauseMaxMs,
      },
      lookEveryMs: limits.judgeLookMs,
    }),
    new StrayService({
      ...ports,
      term,
      over,
      defaultTarget: config.defaultTarget,
      unclaimedMs: limits.claimRepickMs,
      targetWaitMs: config.targetWaitMs,
      lookEveryMs: limits.judgeLookMs,
    }),
    new ForgetService({
      ...ports,
      term,
      over,
      leftAfterMs: config.keepLeftMs,
      failedAfterMs: config.keepFailedMs,
      lookEveryMs: limits.forgetLookMs,
    }),
    new PruneService({
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
  readonly cutOff?: CutOff
  readonly pollMs?: number
  readonly verifyEveryMs?: number
  readonly takenAway?: RunOptions['takenAway']
  /** Where what is begun is written down. */
  readonly begun?: Begun
  /** Around the finish of each execution. */
  readonly finishing?: (item: FinishItem, finish: () => Promise<unknown>) => Promise<unknown>
}

/** What runs a node's executions. */
export function runService(
  {config, ...ports}: RunParts,
  node: {readonly id: string; readonly incarnation: string},
  executors: ExecutorRegistry,
  processors: ProcessorRegistry,
  {cutOff, pollMs, verifyEveryMs, takenAway, begun, finishing}: NodeRun = {},
): RunService {
  const {limits} = config
  const {store, clock} = ports
  const batch = {clock, waitMs: limits.commitWaitMs, itemsMax: limits.commitItemsMax}
  const finisher = new Finisher({...ports, batchWaitMs: batch.waitMs, batchMax: batch.itemsMax})
  const appends = new Batcher<OutputAppend, boolean>({
    ...batch,
    flush: (items) => store.appendOutput(items),
  })
  return new RunService({
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
    drainPatienceMs: limits.drainPatienceMs,
    hurriedPatienceMs: limits.hurriedPatienceMs,
    keepOutputBytes: limits.outputTailBytes,
    flushBytes: limits.outputFlushBytes,
    flushMs: limits.outputFlushMs,
    flushPauseMs: limits.outputPauseMs,
  })
}
