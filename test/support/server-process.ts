/**
 * A real server as a separate process, used as a user does: flags, the ready line, the API, signals. Every
 * test must clean up the process, the commands it left running, and its data directory; that is done here.
 * Uses nothing of Belfry's internals.
 */
import {spawn, type ChildProcess} from 'node:child_process'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before} from 'node:test'
import {childrenOf, endMarked, endProcess} from './living-processes.ts'
import {SOON_MS, until, within} from './waiting.ts'
import {Watchdog} from './watchdog.ts'

const BELFRY = join(import.meta.dirname, '..', '..', 'bin', 'belfry.js')
/** Shared compile cache of Node: halves the time until a server is ready. */
const COMPILED = join(import.meta.dirname, '..', '..', 'node_modules', '.cache', 'compiled')
const READY_WITHIN_MS = 30_000
const EXIT_WITHIN_MS = 30_000

export interface Exit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** Reply of the API; `json` is `undefined` if the body is not JSON. */
export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // eslint-disable-next-line -- tests read JSON of any shape
  readonly json: any
}

export interface ServerOptions {
  /** Data directory, kept when the server ends so that the next one can use it. Default: a new one. */
  readonly data?: string
  /** Flags after `server --http 127.0.0.1:0 --data …`. */
  readonly flags?: readonly string[]
  /** Environment, added to this process's own without its `BELFRY_…` variables. */
  readonly env?: Readonly<Record<string, string>>
  /** The program. Default: that of this tree. */
  readonly belfry?: string
}

export interface Program {
  /** Resolves when the process and everything that shared its standard streams have exited. */
  readonly exit: Promise<Exit>
  /** Resolves when the process has exited; its helper may still run. */
  readonly gone: Promise<Exit>
  readonly pid: number
  isGone(): boolean
  stdout(): string
  stderr(): string
  signal(signal: NodeJS.Signals): void
  /** Closes the reading end of its standard output. */
  closeStdout(): void
}

/** Scope of a resource: a test or a suite, whose end cleans up what it started. */
export interface Owner {
  after(cleanup: () => unknown): void
}

const cleanups = new WeakMap<Owner, (() => unknown)[]>()
const watchdog = new Watchdog()

/** Registers a cleanup. The newest runs first: a server ends before its directory is removed. */
export function atEnd(owner: Owner, cleanup: () => unknown): void {
  const known = cleanups.get(owner)
  if (known !== undefined) return void known.push(cleanup)
  const own = [cleanup]
  cleanups.set(owner, own)
  owner.after(async () => {
    for (const next of own.toReversed()) await next()
  })
}

/** Runs Belfry with these arguments; ended with the test, or with this process, at the latest. */
export function runProgram(
  t: Owner,
  argv: readonly string[],
  env: Readonly<Record<string, string>> = {},
  belfry = BELFRY,
): Program {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('BELFRY_'))
  const child = spawn(process.execPath, [belfry, ...argv], {
    env: {
      ...Object.fromEntries(kept),
      NO_COLOR: '1',
      NODE_COMPILE_CACHE: COMPILED,
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  watchdog.watch(child)
  const stdout = collect(child.stdout)
  const stderr = collect(child.stderr)
  const exit = new Promise<Exit>((resolve) =>
    child.once('close', (code, signal) => resolve({code, signal})),
  )
  const gone = new Promise<Exit>((resolve) =>
    child.once('exit', (code, signal) => resolve({code, signal})),
  )
  atEnd(t, async () => {
    endNow(child)
    await gone
  })
  return {
    exit,
    gone,
    pid: child.pid!,
    isGone: () => child.exitCode !== null || child.signalCode !== null,
    stdout,
    stderr,
    signal: (signal) => void child.kill(signal),
    closeStdout: () => void child.stdout.destroy(),
  }
}

function collect(stream: NodeJS.ReadableStream | null): () => string {
  let text = ''
  stream?.setEncoding('utf8')
  stream?.on('data', (part: string) => {
    text += part
  })
  return () => text
}

function endNow(child: ChildProcess): void {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
}

/** A directory that is removed at the end of the test. */
export function temporaryDirectory(t: Owner): string {
  const directory = mkdtempSync(join(tmpdir(), 'belfry-server-'))
  atEnd(t, () => rmSync(directory, {recursive: true, force: true, maxRetries: 5}))
  return directory
}

export class ServerProcess {
  readonly url: string
  readonly data: string
  readonly program: Program

  constructor(url: string, data: string, program: Program) {
    this.url = url
    this.data = data
    this.program = program
  }

  get pid(): number {
    return this.program.pid
  }

  /**
   * Calls the API. `path` starts with `/` and is below `/v1`, unless it starts with `//`. A body that is
   * not a string is sent as JSON.
   */
  async ask(
    method: string,
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const url = path.startsWith('//') ? `${this.url}${path.slice(1)}` : `${this.url}/v1${path}`
    const sent = typeof body === 'string' || body === undefined ? body : JSON.stringify(body)
    const type = sent === undefined ? {} : {'content-type': 'application/json'}
    const response = await fetch(url, {
      method,
      headers: {...type, ...headers},
      ...(sent === undefined ? {} : {body: sent}),
      signal: AbortSignal.timeout(SOON_MS),
    })
    const text = await response.text()
    const isJson = response.headers.get('content-type')?.includes('json') === true
    const json: unknown = isJson && text !== '' ? JSON.parse(text) : undefined
    return {status: response.status, headers: response.headers, text, json}
  }

  get(path: string): Promise<Answer> {
    return this.ask('GET', path)
  }

  post(path: string, body?: unknown): Promise<Answer> {
    return this.ask('POST', path, body)
  }

  /** Submits a job; throws with the server's reply if it is refused. */
  async store(job: {readonly name: string} & Readonly<Record<string, unknown>>): Promise<Answer> {
    const answer = await this.post('/jobs', job)
    if (answer.status !== 201) throw new Error(`${job.name}: ${answer.status} ${answer.text}`)
    return answer
  }

  /** Runs a job now; returns the launch number. */
  async run(name: string, query = ''): Promise<number> {
    const answer = await this.post(`/jobs/${name}/run${query}`)
    if (answer.status !== 202) throw new Error(`${name}: ${answer.status} ${answer.text}`)
    return Number(answer.headers.get('x-launch-id'))
  }

  /** Executions of a job, pending ones included. */
  async executions(name: string): Promise<Answer['json'][]> {
    return (await this.get(`/jobs/${name}/executions?status=all`)).json
  }

  /** All launches of a job, oldest first. */
  async launches(name: string): Promise<Answer['json'][]> {
    const rows: Answer['json'][] = []
    for (;;) {
      const {json} = await this.get(
        `/jobs/${name}/launches?_start=${rows.length}&_end=${rows.length + 1000}`,
      )
      rows.push(...json)
      if (json.length < 1000) return rows.toReversed()
    }
  }

  /** Newest execution of a job, once `accepts` returns true. */
  execution(
    name: string,
    accepts: (execution: Answer['json']) => boolean = isOver,
    withinMs = SOON_MS,
  ): Promise<Answer['json']> {
    return until(
      `an execution of ${name}`,
      async () => (await this.executions(name)).find(accepts),
      withinMs,
    )
  }

  /** Kills the server with SIGKILL; resolves when it has exited. */
  async crash(): Promise<void> {
    this.program.signal('SIGKILL')
    await this.program.gone
  }

  /** Graceful shutdown with SIGTERM; resolves with the exit code. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<Exit> {
    this.program.signal(signal)
    return within(this.program.exit, 'the server ends', EXIT_WITHIN_MS)
  }
}

export function isOver(execution: Answer['json']): boolean {
  return execution.status !== 'pending' && execution.status !== 'running'
}

/** Starts a server; resolves when it is ready. The end of the test ends what it leaves running. */
export async function aServer(t: Owner, options: ServerOptions = {}): Promise<ServerProcess> {
  const data = options.data ?? join(temporaryDirectory(t), 'data')
  const argv = ['server', '--http', '127.0.0.1:0', '--data', data, ...(options.flags ?? [])]
  const program = runProgram(t, argv, options.env, options.belfry)
  atEnd(t, () => endWhole(program, data))
  let ended: Exit | null = null
  void program.exit.then((exit) => {
    ended = exit
  })
  const line = await until(
    'the ready line',
    () => {
      const ready = /^.*\n/.exec(program.stdout())?.[0]
      if (ready === undefined && ended !== null)
        throw new Error(`the server ended (${ended.code ?? ended.signal}): ${program.stderr()}`)
      return ready
    },
    READY_WITHIN_MS,
  ).catch((error: unknown) => {
    // The next server may use its directory.
    program.signal('SIGKILL')
    throw new Error(`${String(error)}: ${program.stderr()}`, {cause: error})
  })
  const url = /https?:\/\/\S+/.exec(line)?.[0]
  if (url === undefined) throw new Error(`no URL in the ready line: ${line}`)
  return new ServerProcess(url, data, program)
}

/** Kills the server, then its helper, then the commands that the helper started. */
async function endWhole(program: Program, data: string): Promise<void> {
  // A pid may have been reused.
  const helpers = program.isGone() ? [] : childrenOf(program.pid)
  program.signal('SIGKILL')
  await program.gone
  for (const pid of helpers) endProcess(pid)
  endMarked(data)
}

/** Server of all tests of a suite. Call it in the suite; call the returned function in its tests. */
export function sharedServer(options: ServerOptions = {}): () => ServerProcess {
  let server: ServerProcess | null = null
  let end: () => unknown = () => undefined
  const owner: Owner = {
    after: (cleanup) => {
      end = cleanup
    },
  }
  before(async () => {
    server = await aServer(owner, options)
  })
  after(() => end())
  return () => {
    if (server === null) throw new Error('the server of the suite has not started yet')
    return server
  }
}

/** Starts a server that must be refused; returns its exit code and messages. */
export async function refusedStart(
  t: Owner,
  argv: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<{readonly code: number | null; readonly stdout: string; readonly stderr: string}> {
  const program = runProgram(t, ['server', ...argv], env)
  const {code} = await within(program.exit, `belfry server ${argv.join(' ')} ends`, EXIT_WITHIN_MS)
  return {code, stdout: program.stdout(), stderr: program.stderr()}
}
