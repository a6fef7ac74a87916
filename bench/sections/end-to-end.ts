/**
 * A real server under more work than it can do: planned, launched, `true` run, finished, counted,
 * compared with a plain loop that starts `true` in the same runtime. The loop runs before and after
 * each thing it is compared with, because the machine is not the same from one moment to the next.
 * Meanwhile somebody reads a job over HTTP.
 */
import type {handlers as BareHttp} from '../children/bare-http.ts'
import type {handlers as Flow, OpenInput} from '../children/flow.ts'
import type {handlers as Client} from '../children/http-client.ts'
import {Link} from '../link.ts'
import {processorTimeMs} from '../processor-time.ts'
import type {Bench, Section} from '../section.ts'
import {saturate} from '../saturate.ts'
import {ServerProcess} from '../server-process.ts'

const SECOND_MS = 1000
const PROBE_EVERY_MS = 20
/**
 * A first guess at how many jobs of every second saturate it: posix_spawn starts about twice as many
 * as the loop.
 */
const FIRST_GUESS = 1.6
const LOOP_LAG_MAX_MS = 20
const GET_MAX_MS = 50
const PORTABLE_MIN = 0.8
const POSIX_MIN = 1

export const endToEnd: Section = {
  name: 'end to end',
  measure: async (bench) => {
    const {plan, scratch} = bench
    const loop = Link.start<SpawnLoop>(scratch, 'spawn-loop.js')
    const client = Link.start<typeof Client>(scratch, 'http-client.ts')
    const bare = Link.start<typeof BareHttp>(scratch, 'bare-http.ts')
    const {url: bareUrl} = await bare.ask('listen', null)
    const parts = {bench, loop, client, bareUrl}
    let jobs = 0
    for (let round = 0; bench.again(round, plan.rounds); round += 1) {
      bench.say(`round ${round + 1} of ${plan.rounds}`)
      await measureLoopWithoutOutput(parts)
      let before = await measureLoop(parts)
      const compare = async (subject: () => Promise<Rate | null>) => {
        const rate = await subject()
        const after = await measureLoop(parts)
        if (rate !== null) addRatios(bench, rate, [before, after])
        before = after
      }
      await compare(async () => {
        const {perSecond} = before
        const measured = await measureServer(parts, jobs || Math.ceil(perSecond * FIRST_GUESS), 0)
        jobs = measured.jobs
        return measured
      })
      if (round < plan.heldRounds) await compare(() => measureServer(parts, jobs, plan.heldMiB))
      const burst = Math.ceil((before.perSecond * plan.processBurstMs) / SECOND_MS)
      await compare(() => measureFlow(bench, 'portable', burst))
      if (plan.posixAlone) await compare(() => measureFlow(bench, 'posix', burst))
    }
    await Promise.all([loop.end(), client.end(), bare.end()])
  },
}

/** What `children/spawn-loop.js` answers. */
type SpawnLoop = {
  run(input: {readonly parallel: number; readonly ms: number; readonly stdio: 'pipe' | 'ignore'}): {
    readonly count: number
    readonly perSecond: number
  }
}

interface Parts {
  readonly bench: Bench
  readonly loop: Link<SpawnLoop>
  readonly client: Link<typeof Client>
  readonly bareUrl: string
}

/** Something that started processes and awaited their ends. */
interface Rate {
  readonly label: string
  readonly perSecond: number
  /** Of one core, all processes together; `null` where that cannot be known. */
  readonly processorMsEach: number | null
  readonly atLeast: number
}

/** Holds it against the loop before and after it. */
function addRatios({figures}: Bench, rate: Rate, [before, after]: readonly [Rate, Rate]): void {
  const {label, perSecond, processorMsEach, atLeast} = rate
  const loopPerSecond = (before.perSecond + after.perSecond) / 2
  figures.add(`${label} / plain loop`, '×', perSecond / loopPerSecond, {atLeast})
  if (processorMsEach === null) return
  figures.add(`${label}, processor time each`, 'ms', processorMsEach)
  if (before.processorMsEach === null || after.processorMsEach === null) return
  const loopMs = (before.processorMsEach + after.processorMsEach) / 2
  figures.add(`${label}, processor time / plain loop`, '×', processorMsEach / loopMs)
}

/** The plain loop, and what a bare HTTP server answers beside it: how noisy this machine is without us. */
async function measureLoop({bench, loop, client, bareUrl}: Parts): Promise<Rate> {
  const {parallel, spawnLoopMs: ms} = bench.plan
  const used = stopwatch(loop.pid)
  const [{perSecond, count}, {p99Ms}] = await Promise.all([
    loop.ask('run', {parallel, ms, stdio: 'pipe'}),
    client.ask('probe', {url: bareUrl, everyMs: PROBE_EVERY_MS, ms}),
  ])
  const processorMsEach = used(count)
  bench.figures.add('plain loop', '/s', perSecond)
  if (processorMsEach !== null)
    bench.figures.add('plain loop, processor time each', 'ms', processorMsEach)
  bench.figures.add('plain loop, GET of a bare HTTP server beside it p99', 'ms', p99Ms)
  return {label: 'plain loop', perSecond, processorMsEach, atLeast: 0}
}

/** Answers what the process and all it started has used since, for each of so many. */
function stopwatch(pid: number): (count: number) => number | null {
  const before = processorTimeMs(pid)
  return (count) => {
    const after = processorTimeMs(pid)
    return before === null || after === null || count === 0 ? null : (after - before) / count
  }
}

async function measureLoopWithoutOutput({bench, loop}: Parts): Promise<void> {
  const {parallel, spawnLoopMs: ms} = bench.plan
  const {perSecond} = await loop.ask('run', {parallel, ms: ms / 2, stdio: 'ignore'})
  bench.figures.add('plain loop that reads no output', '/s', perSecond)
}

/** Also answers how many jobs of every second it took to saturate it. */
async function measureServer(
  {bench, client}: Parts,
  jobsAtFirst: number,
  heldMiB: number,
): Promise<Rate & {readonly jobs: number}> {
  const {plan, scratch, figures, say} = bench
  const label = heldMiB === 0 ? 'server' : `server holding ${heldMiB} MB`
  say(label)
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir, slots: plan.parallel, heldMiB})
  const jobs = await saturate(server, jobsAtFirst)
  await server.figures()
  const used = stopwatch(server.pid)
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
  return {label, perSecond, processorMsEach, atLeast: POSIX_MIN, jobs}
}

/**
 * The flow without HTTP, with one way of starting processes forced: the real server takes what the
 * machine offers. `null` = the machine does not offer it.
 */
async function measureFlow(
  {plan, scratch, figures, say}: Bench,
  executing: Extract<OpenInput['executing'], 'portable' | 'posix'>,
  jobs: number,
): Promise<Rate | null> {
  const label = `flow alone, ${executing} start`
  say(label)
  const dataDir = await scratch.folder()
  const flow = Link.start<typeof Flow>(scratch, 'flow.ts')
  const {spawn} = await flow.ask('open', {dataDir, slots: plan.parallel, executing, jobs})
  // The first burst is the compiler's.
  await flow.ask('burst', null)
  const used = stopwatch(flow.pid)
  const {perSecond} = await flow.ask('burst', null)
  const processorMsEach = used(jobs)
  await flow.ask('close', null)
  await flow.end()
  await scratch.remove(dataDir)
  if (spawn !== executing) return null
  figures.add(`${label}, executions`, '/s', perSecond)
  const atLeast = executing === 'portable' ? PORTABLE_MIN : POSIX_MIN
  return {label, perSecond, processorMsEach, atLeast}
}
