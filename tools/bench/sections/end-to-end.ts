/**
 * A saturated real server, compared with loops that start `true` in the same runtime: planned, launched,
 * `true` run, finished, counted. The loops run before and after each measurement, because the speed of the
 * machine varies. A client reads a job over HTTP meanwhile.
 */
import type {handlers as Flow, OpenInput} from '../children/flow.ts'
import {Link} from '../link.ts'
import {
  addRatios,
  measureLoops,
  PLAIN,
  PlainLoop,
  POSIX,
  PROBE_EVERY_MS,
  stopwatch,
  type Rate,
  type RatioTargets,
} from '../plain-loop.ts'
import {processorTimeMs} from '../processor-time.ts'
import type {Bench, Section} from '../section.ts'
import {saturate} from '../saturate.ts'
import {ServerProcess} from '../server-process.ts'

const SECOND_MS = 1000
/**
 * Initial guess of the jobs a second that saturate the server: posix_spawn starts about twice as many as
 * the loop.
 */
const FIRST_GUESS = 1.6
const LOOP_LAG_MAX_MS = 20
const GET_MAX_MS = 50
const SERVER_TARGETS = {[PLAIN]: 1, [POSIX]: 0.6}
const POSIX_TARGETS = {[PLAIN]: 1}
const PORTABLE_TARGETS = {[PLAIN]: 0.8}

export const endToEnd: Section = {
  name: 'end to end',
  measure: async (bench) => {
    const {plan} = bench
    const loop = await PlainLoop.start(bench)
    let jobs = 0
    for (let round = 0; bench.again(round, plan.rounds); round += 1) {
      bench.say(`round ${round + 1} of ${plan.rounds}`)
      await measureLoopWithoutOutput(loop)
      let before = await measureLoops(loop)
      const compare = async (targets: RatioTargets, subject: () => Promise<Rate | null>) => {
        const rate = await subject()
        const after = await measureLoops(loop)
        if (rate !== null) addRatios(bench, rate, [before, after], targets)
        before = after
      }
      await compare(SERVER_TARGETS, async () => {
        const {perSecond} = before.plain
        const measured = await measureServer(loop, jobs || Math.ceil(perSecond * FIRST_GUESS), 0)
        jobs = measured.jobs
        return measured
      })
      if (round < plan.heldRounds)
        await compare(SERVER_TARGETS, () => measureServer(loop, jobs, plan.heldMiB))
      const burst = Math.ceil((before.plain.perSecond * plan.processBurstMs) / SECOND_MS)
      await compare(PORTABLE_TARGETS, () => measureFlow(bench, 'portable', burst))
      if (plan.posixAlone) await compare(POSIX_TARGETS, () => measureFlow(bench, 'posix', burst))
    }
    await loop.end()
  },
}

async function measureLoopWithoutOutput({bench, loop}: PlainLoop): Promise<void> {
  const {parallel, spawnLoopMs: ms} = bench.plan
  const {perSecond} = await loop.ask('run', {parallel, ms: ms / 2, stdio: 'ignore'})
  bench.figures.add('plain loop that reads no output', '/s', perSecond)
}

/** Measures; returns the number of jobs a second that saturated the server. */
async function measureServer(
  {bench, client}: PlainLoop,
  jobsAtFirst: number,
  heldMiB: number,
): Promise<Rate & {readonly jobs: number}> {
  const {plan, scratch, figures, say} = bench
  const label = heldMiB === 0 ? 'server' : `server holding ${heldMiB} MB`
  say(label)
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir, heldMiB})
  const jobs = await saturate(server, jobsAtFirst)
  await server.figures()
  const used = stopwatch(() => processorTimeMs(server.pid))
  const before = await server.succeeded()
  const probe = {url: `${server.url}/v1/jobs/job-1`, everyMs: PROBE_EVERY_MS, ms: plan.windowMs}
  const latencies = await client.ask('probe', probe)
  const after = await server.succeeded()
  const count = after.count - before.count
  const processorMsEach = used(count)
  const {loopLagP99Ms, loopLagMaxMs, waiting} = await server.figures()
  if (waiting === 0) throw new Error('the server ran out of work: it was not saturated')
  const perSecond = (count * SECOND_MS) / (after.atMs - before.atMs)
  figures.add(`${label}, executions`, '/s', perSecond)
  figures.add(`${label}, main loop delay p99`, 'ms', loopLagP99Ms, {atMost: LOOP_LAG_MAX_MS})
  figures.add(`${label}, main loop delay max`, 'ms', loopLagMaxMs)
  figures.add(`${label}, GET a job p50`, 'ms', latencies.p50Ms)
  figures.add(`${label}, GET a job p99`, 'ms', latencies.p99Ms, {atMost: GET_MAX_MS})
  await server.stop()
  await scratch.remove(dataDir)
  return {label, perSecond, processorMsEach, jobs}
}

/**
 * The flow without HTTP, with a fixed way of starting processes; the real server uses what the machine
 * offers. `null` = not available on this machine.
 */
async function measureFlow(
  {scratch, figures, say}: Bench,
  executing: Extract<OpenInput['executing'], 'portable' | 'posix'>,
  jobs: number,
): Promise<Rate | null> {
  const label = `flow alone, ${executing} start`
  say(label)
  const dataDir = await scratch.folder()
  const flow = Link.start<typeof Flow>(scratch, 'flow.ts')
  const {spawn} = await flow.ask('open', {dataDir, executing, jobs})
  // The first burst warms up the compiler.
  await flow.ask('burst', null)
  const used = stopwatch(() => processorTimeMs(flow.pid))
  const {perSecond} = await flow.ask('burst', null)
  const processorMsEach = used(jobs)
  await flow.ask('close', null)
  await flow.end()
  await scratch.remove(dataDir)
  if (spawn !== executing) return null
  figures.add(`${label}, executions`, '/s', perSecond)
  return {label, perSecond, processorMsEach}
}
