/**
 * The plain loop that executions are compared with: `child_process.spawn('true')`, as many at a time, in a
 * process of its own that does nothing else. It runs before and after each thing it is compared with, and
 * beside it a bare HTTP server is asked: how noisy this machine is without us.
 */
import type {handlers as BareHttp} from './children/bare-http.ts'
import type {handlers as Client} from './children/http-client.ts'
import {Link} from './link.ts'
import {processorTimeMs} from './processor-time.ts'
import type {Bench} from './section.ts'

export const PROBE_EVERY_MS = 20

/** What `children/spawn-loop.js` answers. */
type SpawnLoop = {
  run(input: {readonly parallel: number; readonly ms: number; readonly stdio: 'pipe' | 'ignore'}): {
    readonly count: number
    readonly perSecond: number
  }
}

/** Something that started processes and awaited their ends. */
export interface Rate {
  readonly label: string
  readonly perSecond: number
  /** Of one core, all processes together; `null` where that cannot be known. */
  readonly processorMsEach: number | null
  /** Of the plain loop's rate; `null` = whatever it is. */
  readonly atLeast: number | null
}

/** The processes that it takes; the client also asks what is compared. */
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

/** Holds it against the loop before and after it. */
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

/** The plain loop, and what a bare HTTP server answers beside it. */
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

/** Answers what processor time was used since, by what `read` tells, for each of so many. */
export function stopwatch(read: () => number | null): (count: number) => number | null {
  const before = read()
  return (count) => {
    const after = read()
    return before === null || after === null || count === 0 ? null : (after - before) / count
  }
}
