/** The launcher alone over a store on disk: cost of one pass, and of catching up after a week of downtime. */
import type {CatchUp} from '../../../src/core/job.ts'
import type {BelfryEvent} from '../../../src/core/events.ts'
import {aSpec, FlowNode, submitting} from '../flow-node.ts'
import {answerQuestions} from '../link.ts'

const HOUR_MS = 3_600_000
const WEEK_MS = 7 * 24 * HOUR_MS
const ALL = {start: 0, end: null, decision: null} as const

export interface PassesInput {
  readonly dataDir: string
  readonly count: number
  /** Connection string of a PostgreSQL; absent = SQLite in the data directory. */
  readonly store?: string
}

export interface PassCosts {
  /** Durations of passes that found nothing due. */
  readonly idleMs: readonly number[]
  /** Durations of passes that launched one job, commit included. */
  readonly oneMs: readonly number[]
}

export interface OutageInput {
  readonly dataDir: string
  readonly schedule: string
  readonly catchUp: CatchUp
}

export interface OutageCost {
  /** Time until nothing is due, commits included, ms. */
  readonly ms: number
  readonly passes: number
  readonly rows: number
  /** Planned times covered by these rows. */
  readonly plannedTimes: number
  readonly launched: number
}

export const handlers = {
  /** Passes in a store with other jobs, none of them due. */
  passes: async ({dataDir, count, store}: PassesInput): Promise<PassCosts> => {
    const node = await FlowNode.open({dataDir, slots: 1, store})
    const name = 'the-one-that-is-due'
    const first = Math.ceil(node.clock.now() / HOUR_MS) * HOUR_MS
    await node.store.submit(submitting(aSpec(name, {schedule: '@every 1h', startsAt: first})))
    await node.startLaunching()
    await pass(node, 0)
    const idleMs: number[] = []
    const oneMs: number[] = []
    for (let index = 0; index < count; index += 1) {
      node.wakeup.notify('launch')
      idleMs.push((await pass(node, 0)).duration_ms)
      node.clock.setTo(first + index * HOUR_MS)
      node.wakeup.notify('launch')
      oneMs.push((await pass(node, 1)).duration_ms)
    }
    await node.close()
    return {idleMs, oneMs}
  },

  /** An outage in an empty store: one job, no leader for a week, then one. */
  outage: async ({dataDir, schedule, catchUp}: OutageInput): Promise<OutageCost> => {
    const node = await FlowNode.open({dataDir, slots: 1})
    const name = 'every-second'
    const stored = await node.store.submit(submitting(aSpec(name, {schedule, catchUp})))
    if (stored.kind !== 'stored') throw new Error(stored.kind)
    node.clock.setTo(node.clock.now() + WEEK_MS)
    const beganAt = performance.now()
    await node.startLaunching()
    let passes = 0
    let nextAt: number | null = 0
    while (nextAt !== null && nextAt <= node.clock.now()) {
      await pass(node, 1)
      passes += 1
      nextAt = (await node.store.job(name))?.nextAt ?? null
    }
    const ms = performance.now() - beganAt
    const page = await node.store.launches(name, ALL)
    const rows = page!.rows
    await node.close()
    return {
      ms,
      passes,
      rows: rows.length,
      plannedTimes: rows.reduce((sum, {count}) => sum + count, 0),
      launched: rows.filter(({decision}) => decision === 'launched').length,
    }
  },
}

type Pass = Extract<BelfryEvent, {name: 'launch_pass_done'}>['data']

/** Waits for the next pass with `due` due jobs. */
async function pass(node: FlowNode, due: number): Promise<Pass> {
  for (;;) {
    const done = await anyPass(node)
    if (done.due === due) return done
  }
}

function anyPass(node: FlowNode): Promise<Pass> {
  return new Promise((resolve) => {
    const stop = node.events.listen((event) => {
      if (event.name !== 'launch_pass_done') return
      stop()
      resolve(event.data)
    })
  })
}

answerQuestions(handlers)
