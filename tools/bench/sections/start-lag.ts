/**
 * Lag of launches, from the launch history: at a steady rate, spread over each second or all at its start,
 * and with very many jobs due in the same second. Commands are real and run on the same cores.
 */
import {atOnce, nextSecond, SECOND_MS, steady, until} from '../due.ts'
import {quantile} from '../figures.ts'
import {startLags} from '../launch-lags.ts'
import type {Bench, Section} from '../section.ts'
import {ServerProcess} from '../server-process.ts'

/** Time for storing the jobs before they are due. */
const AHEAD_MS = 2_000
const AHEAD_PER_JOB_MS = 0.25
/** Warm-up: in its first seconds a process compiles its code. */
const WARM_UP_MS = 2_000
const LOOK_EVERY_MS = 250
const LIMIT_MS = 60_000
const P50_MAX_MS = 50
const P99_MAX_MS = 500
const MAX_MS = 1_000

export const startLag: Section = {
  name: 'start lag',
  measure: async (bench) => {
    for (const spread of [true, false]) await measureSteady(bench, spread)
    for (const [index, jobs] of bench.plan.burstsDue.entries())
      if (bench.again(index, bench.plan.burstsDue.length)) await measureBurst(bench, jobs)
  },
}

/** Jobs that fire every second. */
async function measureSteady({plan, scratch, figures, say}: Bench, spread: boolean) {
  const {steadyPerSecond: rate, steadyMs} = plan
  const how = spread ? 'spread over the second' : 'all on the second'
  say(`${rate} launches/s, ${how}`)
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir, slots: plan.parallel})
  const startAt = nextSecond(AHEAD_MS)
  await server.store(steady(rate, startAt, spread))
  await until(startAt + WARM_UP_MS + steadyMs)
  await server.stop()
  const lags = startLags(dataDir, 'steady-', startAt + WARM_UP_MS)
  const label = `${rate} launches/s, ${how}`
  figures.add(`${label}, p50`, 'ms', quantile(lags, 0.5), {atMost: P50_MAX_MS})
  figures.add(`${label}, p99`, 'ms', quantile(lags, 0.99), {atMost: P99_MAX_MS})
  figures.add(`${label}, max`, 'ms', quantile(lags, 1), {atMost: MAX_MS})
  const expected = (rate * steadyMs) / SECOND_MS
  if (lags.length < expected - rate) throw new Error(`${lags.length} launches of ${expected}`)
  await scratch.remove(dataDir)
}

/** Jobs planned for one instant. */
async function measureBurst({plan, scratch, figures, say}: Bench, jobs: number) {
  say(`${jobs} jobs due in the same second`)
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir, slots: plan.parallel})
  const dueAt = nextSecond(AHEAD_MS + jobs * AHEAD_PER_JOB_MS)
  await server.store(atOnce(jobs, dueAt))
  if (Date.now() >= dueAt) throw new Error('the jobs were not stored in time')
  await until(dueAt)
  await server.figures()
  await until(dueAt + SECOND_MS)
  const loopLagMaxMs = await untilAllLaunched(server, jobs)
  await server.stop()
  const lags = startLags(dataDir, 'burst-')
  if (lags.length !== jobs) throw new Error(`${lags.length} launches of ${jobs}`)
  const label = `${jobs.toLocaleString('en-GB')} due at once`
  figures.add(`${label}, p50`, 'ms', quantile(lags, 0.5))
  figures.add(`${label}, p99`, 'ms', quantile(lags, 0.99))
  figures.add(`${label}, max`, 'ms', quantile(lags, 1))
  figures.add(`${label}, main loop delay max`, 'ms', loopLagMaxMs)
  await scratch.remove(dataDir)
}

/** Resolves when all are launched, with the longest event-loop delay meanwhile, ms. */
async function untilAllLaunched(server: ServerProcess, jobs: number): Promise<number> {
  const beganAt = performance.now()
  let longestMs = 0
  for (;;) {
    const {launched, loopLagMaxMs} = await server.figures()
    longestMs = Math.max(longestMs, loopLagMaxMs)
    if (launched === jobs) return longestMs
    if (performance.now() - beganAt > LIMIT_MS)
      throw new Error(`only ${launched} of ${jobs} jobs were launched`)
    await until(Date.now() + LOOK_EVERY_MS)
  }
}
