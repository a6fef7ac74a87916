/**
 * The baseline for executions: `child_process.spawn('true')` with the same parallelism, in a separate
 * process. It runs before and after each measurement. A bare HTTP server measured beside it shows the noise
 * of the machine.
 */
import type {handlers as BareHttp} from './children/bare-http.ts'
import type {handlers as Client} from './children/http-client.ts'
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
  /** Target ratio to the plain loop; `null` = none. */
  readonly atLeast: number | null
}

/** Child processes of the baseline; the client also queries the measured server. */
export class PlainLoop {
  readonly bench: Bench
  readonly loop: Link<SpawnLoop>
  readonly client: Link<typeof Client>
  readonly bareUrl: string
  readonly #bare: Link<typeof BareHttp>

  private constructor(bench: Bench, bare: Link<typeof BareHttp>, bareUrl: string) {
    this.bench = bench
    this.loop = Link.start<SpawnLoop>(bench.scratch, 'spawn-loop.js')
    this.client = Link.start<typeof Client>(bench.scratch, 'http-client.ts')
    this.bareUrl = bareUrl
    this.#bare = bare
  }

  static async start(bench: Bench): Promise<PlainLoop> {
    const bare = Link.start<typeof BareHttp>(bench.scratch, 'bare-http.ts')
    const {url} = await bare.ask('listen', null)
    return new PlainLoop(bench, bare, url)
  }

  async end(): Promise<void> {
    await Promise.all([this.loop.end(), this.client.end(), this.#bare.end()])
  }
}

/** Compares a rate with the loop before and after it. */
export function addRatios(
  {figures}: Bench,
  rate: Rate,
  [before, after]: readonly [Rate, Rate],
): void {
  const {label, perSecond, processorMsEach, atLeast} = rate
  const target = atLeast === null ? null : {atLeast}
  const loopPerSecond = (before.perSecond + after.perSecond) / 2
  figures.add(`${label} / plain loop`, '×', perSecond / loopPerSecond, target)
  if (processorMsEach === null) return
  figures.add(`${label}, processor time each`, 'ms', processorMsEach)
  if (before.processorMsEach === null || after.processorMsEach === null) return
  const loopMs = (before.processorMsEach + after.processorMsEach) / 2
  figures.add(`${label}, processor time / plain loop`, '×', processorMsEach / loopMs)
}

/** Measures the plain loop, and a bare HTTP server beside it. */
export async function measureLoop({bench, loop, client, bareUrl}: PlainLoop): Promise<Rate> {
  const {parallel, spawnLoopMs: ms} = bench.plan
  const used = stopwatch(() => processorTimeMs(loop.pid))
  const [{perSecond, count}, {p99Ms}] = await Promise.all([
    loop.ask('run', {parallel, ms, stdio: 'pipe'}),
    client.ask('probe', {url: bareUrl, everyMs: PROBE_EVERY_MS, ms}),
  ])
  const processorMsEach = used(count)
  bench.figures.add('plain loop', '/s', perSecond)
  if (processorMsEach !== null)
    bench.figures.add('plain loop, processor time each', 'ms', processorMsEach)
  bench.figures.add('plain loop, GET of a bare HTTP server beside it p99', 'ms', p99Ms)
  return {label: 'plain loop', perSecond, processorMsEach, atLeast: null}
}

/** Starts measuring processor time with `read`; returns a function for the time used for each of `count`. */
export function stopwatch(read: () => number | null): (count: number) => number | null {
  const before = read()
  return (count) => {
    const after = read()
    return before === null || after === null || count === 0 ? null : (after - before) / count
  }
}
