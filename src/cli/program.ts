/**
 * The client commands: a client of the API for people and scripts. Knows nothing of a server's inside. Every
 * failure is one sentence on standard error and an exit code.
 */
import {Command, type CommanderError} from 'commander'
import type {Clock} from '../ports/runtime.ts'
import {addClusterCommands} from './commands/cluster.ts'
import {addFileCommands, type RestoreBackup} from './commands/files.ts'
import {addJobCommands} from './commands/jobs.ts'
import {addMigrateCommand, type MigrateStore} from './commands/migrate.ts'
import {addRunCommands} from './commands/runs.ts'
import {
  openSession,
  sentenceOf,
  SERVER_FALLBACK,
  type GlobalOptions,
  type Session,
  type Use,
} from './session.ts'
import type {Terminal} from './format.ts'
import {UsageProblem} from './errors.ts'

const EXIT_FAILED = 1
const EXIT_USAGE = 2

export interface CliWorld {
  readonly terminal: Terminal
  readonly env: Readonly<Record<string, string | undefined>>
  readonly clock: Clock
  readonly version: string
  /** Only for their help; the entry runs them. */
  readonly serverCommand: Command
  readonly agentCommand?: Command
  readonly restoreImage: RestoreBackup
  readonly migrateStore: MigrateStore
}

/** Runs one command to its end. Answers the exit code; a fault of ours is thrown. */
export async function runCli(argv: readonly string[], world: CliWorld): Promise<number> {
  const program = buildProgram(world)
  try {
    if (argv.length === 0) {
      program.outputHelp({error: true})
      return EXIT_USAGE
    }
    await program.parseAsync(argv, {from: 'user'})
    return 0
  } catch (error) {
    if (error instanceof EndedByCommander) return endOf(error, world.terminal)
    if (error instanceof UsageProblem) {
      world.terminal.err(`belfry: ${error.message}\n`)
      return EXIT_USAGE
    }
    const sentence = sentenceOf(error)
    if (sentence === null) throw error
    world.terminal.err(`belfry: ${sentence}\n`)
    return EXIT_FAILED
  }
}

function buildProgram(world: CliWorld): Command {
  const {terminal, env, clock} = world
  const program = new Command('belfry')
    .description('Cron you can trust, behind a small JSON API.')
    .option('--server <url>', `the server to ask (default ${SERVER_FALLBACK}, or BELFRY_SERVER)`)
    .option('--token <text>', 'the token to show (or BELFRY_TOKEN)')
    .option('--token-file <file>', 'file that holds it (or BELFRY_TOKEN_FILE)')
    .option('--json', 'answers for machines')
    .version(world.version, '-V, --version', 'print the version of this program')
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
  for (const command of [world.serverCommand, world.agentCommand]) {
    if (command === undefined) continue
    // The entry runs these when they come first; behind an option of the client they would start without it.
    const wrong = `options of ${command.name()} stand after it, as in belfry ${command.name()} --data DIR`
    program.addCommand(command.action(() => program.error(wrong)))
  }
  addJobCommands(program, use)
  addRunCommands(program, use)
  addClusterCommands(program, use)
  addFileCommands(program, use, world)
  addMigrateCommand(program, world)
  program
    .command('version')
    .description('Print the version of this program')
    .action(() => terminal.out(`${world.version}\n`))
  for (const command of everyCommand(program)) {
    command
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

function everyCommand(command: Command): readonly Command[] {
  return [command, ...command.commands.flatMap(everyCommand)]
}

/** Commander's own end of a command, with the command whose help tells more. */
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

/** Help was asked for, or the command line is wrong: then its words, made one sentence. */
function endOf({ended, command}: EndedByCommander, terminal: Terminal): number {
  if (ended.exitCode === 0) return 0
  // A command that only holds others was named alone: its help has been printed already.
  if (ended.code === 'commander.help') return EXIT_USAGE
  const words = ended.message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  const sentence = `${words.charAt(0).toUpperCase()}${words.slice(1)}`
  terminal.err(`belfry: ${sentence}; see ${fullName(command)} --help.\n`)
  return EXIT_USAGE
}

/** As it is written, such as `belfry members remove`. */
function fullName(command: Command): string {
  const {parent} = command
  return parent === null ? command.name() : `${fullName(parent)} ${command.name()}`
}
