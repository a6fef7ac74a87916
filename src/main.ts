/**
 * Entry of the program. Reads arguments and environment once and starts a server, an agent, or a client
 * command. Only this file handles signals, writes to standard output and sets the exit code.
 */
import {readFileSync} from 'node:fs'
import {availableParallelism, hostname} from 'node:os'
import type {RunningNode} from './app/lifecycle.ts'
import type {Command} from 'commander'
import {SettingRefused, StartRefused} from './app/start-refused.ts'
import type {Terminal} from './cli/terminal.ts'
import type {AgentConfig} from './config/agent.ts'
import type {Host} from './config/read.ts'
import type {Config} from './config/server.ts'
import {systemClock} from './platform/clock.ts'
import {systemRandom} from './platform/random.ts'
import {VERSION} from './platform/version.ts'

const NODE_MAJOR_MIN = 26
const EXIT_REFUSED = 1
const EXIT_USAGE = 2
/** Shell convention for an end by SIGINT. */
const EXIT_INTERRUPTED = 130
/**
 * Signals closer together than this count as one. A Ctrl-C often arrives twice: from the terminal to the
 * whole process group, and again forwarded by `npm`.
 */
const SAME_SIGNAL_MS = 500

/** Answered without the client commands, which take longer to load. */
const VERSION_WORDS = new Set(['--version', '-V', 'version'])

const clock = systemClock()

async function main(argv: readonly string[]): Promise<number> {
  const major = Number(process.versions.node.split('.')[0])
  if (major < NODE_MAJOR_MIN) {
    const found = `this is Node ${process.versions.node}`
    return refuse(
      `Belfry needs Node ${NODE_MAJOR_MIN} or newer: ${found}. Start it with bin/belfry.js.`,
    )
  }
  if (argv[0] === 'server') return serve(argv.slice(1), SERVER)
  if (argv[0] === 'agent') return serve(argv.slice(1), AGENT)
  if (argv.length === 1 && VERSION_WORDS.has(argv[0]!)) {
    terminal().out(`${VERSION}\n`)
    return 0
  }
  // Imported on demand: a node starts faster without the client commands.
  const {runCli} = await import('./cli/program.ts')
  const {agentCommand, serverCommand} = await import('./config/commands.ts')
  return runCli(argv, {
    terminal: terminal(),
    env: process.env,
    clock,
    version: VERSION,
    timezone: await knownZone(),
    newId: systemRandom().id,
    serverCommand: serverCommand(),
    agentCommand: agentCommand(),
    restoreBackup: async (backup, directory) =>
      (await import('./app/offline.ts')).restoreBackup(backup, directory),
    migrateStore: async (request) => (await import('./app/offline.ts')).migrateStore(request),
  })
}

type Loaded<Settings> =
  {readonly ok: true; readonly config: Settings} | {readonly ok: false; readonly problem: string}

/** A command that starts a node, which runs until a signal. */
interface NodeCommand<Settings> {
  /** Options and help text of the command. */
  readonly command: () => Promise<Command>
  readonly load: (
    argv: readonly string[],
    env: Readonly<Record<string, string | undefined>>,
    host: Host,
  ) => Promise<Loaded<Settings>>
  /** Throws `StartRefused`. `ready` takes the line for standard output. */
  readonly start: (
    settings: Settings,
    ready: (line: string) => void,
  ) => Promise<RunningNode & {reload(loaded: Loaded<Settings>): void}>
}

/** Imported on demand: client commands start faster without the modules of a node. */
const SERVER: NodeCommand<Config> = {
  command: async () => (await import('./config/commands.ts')).serverCommand(),
  load: async (argv, env, host) => {
    const {parseAddress} = await import('./store/postgres/url.ts')
    return (await import('./config/server.ts')).loadConfig(argv, env, host, parseAddress)
  },
  start: async (config, ready) => (await import('./app/server.ts')).startServer(config, {ready}),
}
const AGENT: NodeCommand<AgentConfig> = {
  command: async () => (await import('./config/commands.ts')).agentCommand(),
  load: async (argv, env, host) =>
    (await import('./config/agent.ts')).loadAgentConfig(argv, env, host),
  start: async (config, ready) =>
    (await import('./app/agent.ts')).startAgent(config, {ready, environment: process.env}),
}

/** Resolves with an exit code if no node was started; otherwise exits the process. */
async function serve<Settings>(
  argv: readonly string[],
  {command, load, start}: NodeCommand<Settings>,
): Promise<number> {
  if (argv.includes('--help') || argv.includes('-h')) {
    const help = await command()
    let text = ''
    help.configureOutput({writeOut: (part) => void (text += part)})
    help.name(`belfry ${help.name()}`).outputHelp()
    // A single write: a reader such as `head` may close the pipe after the first.
    process.stdout.write(text)
    return 0
  }
  const loaded = await load(argv, process.env, host())
  if (!loaded.ok) return refuse(loaded.problem, EXIT_USAGE)
  const signals = listenToSignals()
  // A node keeps running if its parent process closed the pipe of standard output.
  process.stdout.on(
    'error',
    exceptClosed(() => undefined),
  )
  try {
    const node = await start(loaded.config, (line) => process.stdout.write(`${line}\n`))
    signals.handleBy({
      onFirst: () => void node.stop(),
      onSecond: () => node.forceStop(),
      onReload: () => void load(argv, process.env, host()).then((again) => node.reload(again)),
    })
    // Exits explicitly: an open handle must not keep the process alive.
    process.exit(await node.done)
  } catch (error) {
    if (error instanceof SettingRefused) return refuse(error.message, EXIT_USAGE)
    if (error instanceof StartRefused) return refuse(error.message)
    throw error
  }
}

interface SignalHandler {
  /** Graceful shutdown. */
  onFirst(): void
  /** Force stop. */
  onSecond(): void
  /** Reads the settings again. */
  onReload(): void
}

/** Signals during the start wait for the handler. A third signal to stop exits at once. */
function listenToSignals(): {handleBy(handler: SignalHandler): void} {
  let handler: SignalHandler | null = null
  let count = 0
  let receivedAt = -Infinity
  const onSignal = () => {
    const now = clock.monotonicMs()
    if (now - receivedAt < SAME_SIGNAL_MS) return
    receivedAt = now
    count += 1
    if (count === 1) handler?.onFirst()
    if (count === 2) handler?.onSecond()
    if (count > 2) process.exit(EXIT_INTERRUPTED)
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, onSignal)
  // Node opens its debugger to every user of the machine unless the signal has a listener.
  process.on('SIGUSR1', () => undefined)
  let isReloadDue = false
  process.on('SIGHUP', () => {
    if (handler === null) isReloadDue = true
    else handler.onReload()
  })
  return {
    handleBy: (nodeHandler) => {
      handler = nodeHandler
      if (count > 0) nodeHandler.onFirst()
      if (isReloadDue) nodeHandler.onReload()
    },
  }
}

/** Error listener of a stream: calls `onClosed` if the reader is gone, and throws any other error. */
function exceptClosed(onClosed: () => void): (error: NodeJS.ErrnoException) => void {
  return (error) => {
    if (error.code !== 'EPIPE') throw error
    onClosed()
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

/** Undefined or without a name if `TZ` is none that this runtime knows; then UTC. */
async function knownZone(
  name: string | undefined = Intl.DateTimeFormat().resolvedOptions().timeZone,
): Promise<string> {
  const {findZone} = await import('./core/schedule/zone.ts')
  return (name === undefined ? null : findZone(name)?.name) ?? 'UTC'
}

/** `COLUMNS` is for terminals that do not tell their width. */
function widthOf({columns}: {readonly columns: number}): number | undefined {
  const set = Number(process.env['COLUMNS'])
  const width = set > 0 ? set : columns
  return width > 0 ? width : undefined
}

function terminal(): Terminal {
  const {stdout, stderr, stdin} = process
  const columns = stdout.isTTY ? widthOf(stdout) : undefined
  // A reader such as `head` may close the pipe early, which is no error.
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
    ...(stdin.isTTY ? {ask, askSecret} : {}),
    ...(columns === undefined ? {} : {columns}),
    colours: stdout.isTTY && process.env['NO_COLOR'] === undefined,
    progress: stderr.isTTY,
  }
}

async function ask(prompt: string): Promise<string> {
  const {askLine} = await import('./cli/input.ts')
  return askLine(process.stdin, process.stderr, prompt)
}

async function askSecret(prompt: string): Promise<string> {
  const {askHidden} = await import('./cli/input.ts')
  return askHidden(process.stdin, (text) => process.stderr.write(text), prompt)
}

function refuse(problem: string, exitCode = EXIT_REFUSED): number {
  process.stderr.write(`belfry: ${problem}\n`)
  return exitCode
}

process.exitCode = await main(process.argv.slice(2))
