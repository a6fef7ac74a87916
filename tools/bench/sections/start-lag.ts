/**
 * Delay from the planned time to the started command, and to the decision that launched it: at a steady rate,
 * spread over each second or all at its start, and with very many jobs due in the same second.
 */
import {atOnce, nextSecond, SECOND_MS, steady, steadyLags, until} from '../due.ts'
import {quantile} from '../figures.ts'
import {decisionLags} from '../launch-lags.ts'
import type {Bench, Section} from '../section.ts'
import {ServerProcess} from '../server-process.ts'
import {StartWatch} from '../start-watch.ts'

/** Time for storing the jobs before they are due. */
const AHEAD_MS = 2_000
const AHEAD_PER_JOB_MS = 0.25
/** Warm-up: in its first seconds a process compiles its code. */
const WARM_UP_MS = 2_000
const LIMIT_MS = 120_000
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
  const {steadyPerSecond: count, steadyMs} = plan
  const label = `${count} a second, ${spread ? 'spread over the second' : 'all on the second'}`
  say(label)
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir})
  const watch = await StartWatch.open(scratch)
  const startAt = nextSecond(AHEAD_MS)
  const seconds = (WARM_UP_MS + steadyMs) / SECOND_MS
  const jobs = {count, startAt, seconds, spread}
  await server.store(steady(jobs, (number) => watch.command(number)))
  await until(startAt + seconds * SECOND_MS)
  await watch.all(count * seconds, LIMIT_MS)
  await server.stop()
  const from = startAt + WARM_UP_MS
  const started = steadyLags(jobs, watch.starts, from)
  const decided = decisionLags(dataDir, 'steady-', from)
  // Half of the commands that are due at once cannot start within less than their processes take.
  const medianTarget = spread ? {atMost: P50_MAX_MS} : null
  figures.add(`${label}: command started, p50`, 'ms', quantile(started, 0.5), medianTarget)
  figures.add(`${label}: command started, p99`, 'ms', quantile(started, 0.99), {atMost: P99_MAX_MS})
  figures.add(`${label}: command started, max`, 'ms', quantile(started, 1), {atMost: MAX_MS})
  figures.add(`${label}: launch decided, p50`, 'ms', quantile(decided, 0.5), {atMost: P50_MAX_MS})
  figures.add(`${label}: launch decided, p99`, 'ms', quantile(decided, 0.99), {atMost: P99_MAX_MS})
  figures.add(`${label}: launch decided, max`, 'ms', quantile(decided, 1), {atMost: MAX_MS})
  await scratch.remove(dataDir)
}

/** Jobs planned for one instant. */
async function measureBurst({scratch, figures, say}: Bench, jobs: number) {
  const label = `${jobs.toLocaleString('en-GB')} due at once`
  say(label)
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir})
  const watch = await StartWatch.open(scratch)
  const dueAt = nextSecond(AHEAD_MS + jobs * AHEAD_PER_JOB_MS)
  await server.store(atOnce(jobs, dueAt, (number) => watch.command(number)))
  if (Date.now() >= dueAt) throw new Error('the jobs were not stored in time')
  await until(dueAt)
  await server.figures()
  await watch.all(jobs, LIMIT_MS)
  const {loopLagMaxMs} = await server.figures()
  await server.stop()
  const started = watch.starts.map(({atMs}) => atMs - dueAt)
  const decided = decisionLags(dataDir, 'burst-')
  if (decided.length !== jobs) throw new Error(`${decided.length} launches of ${jobs}`)
  figures.add(`${label}: command started, p50`, 'ms', quantile(started, 0.5))
  figures.add(`${label}: last command started`, 'ms', quantile(started, 1))
  figures.add(`${label}: launch decided, p50`, 'ms', quantile(decided, 0.5))
  figures.add(`${label}: last launch decided`, 'ms', quantile(decided, 1))
  figures.add(`${label}: main loop delay max`, 'ms', loopLagMaxMs)
  await scratch.remove(dataDir)
}
