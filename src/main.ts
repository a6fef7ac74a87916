/**
 * The entry. Reads what the process was started with, once, and hands it on: to a server, an agent, or the
 * client commands. The only place that listens to signals, writes to standard output, or decides how the
 * process exits.
 */
import {readFileSync} from 'node:fs'
import {availableParallelism, hostname} from 'node:os'
import {runCli} from './cli/program.ts'
import type {Terminal} from './cli/terminal.ts'
import {serverCommand} from './config-sources.ts'
import {agentCommand, loadAgentConfig, type AgentConfig} from './config-agent.ts'
import type {Host} from './config-reading.ts'
import {loadConfig, type Config} from './config.ts'
import {StartRefused} from './start-refused.ts'
import {systemClock} from './system/system-clock.ts'
import {VERSION} from './system/version.ts'

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
  if (argv[0] === 'server') return serve(argv.slice(1))
  if (argv[0] === 'agent') return serveAsAgent(argv.slice(1))
  return runCli(argv, {
    terminal: terminal(),
    env: process.env,
    clock,
    version: VERSION,
    serverCommand: serverCommand(),
    agentCommand: agentCommand(),
    restoreImage: async (image, directory) =>
      (await import('./restore-image.ts')).restoreImage(image, directory),
    migrateStore: async (request) => (await import('./migrate.ts')).migrateStore(request),
  })
}

async function serve(argv: readonly string[]): Promise<number> {
  if (argv.includes('--help') || argv.includes('-h')) {
    process.stdout.write(serverCommand().name('belfry server').helpInformation())
    return 0
  }
  const loaded = loadConfig(argv, process.env, host())
  return loaded.ok ? runServer(loaded.config) : refuse(loaded.problem, EXIT_USAGE)
}

/**
 * Resolves only when the start was refused. The server is imported here: client commands start quicker
 * without it.
 */
async function runServer(config: Config): Promise<number> {
  const {startServer} = await import('./server.ts')
  const signals = listenToSignals()
  // A server serves on when whoever started it does not read its one line.
  process.stdout.on(
    'error',
    exceptClosed(() => undefined),
  )
  try {
    const server = await startServer(config, {
      ready: (line) => process.stdout.write(`${line}\n`),
    })
    signals.tell({first: () => void server.stop(), second: () => server.hurry()})
    // Everything has ended in order; nothing that was forgotten may keep the process.
    process.exit(await server.done)
  } catch (error) {
    if (error instanceof StartRefused) return refuse(error.message)
    throw error
  }
}

async function serveAsAgent(argv: readonly string[]): Promise<number> {
  if (argv.includes('--help') || argv.includes('-h')) {
    process.stdout.write(agentCommand().name('belfry agent').helpInformation())
    return 0
  }
  const loaded = loadAgentConfig(argv, process.env, host())
  return loaded.ok ? runAgent(loaded.config) : refuse(loaded.problem, EXIT_USAGE)
}

/** Resolves only when the start was refused. */
async function runAgent(config: AgentConfig): Promise<number> {
  const {startAgent} = await import('./agent.ts')
  const signals = listenToSignals()
  process.stdout.on(
    'error',
    exceptClosed(() => undefined),
  )
  try {
    const agent = startAgent(config, {
      ready: (line) => process.stdout.write(`${line}\n`),
      environment: process.env,
    })
    signals.tell({first: () => void agent.stop(), second: () => agent.hurry()})
    process.exit(await agent.done)
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
