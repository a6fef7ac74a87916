/**
 * A real server for a section: `belfry server` as a separate process on a free port, or the same
 * server in a process that holds memory. Used only through its API.
 */
import {spawn, type ChildProcess} from 'node:child_process'
import {fileURLToPath} from 'node:url'
import {cleanEnvironment, Link} from './link.ts'
import type {Scratch} from './scratch.ts'
import type {handlers as HoldingServer} from './children/holding-server.ts'

const ENTRY = fileURLToPath(new URL('../../bin/belfry.js', import.meta.url))
const PLAIN_COMMAND = [process.execPath, ENTRY]
const READY_LIMIT_MS = 120_000
const MS_PER_SECOND = 1000
const MIB = 2 ** 20

export interface ServerChoice {
  readonly dataDir: string
  /** Absent = the default. */
  readonly slots?: number | undefined
  /** 0 = the plain process. */
  readonly heldMiB?: number
  /** Connection string of the PostgreSQL that it shares; absent = SQLite in the data directory. */
  readonly store?: string
  /** Node name; servers that share a store need different ones. */
  readonly name?: string
  /** Program and first arguments; absent = this Node and `bin/belfry.js`. */
  readonly command?: readonly string[]
  /** Additional flags, e.g. `--keep-launches=1000`. */
  readonly flags?: readonly string[]
}

export interface ServerFigures {
  /** Executions launched but not started. */
  readonly waiting: number
  /** Event loop lag since the previous reading. */
  readonly loopLagP99Ms: number
  readonly loopLagMaxMs: number
  readonly residentMiB: number
}

/** Job definition of the API. */
export type JobBody = Readonly<Record<string, unknown>> & {readonly name: string}

interface Started {
  readonly url: string
  readonly readyMs: number
  readonly pid: number
  readonly end: () => Promise<void>
}

export class ServerProcess {
  readonly url: string
  /** Time from process start to the ready line, ms. */
  readonly readyMs: number
  readonly pid: number
  readonly #end: () => Promise<void>

  private constructor(started: Started) {
    this.url = started.url
    this.readyMs = started.readyMs
    this.pid = started.pid
    this.#end = started.end
  }

  static async start(scratch: Scratch, choice: ServerChoice): Promise<ServerProcess> {
    const {dataDir, slots, heldMiB = 0, store, name = 'bench', flags = []} = choice
    const [program, ...first] = choice.command ?? PLAIN_COMMAND
    const argv = [
      '--http=127.0.0.1:0',
      `--data=${dataDir}`,
      ...(slots === undefined ? [] : [`--slots=${slots}`]),
      `--name=${name}`,
      '--timezone=UTC',
      '--grace=0',
      '--log-level=error',
      ...(store === undefined ? [] : [`--store=${store}`]),
      ...flags,
    ]
    const beganAt = performance.now()
    if (heldMiB > 0) {
      const link = Link.start<typeof HoldingServer>(scratch, 'holding-server.ts')
      const {url} = await link.ask('start', {argv, heldMiB})
      const readyMs = performance.now() - beganAt
      return new ServerProcess({url, readyMs, pid: link.pid, end: () => link.end()})
    }
    const child = scratch.watch(
      spawn(program!, [...first, 'server', ...argv], {
        env: cleanEnvironment(),
        stdio: ['ignore', 'pipe', 'inherit'],
      }),
    )
    const url = await lineOf(child, /is ready on (\S+)/)
    const readyMs = performance.now() - beganAt
    return new ServerProcess({url, readyMs, pid: child.pid!, end: () => terminated(child)})
  }

  /** Ends the server and its commands. */
  async stop(): Promise<void> {
    await this.#end()
  }

  /** Kills the server; resolves when it has exited. */
  async kill(): Promise<void> {
    process.kill(this.pid, 'SIGKILL')
    await this.#end()
  }

  async get(path: string): Promise<Response> {
    const response = await fetch(`${this.url}${path}`)
    if (!response.ok) throw new Error(`${path} answered ${response.status}`)
    return response
  }

  /** Stores jobs in one transaction. */
  async store(jobs: readonly JobBody[]): Promise<void> {
    const form = new FormData()
    form.set('file', new Blob([JSON.stringify(jobs)]), 'jobs.json')
    const response = await fetch(`${this.url}/v1/restore`, {method: 'POST', body: form})
    const text = await response.text()
    if (!response.ok) throw new Error(`restore answered ${response.status}: ${text}`)
  }

  /**
   * Successful executions, from the statistics that their own transactions wrote, and the instant of the
   * reply.
   */
  async succeeded(): Promise<{readonly count: number; readonly atMs: number}> {
    const response = await this.get('/v1/stats?days=2')
    const {stats} = (await response.json()) as {stats: readonly {success_count: number}[]}
    return {
      count: stats.reduce((sum, day) => sum + day.success_count, 0),
      atMs: performance.now(),
    }
  }

  async figures(): Promise<ServerFigures> {
    const text = await (await this.get('/metrics')).text()
    const lines = text.split('\n')
    const value = (series: string) => {
      const line = lines.find((each) => each.startsWith(`${series} `))
      if (line === undefined) throw new Error(`/metrics has no ${series}`)
      return Number(line.slice(series.length + 1))
    }
    const lag = (stat: string) =>
      value(`belfry_event_loop_lag_seconds{stat="${stat}"}`) * MS_PER_SECOND
    return {
      waiting: value('belfry_executions_waiting'),
      loopLagP99Ms: lag('p99'),
      loopLagMaxMs: lag('max'),
      residentMiB: value('process_resident_memory_bytes') / MIB,
    }
  }
}

/** The first group of a pattern that the process must print soon. */
export function lineOf(child: ChildProcess, pattern: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(
      () => reject(new Error(`${pattern.source} was not printed`)),
      READY_LIMIT_MS,
    )
    let text = ''
    child.stdout!.on('data', (piece: Buffer) => {
      text += piece.toString('utf8')
      const found = pattern.exec(text)?.[1]
      if (found === undefined) return
      clearTimeout(late)
      resolve(found)
    })
    child.once('exit', (code) => {
      clearTimeout(late)
      reject(new Error(`the process ended with exit status ${code}`))
    })
  })
}

/** Asks a process to end; resolves when it has. */
export async function terminated(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  child.kill('SIGTERM')
  await ended
}
