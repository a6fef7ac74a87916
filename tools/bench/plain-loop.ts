/**
 * The baselines for executions, in separate processes that record nothing: a loop of
 * `child_process.spawn('true')`, and a loop of posix_spawn where it is available. They run before and after
 * each measurement. A bare HTTP server measured beside the first shows the noise of the machine.
 */
import type {handlers as BareHttp} from './children/bare-http.ts'
import type {handlers as Client} from './children/http-client.ts'
import type {handlers as PosixLoop} from './children/posix-loop.ts'
import {Link} from './link.ts'
import {processorTimeMs} from './processor-time.ts'
import type {Bench} from './section.ts'

export const PROBE_EVERY_MS = 20

/** Requests of `children/spawn-loop.js`. */
type SpawnLoop = {
  run(input: {readonly parallel: number; readonly ms: number; readonly stdio: 'pipe' | 'ignore'}): {
    readonly count: number
    readonly perSecond: number
  }
}

/** A measured rate of started and finished processes. */
export interface Rate {
  readonly label: string
  readonly perSecond: number
  /** Processor use of all processes, as a share of one core; `null` without /proc. */
  readonly processorMsEach: number | null
}

export const PLAIN = 'plain loop'
export const POSIX = 'posix_spawn loop'

/** Target ratios of rates, by label of the baseline. */
export type RatioTargets = Readonly<Record<string, number>>

/** Rates of the baselines in one round. */
export interface Baselines {
  readonly plain: Rate
  /** `null` = not available on this machine. */
  readonly posix: Rate | null
}

/** Child processes of the baseline; the client also queries the measured server. */
export class PlainLoop {
  readonly bench: Bench
  readonly loop: Link<SpawnLoop>
  /** `null` = not available on this machine. */
  readonly posix: Link<typeof PosixLoop> | null
  readonly client: Link<typeof Client>
  readonly bareUrl: string
  readonly #bare: Link<typeof BareHttp>

  private constructor(
    bench: Bench,
    bare: Link<typeof BareHttp>,
    bareUrl: string,
    posix: Link<typeof PosixLoop> | null,
  ) {
    this.bench = bench
    this.loop = Link.start<SpawnLoop>(bench.scratch, 'spawn-loop.js')
    this.posix = posix
    this.client = Link.start<typeof Client>(bench.scratch, 'http-client.ts')
    this.bareUrl = bareUrl
    this.#bare = bare
  }

  static async start(bench: Bench): Promise<PlainLoop> {
    const bare = Link.start<typeof BareHttp>(bench.scratch, 'bare-http.ts')
    const {url} = await bare.ask('listen', null)
    const posix = Link.start<typeof PosixLoop>(bench.scratch, 'posix-loop.ts')
    const isAvailable = await posix.ask('open', null)
    if (!isAvailable) await posix.end()
    return new PlainLoop(bench, bare, url, isAvailable ? posix : null)
  }

  async end(): Promise<void> {
    await Promise.all([this.loop.end(), this.posix?.end(), this.client.end(), this.#bare.end()])
  }
}

/** Compares a rate with the baselines before and after it. */
export function addRatios(
  bench: Bench,
  rate: Rate,
  [before, after]: readonly [Baselines, Baselines],
  targets: RatioTargets = {},
): void {
  addRatio(bench, rate, [before.plain, after.plain], targets[PLAIN])
  if (before.posix !== null && after.posix !== null)
    addRatio(bench, rate, [before.posix, after.posix], targets[POSIX])
  if (rate.processorMsEach !== null)
    bench.figures.add(`${rate.label}, processor time each`, 'ms', rate.processorMsEach)
}

function addRatio(
  {figures}: Bench,
  {label, perSecond, processorMsEach}: Rate,
  [before, after]: readonly [Rate, Rate],
  atLeast: number | undefined,
): void {
  const loopPerSecond = (before.perSecond + after.perSecond) / 2
  const target = atLeast === undefined ? null : {atLeast}
  figures.add(`${label} / ${before.label}`, '×', perSecond / loopPerSecond, target)
  if (processorMsEach === null) return
  if (before.processorMsEach === null || after.processorMsEach === null) return
  const loopMs = (before.processorMsEach + after.processorMsEach) / 2
  figures.add(`${label}, processor time / ${before.label}`, '×', processorMsEach / loopMs)
}

/** Measures the baselines, one after another. */
export async function measureLoops(loops: PlainLoop): Promise<Baselines> {
  return {plain: await measurePlain(loops), posix: await measurePosix(loops)}
}

/** Measures the plain loop, and a bare HTTP server beside it. */
async function measurePlain({bench, loop, client, bareUrl}: PlainLoop): Promise<Rate> {
  const {parallel, spawnLoopMs: ms} = bench.plan
  const used = stopwatch(() => processorTimeMs(loop.pid))
  const [{perSecond, count}, {p99Ms}] = await Promise.all([
    loop.ask('run', {parallel, ms, stdio: 'pipe'}),
    client.ask('probe', {url: bareUrl, everyMs: PROBE_EVERY_MS, ms}),
  ])
  const rate = {label: PLAIN, perSecond, processorMsEach: used(count)}
  addBaseline(bench, rate)
  bench.figures.add(`${PLAIN}, GET of a bare HTTP server beside it p99`, 'ms', p99Ms)
  return rate
}

async function measurePosix({bench, posix}: PlainLoop): Promise<Rate | null> {
  if (posix === null) return null
  const {parallel, spawnLoopMs: ms} = bench.plan
  const used = stopwatch(() => processorTimeMs(posix.pid))
  const {perSecond, count} = await posix.ask('run', {parallel, ms})
  const rate = {label: POSIX, perSecond, processorMsEach: used(count)}
  addBaseline(bench, rate)
  return rate
}

function addBaseline({figures}: Bench, {label, perSecond, processorMsEach}: Rate): void {
  figures.add(label, '/s', perSecond)
  if (processorMsEach !== null) figures.add(`${label}, processor time each`, 'ms', processorMsEach)
}

/** Starts measuring processor time with `read`; returns a function for the time used for each of `count`. */
export function stopwatch(read: () => number | null): (count: number) => number | null {
  const before = read()
  return (count) => {
    const after = read()
    return before === null || after === null || count === 0 ? null : (after - before) / count
  }
}
