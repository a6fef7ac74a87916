/**
 * The entry. Reads what the process was started with, once, and hands it on: to a server, an agent, or the
 * client commands. The only place that listens to signals, writes to standard output, or decides how the
 * process exits.
 */
import {readFileSync} from 'node:fs'
import {availableParallelism, hostname} from 'node:os'
import type {Command} from 'commander'
import {StartRefused} from './app/start-refused.ts'
import type {Terminal} from './cli/format.ts'
import {runCli} from './cli/program.ts'
import {agentCommand, type AgentConfig, loadAgentConfig} from './config/agent.ts'
import {type Host, serverCommand} from './config/read.ts'
import {type Config, loadConfig} from './config/server.ts'
import {systemClock} from './platform/clock.ts'
import {VERSION} from './platform/version.ts'
import {parseAddress} from './store/postgres/url.ts'

const NODE_MAJOR_MIN = 26
const EXIT_REFUSED = 1
const EXIT_USAGE = 2
/** As shells report an end by that signal. */
const EXIT_INTERRUPTED = 130
/**
 * A Ctrl-C often comes twice at once: from the terminal to the whole group, and again from `npm`, which
 * passes it on. Only a person's second one, later than this, means "now".
 */
const SAME_SIGNAL_MS = 500

const clock = systemClock()

async function main(argv: readonly string[]): Promise<number> {
  const major = Number(process.versions.node.split('.')[0])
  if (major < NODE_MAJOR_MIN) {
    const found = `this is Node ${process.versions.node}`
    return refuse(
      `${found}, but Belfry needs Node ${NODE_MAJOR_MIN} or newer; start it by bin/belfry.js.`,
    )
  }
  if (argv[0] === 'server') return serve(argv.slice(1), SERVER)
  if (argv[0] === 'agent') return serve(argv.slice(1), AGENT)
  return runCli(argv, {
    terminal: terminal(),
    env: process.env,
    clock,
    version: VERSION,
    serverCommand: serverCommand(),
    agentCommand: agentCommand(),
    restoreImage: async (image, directory) =>
      (await import('./app/offline.ts')).restoreBackup(image, directory),
    migrateStore: async (request) => (await import('./app/offline.ts')).migrateStore(request),
  })
}

/** What is started and stays, until it is told to end. */
interface NodeCommand<Settings> {
  /** For its help. */
  readonly command: () => Command
  readonly load: (
    argv: readonly string[],
    env: Readonly<Record<string, string | undefined>>,
    host: Host,
  ) => {readonly ok: true; readonly config: Settings} | {readonly ok: false; problem: string}
  /** Throws `StartRefused`. `ready` takes the line for standard output. */
  readonly start: (settings: Settings, ready: (line: string) => void) => Promise<RunningNode>
}

interface RunningNode {
  stop(): Promise<void>
  forceStop(): void
  /** The exit code. Rejects with `StartRefused`. */
  readonly done: Promise<number>
}

/** Both are imported where they start: client commands start quicker without them. */
const SERVER: NodeCommand<Config> = {
  command: serverCommand,
  load: (argv, env, host) => loadConfig(argv, env, host, parseAddress),
  start: async (config, ready) => (await import('./app/server.ts')).startServer(config, {ready}),
}
const AGENT: NodeCommand<AgentConfig> = {
  command: agentCommand,
  load: loadAgentConfig,
  start: async (config, ready) =>
    (await import('./app/agent.ts')).startAgent(config, {ready, environment: process.env}),
}

/** Resolves only when nothing was started. */
async function serve<Settings>(
  argv: readonly string[],
  {command, load, start}: NodeCommand<Settings>,
): Promise<number> {
  if (argv.includes('--help') || argv.includes('-h')) {
    const help = command()
    process.stdout.write(help.name(`belfry ${help.name()}`).helpInformation())
    return 0
  }
  const loaded = load(argv, process.env, host())
  if (!loaded.ok) return refuse(loaded.problem, EXIT_USAGE)
  const signals = listenToSignals()
  // A node serves on when whoever started it does not read its one line.
  process.stdout.on(
    'error',
    exceptClosed(() => undefined),
  )
  try {
    const node = await start(loaded.config, (line) => process.stdout.write(`${line}\n`))
    signals.tell({first: () => void node.stop(), second: () => node.forceStop()})
    // Everything has ended in order; nothing that was forgotten may keep the process.
    process.exit(await node.done)
  } catch (error) {
    if (error instanceof StartRefused) return refuse(error.message)
    throw error
  }
}

interface SignalHearer {
  /** Begin to end. */
  first(): void
  /** Somebody cannot wait. */
  second(): void
}

/** Signals that come before there is anything to end are kept until there is. A third ends the process. */
function listenToSignals(): {tell(hearer: SignalHearer): void} {
  let hearer: SignalHearer | null = null
  let count = 0
  let heardAt = -Infinity
  const pass = () => {
    if (count === 1) hearer?.first()
    if (count === 2) hearer?.second()
    if (count > 2) process.exit(EXIT_INTERRUPTED)
  }
  const heard = () => {
    const now = clock.monotonicMs()
    if (now - heardAt < SAME_SIGNAL_MS) return
    heardAt = now
    count += 1
    pass()
  }
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, heard)
  return {
    tell: (listener) => {
      hearer = listener
      if (count > 0) listener.first()
    },
  }
}

/** Hears the errors of a stream: `closed` when its reader is gone; any other is thrown. */
function exceptClosed(closed: () => void): (error: NodeJS.ErrnoException) => void {
  return (error) => {
    if (error.code !== 'EPIPE') throw error
    closed()
  }
}

function host(): Host {
  return {
    name: hostname(),
    cores: availableParallelism(),
    timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    directory: process.cwd(),
    readFile: (path) => readFileSync(path, 'utf8'),
  }
}

function terminal(): Terminal {
  const {stdout, stderr, stdin} = process
  // A reader that has seen enough, such as `head`, closes the pipe: that is no failure of ours.
  stdout.on(
    'error',
    exceptClosed(() => process.exit(0)),
  )
  return {
    out: (text) => stdout.write(text),
    outBytes: (bytes) =>
      new Promise((resolve) => {
        stdout.write(bytes, () => resolve())
      }),
    err: (text) => stderr.write(text),
    input: () => stdin,
    colours: stdout.isTTY && process.env['NO_COLOR'] === undefined,
    progress: stderr.isTTY,
  }
}

function refuse(problem: string, exitCode = EXIT_REFUSED): number {
  process.stderr.write(`belfry: ${problem}\n`)
  return exitCode
}

process.exitCode = await main(process.argv.slice(2))
