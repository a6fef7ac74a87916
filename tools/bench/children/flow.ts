/**
 * Bursts through the whole flow without HTTP: jobs planned for one instant, timed until the last result and
 * its counters are committed. The executor does nothing (bookkeeping only) or starts `true` in one way.
 */
import {monitorEventLoopDelay} from 'node:perf_hooks'
import {createExecutors, type ExecutorRegistry} from '../../../src/executors/registry.ts'
import {aSpec, FlowNode, startsNothing, storeAll} from '../flow-node.ts'
import {answerQuestions} from '../link.ts'

export interface OpenInput {
  readonly dataDir: string
  /** Absent = the default. */
  readonly slots?: number | undefined
  readonly executing: 'nothing' | 'portable' | 'posix'
  readonly jobs: number
  /** Connection string of an empty PostgreSQL database; absent = SQLite in the data directory. */
  readonly store?: string
}

const HOUR_MS = 3_600_000
const NS_PER_MS = 1e6
const RESOLUTION_MS = 10

interface Opened {
  readonly node: FlowNode
  readonly executors: ExecutorRegistry
  readonly jobs: number
  /** Next instant of all jobs. */
  dueAt: number
  bursts: number
}

let opened: Opened | null = null

export const handlers = {
  /** Returns how processes are started; `''` = none are. */
  open: async (input: OpenInput): Promise<{spawn: string}> => {
    const {dataDir, slots, executing, jobs, store} = input
    const node = await FlowNode.open({dataDir, slots, store})
    const executors = executing === 'nothing' ? startsNothing : shell(node, executing)
    await executors.start()
    const dueAt = Math.ceil(node.clock.now() / HOUR_MS) * HOUR_MS + HOUR_MS
    const specs = Array.from({length: jobs}, (_, index) =>
      aSpec(`job-${index}`, {schedule: '@every 1h', startsAt: dueAt}),
    )
    await storeAll(node.store, specs)
    await node.start(executors)
    opened = {node, executors, jobs, dueAt, bursts: 0}
    return {spawn: executors.spawnUsed()?.spawn ?? ''}
  },

  burst: async (_: null): Promise<{perSecond: number; loopLagP99Ms: number}> => {
    const {node, jobs, dueAt} = held()
    const delays = monitorEventLoopDelay({resolution: RESOLUTION_MS})
    delays.enable()
    const beganAt = performance.now()
    const finished = untilFinished(node, jobs)
    node.clock.setTo(dueAt)
    node.wakeup.notify('launch')
    await finished
    const perSecond = (jobs * 1000) / (performance.now() - beganAt)
    delays.disable()
    opened!.dueAt += HOUR_MS
    opened!.bursts += 1
    const loopLagP99Ms = Math.max(0, delays.percentile(99) / NS_PER_MS - RESOLUTION_MS)
    return {perSecond, loopLagP99Ms}
  },

  /** Rejects unless the counters of the jobs include every execution of every burst. */
  close: async (_: null): Promise<{counted: number}> => {
    const {node, executors, jobs, bursts} = held()
    const counted = await countedSuccesses(node)
    await node.close()
    await executors.stop()
    opened = null
    if (counted !== jobs * bursts) throw new Error(`${counted} of ${jobs * bursts} are counted`)
    return {counted}
  },
}

function held(): Opened {
  if (opened === null) throw new Error('nothing is open')
  return opened
}

function shell(node: FlowNode, spawn: 'portable' | 'posix'): ExecutorRegistry {
  const {config, clock} = node
  return createExecutors({
    dataDir: config.dataDirectory,
    nodeId: 'id-of-bench',
    clock,
    environment: process.env,
    suAllowed: [],
    allowed: [],
    netAllow: [],
    netDeny: [],
    killAfterMs: config.limits.killAfterMs,
    drainMs: config.limits.drainMs,
    spawn,
    report: (sentence) => console.error(sentence),
  })
}

function untilFinished(node: FlowNode, count: number): Promise<void> {
  let left = count
  return new Promise((resolve, reject) => {
    const stop = node.events.listen((event) => {
      if (event.name !== 'execution_finished') return
      if (event.data.status !== 'succeeded') reject(new Error(`${event.data.job} did not succeed`))
      left -= 1
      if (left > 0) return
      stop()
      resolve()
    })
  })
}

async function countedSuccesses(node: FlowNode): Promise<number> {
  const {rows} = await node.store.jobs({
    start: 0,
    end: null,
    metadata: [],
    text: '',
    status: null,
    disabled: null,
    sort: 'name',
    order: 'asc',
  })
  return rows.reduce((sum, {counters}) => sum + counters.successCount, 0)
}

answerQuestions(handlers, async () => {
  await opened?.executors.stop()
})
