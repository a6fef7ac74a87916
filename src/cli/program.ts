/**
 * The client commands: a client of the API for people and scripts. It imports no server code. Every failure
 * is one message on standard error and an exit code.
 */
import {Command, type CommanderError} from 'commander'
import type {Clock} from '../ports/runtime.ts'
import {addAccessCommands} from './commands/access.ts'
import {addAuditCommand} from './commands/audit.ts'
import {addClusterCommands} from './commands/cluster.ts'
import {addFileCommands, type RestoreBackup} from './commands/files.ts'
import {addJobCommands} from './commands/jobs.ts'
import {addMigrateCommand, type MigrateStore} from './commands/migrate.ts'
import {addRunCommands} from './commands/runs.ts'
import {AnswerIsNo, EXIT_FAILED, EXIT_USAGE, messageOf, UsageError} from './errors.ts'
import {addSecretCommands} from './commands/secrets.ts'
import {
  openSession,
  SERVER_FALLBACK,
  type GlobalOptions,
  type Session,
  type Use,
} from './session.ts'
import type {Terminal} from './terminal.ts'

export interface CliContext {
  readonly terminal: Terminal
  readonly env: Readonly<Record<string, string | undefined>>
  readonly clock: Clock
  readonly version: string
  /** For help only; `main.ts` runs these commands. */
  readonly serverCommand: Command
  readonly agentCommand?: Command
  readonly restoreBackup: RestoreBackup
  readonly migrateStore: MigrateStore
}

/** Runs one command and returns the exit code. Throws unexpected errors. */
export async function runCli(argv: readonly string[], context: CliContext): Promise<number> {
  const program = buildProgram(context)
  try {
    if (argv.length === 0) {
      program.outputHelp({error: true})
      return EXIT_USAGE
    }
    await program.parseAsync(argv, {from: 'user'})
    return 0
  } catch (error) {
    if (error instanceof EndedByCommander) return endOf(error, context.terminal)
    if (error instanceof UsageError) {
      context.terminal.err(`belfry: ${error.message}\n`)
      return EXIT_USAGE
    }
    if (error instanceof AnswerIsNo) return EXIT_FAILED
    const message = messageOf(error)
    if (message === null) throw error
    context.terminal.err(`belfry: ${message}\n`)
    return EXIT_FAILED
  }
}

function buildProgram(context: CliContext): Command {
  const {terminal, env, clock} = context
  const program = new Command('belfry')
    .description('A clustered job scheduler with a JSON API.')
    .option('--server <url>', `URL of the server (or BELFRY_SERVER; default ${SERVER_FALLBACK})`)
    .option('--token <text>', 'Token for the server (or BELFRY_TOKEN)')
    .option('--token-file <file>', 'File that contains the token (or BELFRY_TOKEN_FILE)')
    .option('--json', 'Print JSON instead of tables')
    .version(context.version, '-V, --version', 'Print the version of this program')
    .helpCommand('help [command]', 'Show the help of a command')
    .configureHelp({showGlobalOptions: true})
  const use: Use =
    <Arguments extends readonly unknown[]>(
      action: (session: Session, ...args: Arguments) => Promise<void>,
    ) =>
    async (...args: unknown[]) => {
      const command = args.pop() as Command
      const options = command.optsWithGlobals<GlobalOptions>()
      const session = await openSession(options, env, {terminal, clock})
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
  addClusterCommands(program, use)
  addAccessCommands(program, use)
  addSecretCommands(program, use)
  addAuditCommand(program, use)
  addFileCommands(program, use, context)
  addMigrateCommand(program, context)
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
        outputError: () => {},
      })
  }
  return program
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

/** The exit code after help or an invalid command line; the latter is reported as one sentence. */
function endOf({ended, command}: EndedByCommander, terminal: Terminal): number {
  if (ended.exitCode === 0) return 0
  // A group of commands was named without a command: commander has printed its help.
  if (ended.code === 'commander.help') return EXIT_USAGE
  const words = ended.message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  const sentence = `${words.charAt(0).toUpperCase()}${words.slice(1)}`
  terminal.err(`belfry: ${sentence}. See ${fullName(command)} --help.\n`)
  return EXIT_USAGE
}

/** Such as `belfry members remove`. */
function fullName(command: Command): string {
  const {parent} = command
  return parent === null ? command.name() : `${fullName(parent)} ${command.name()}`
}
