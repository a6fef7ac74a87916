/**
 * The client commands: a client of the API for people and scripts. It imports no server code. Every failure
 * is one message on standard error and an exit code.
 */
import {Command, type CommanderError} from 'commander'
import {meantBy} from '../lib/nearest.ts'
import type {Clock} from '../ports/runtime.ts'
import {addAccessCommands} from './commands/access.ts'
import {addAuditCommand} from './commands/audit.ts'
import {addClusterCommands} from './commands/cluster.ts'
import {addExplainCommand} from './commands/explain.ts'
import {addFiringCommands} from './commands/firing.ts'
import {addSettingsCommands} from './commands/settings.ts'
import {addFileCommands, type RestoreBackup} from './commands/files.ts'
import {addJobCommands} from './commands/jobs.ts'
import {addMigrateCommand, type MigrateStore} from './commands/migrate.ts'
import {addNodeCommands} from './commands/nodes.ts'
import {addCompletionCommands} from './completion.ts'
import {addScheduleCommand} from './commands/planned.ts'
import {addRunCommands} from './commands/runs.ts'
import {
  NegativeResult,
  CallFailed,
  CommandFailed,
  EXIT_FAILED,
  EXIT_USAGE,
  UsageError,
} from './errors.ts'
import {addNoticeCommands} from './commands/notices.ts'
import {addSecretCommands} from './commands/secrets.ts'
import {addStatusCommand} from './commands/status.ts'
import {plainJson} from './sanitize.ts'
import {
  openSession,
  printWarning,
  SERVER_FALLBACK,
  type GlobalOptions,
  type Session,
  type WithSession,
} from './session.ts'
import type {Terminal} from './terminal.ts'
import {timeoutOf} from './values.ts'

export interface CliContext {
  readonly terminal: Terminal
  readonly env: Readonly<Record<string, string | undefined>>
  readonly clock: Clock
  readonly version: string
  /** IANA name of the zone in which times are shown; default `UTC`. */
  readonly timezone?: string
  /** Makes keys for requests that must not be done twice. */
  readonly newId?: () => string
  /** Listed in the help only; `main.ts` runs these commands. */
  readonly serverCommand: Command
  readonly agentCommand?: Command
  readonly restoreBackup: RestoreBackup
  readonly migrateStore: MigrateStore
}

const PREFIX = 'BELFRY_'
/** Variables of client commands; the prefix is left out. */
const VARIABLES = ['server', 'token', 'token_file', 'timeout']

/** Variables of the environment that are nearly one of client commands, and are none of Belfry's. */
function misspelt({env, serverCommand, agentCommand}: CliContext): readonly string[] {
  const settings = [serverCommand, agentCommand].flatMap((command) => command?.options ?? [])
  const known = new Set(settings.map(({long}) => long!.slice(2).replaceAll('-', '_')))
  return Object.keys(env).flatMap((name) => {
    const word = name.startsWith(PREFIX) ? name.slice(PREFIX.length).toLowerCase() : ''
    const meant = VARIABLES.includes(word) || known.has(word) ? '' : meantBy(word, VARIABLES)
    if (meant === '') return []
    return [`${name} has no effect. Did you mean ${PREFIX}${meant.toUpperCase()}?`]
  })
}

/** Width of the help in a pipe, which has none. */
const HELP_WIDTH = 80

/** Runs one command and returns the exit code. Throws unexpected errors. */
export async function runCli(argv: readonly string[], context: CliContext): Promise<number> {
  const program = buildProgram(context)
  const {terminal} = context
  try {
    if (argv.length === 0) {
      program.outputHelp({error: true})
      return EXIT_USAGE
    }
    checkHelp(program, argv)
    await program.parseAsync(argv, {from: 'user'})
    return 0
  } catch (error) {
    if (error instanceof NegativeResult) return EXIT_FAILED
    if (error instanceof EndedByCommander && isHelp(error.ended)) return helpCodeOf(error.ended)
    const failure = failureOf(error)
    if (failure === null) throw error
    const {exitCode, ...printed} = failure
    // Options may not be parsed yet.
    const isJson = program.opts<{json?: true}>().json === true || argv.includes('--json')
    if (isJson) terminal.err(`${plainJson({error: printed})}\n`)
    else terminal.err(`belfry: ${printed.message}\n`)
    return exitCode
  }
}

interface Failure {
  readonly exitCode: number
  readonly code: string
  readonly message: string
  /** HTTP status; `null` = no reply of a server. */
  readonly status: number | null
  readonly errors?: readonly unknown[]
}

/** Text and exit code of an error; `null` = an unexpected one. */
function failureOf(error: unknown): Failure | null {
  if (error instanceof EndedByCommander) return usage(sentenceOf(error))
  if (error instanceof UsageError) return usage(error.message)
  if (error instanceof CommandFailed)
    return {exitCode: EXIT_FAILED, code: 'failed', message: error.message, status: null}
  if (!(error instanceof CallFailed)) return null
  const {code, message, status, errors} = error
  return {exitCode: EXIT_FAILED, code, message, status, ...(errors === null ? {} : {errors})}
}

function usage(message: string): Failure {
  return {exitCode: EXIT_USAGE, code: 'usage', message, status: null}
}

function buildProgram(context: CliContext): Command {
  const {terminal, env} = context
  const program = new Command('belfry')
    .description('A clustered job scheduler with a JSON API.')
    .option(
      '--server <url>',
      `URL of a server, or several with commas (or BELFRY_SERVER; default ${SERVER_FALLBACK})`,
    )
    .option('--token <text>', 'Token for the server (or BELFRY_TOKEN)')
    .option('--token-file <file>', 'File that contains the token (or BELFRY_TOKEN_FILE)')
    .option(
      '--timeout <duration>',
      'Longest wait for a server, such as 10s (or BELFRY_TIMEOUT)',
      timeoutOf('--timeout'),
    )
    .option('--utc', 'Show times in UTC instead of the time zone of this terminal (TZ)')
    .option('--json', 'Print JSON instead of tables, and errors as JSON')
    .version(context.version, '-V, --version', 'Print the version of this program')
    .helpCommand('help [command]', 'Show the help of a command')
    .configureHelp({showGlobalOptions: true})
  const use: WithSession =
    <Arguments extends readonly unknown[]>(
      action: (session: Session, ...args: Arguments) => Promise<void>,
    ) =>
    async (...args: unknown[]) => {
      const command = args.pop() as Command
      const options = command.optsWithGlobals<GlobalOptions>()
      for (const warning of misspelt(context))
        printWarning({terminal, json: options.json ?? false}, warning)
      const session = await openSession(options, env, context)
      await action(session, ...(args as readonly unknown[] as Arguments))
    }
  for (const command of [context.serverCommand, context.agentCommand]) {
    if (command === undefined) continue
    // `main.ts` runs these when they are the first argument. After a client option, the option would be lost.
    const name = command.name()
    const message = `options of ${name} must follow its name, as in belfry ${name} --data DIR`
    program.addCommand(command.action(() => program.error(message)))
  }
  addJobCommands(program, use)
  addRunCommands(program, use)
  addStatusCommand(program, use)
  addExplainCommand(program, use)
  addScheduleCommand(program, use)
  addClusterCommands(program, use)
  addFiringCommands(program, use)
  addNodeCommands(program, use)
  addSettingsCommands(program, use)
  addAccessCommands(program, use)
  addSecretCommands(program, use)
  addNoticeCommands(program, use)
  addAuditCommand(program, use)
  addFileCommands(program, use, context)
  addMigrateCommand(program, context)
  addCompletionCommands(
    program,
    (text) => terminal.out(text),
    (options) => openSession(options, env, context),
  )
  program
    .command('version')
    .description('Print the version of this program')
    .action(() => terminal.out(`${context.version}\n`))
  for (const command of allCommands(program)) {
    command
      .helpOption('-h, --help', 'Show this help')
      .exitOverride((error) => {
        throw new EndedByCommander(error, command)
      })
      .allowExcessArguments(false)
      .configureOutput({
        writeOut: (text) => terminal.out(text),
        writeErr: (text) => terminal.err(text),
        getOutHelpWidth: () => terminal.columns ?? HELP_WIDTH,
        getErrHelpWidth: () => terminal.columns ?? HELP_WIDTH,
        outputError: () => {},
      })
  }
  return program
}

/** `belfry help nope` would print the help of all commands and not say why. Throws `UsageError`. */
function checkHelp(program: Command, [word, ...path]: readonly string[]): void {
  if (word !== 'help') return
  let command = program
  for (const name of path) {
    const below = command.commands.find((one) => one.name() === name)
    if (below === undefined) {
      const names = command.createHelp().visibleCommands(command)
      const near = meantBy(
        name,
        names.map((one) => one.name()),
      )
      const hint = near === '' ? '' : ` Did you mean ${near}?`
      throw new UsageError(`Unknown command '${name}'.${hint} See ${fullName(command)} --help.`)
    }
    command = below
  }
}

function allCommands(command: Command): readonly Command[] {
  return [command, ...command.commands.flatMap(allCommands)]
}

/** Help or an error of commander, with the command it belongs to. */
class EndedByCommander extends Error {
  override readonly name = 'EndedByCommander'
  readonly ended: CommanderError
  readonly command: Command

  constructor(ended: CommanderError, command: Command) {
    super(ended.message, {cause: ended})
    this.ended = ended
    this.command = command
  }
}

/** Help or the version, which commander has printed. */
function isHelp({exitCode, code}: CommanderError): boolean {
  return exitCode === 0 || code === 'commander.help'
}

/** Help that was not asked for: a group of commands was named without a command. */
function helpCodeOf({exitCode}: CommanderError): number {
  return exitCode === 0 ? 0 : EXIT_USAGE
}

/** An invalid command line as one sentence. */
function sentenceOf({ended, command}: EndedByCommander): string {
  const words = ended.message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  const sentence = `${words.charAt(0).toUpperCase()}${words.slice(1)}`
  return `${sentence}. See ${fullName(command)} --help.`
}

/** Name of a command, such as `belfry members remove`. */
function fullName(command: Command): string {
  const {parent} = command
  return parent === null ? command.name() : `${fullName(parent)} ${command.name()}`
}
