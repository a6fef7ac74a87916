/** `belfry migrate`: shows how a move goes and what it compared. The entry gives what does it. */
import type {Command} from 'commander'
import type {Clock} from '../../ports/runtime.ts'
import {UsageProblem} from '../errors.ts'
import {ProgressLine, table, type Terminal} from '../format.ts'
import {CommandFailed, type GlobalOptions} from '../session.ts'

export interface MoveRequest {
  readonly from: string
  readonly to: string
  /** Hears `null` while the source is looked through, then how much of which table is written. */
  readonly progress: (
    progress: {readonly table: string; readonly done: number; readonly total: number} | null,
  ) => void
}

interface Compared {
  readonly what: string
  readonly source: number
  readonly target: number
}

/** Moves a store into another engine; `problem` is one sentence. */
export type MigrateStore = (request: MoveRequest) => Promise<
  | {
      readonly ok: true
      /** Where the store is now, without anything secret. */
      readonly store: string
      /** The file that keeps servers from starting on the old store. */
      readonly sign: string
      readonly compared: readonly Compared[]
    }
  | {
      readonly ok: false
      readonly problem: string
      /** What was asked for is wrong by itself. */
      readonly isUsage: boolean
    }
>

interface World {
  readonly terminal: Terminal
  readonly clock: Clock
  readonly migrateStore: MigrateStore
}

export function addMigrateCommand(program: Command, world: World): void {
  program
    .command('migrate')
    .description('Move the store of a stopped server into an empty schema on PostgreSQL')
    .requiredOption('--from <dir>', 'its data directory')
    .requiredOption('--to <url>', 'as for --store: postgres://…')
    .option('--quiet', 'say nothing but what goes wrong')
    .action((_options: unknown, command: Command) => migrate(command.optsWithGlobals(), world))
}

interface MigrateOptions extends GlobalOptions {
  readonly from: string
  readonly to: string
  readonly quiet?: true
}

async function migrate(options: MigrateOptions, world: World): Promise<void> {
  const {from, to, quiet = false, json = false} = options
  const {terminal, clock} = world
  const line = new ProgressLine(terminal, clock)
  const progress: MoveRequest['progress'] = (heard) => {
    if (quiet) return
    if (heard === null) line.say('looking through the source')
    else line.show({what: heard.table, done: heard.done, total: heard.total})
  }
  const moved = await world.migrateStore({from, to, progress}).finally(() => line.end())
  if (!moved.ok) throw new (moved.isUsage ? UsageProblem : CommandFailed)(moved.problem)
  const {store, sign, compared} = moved
  if (json) return terminal.out(`${JSON.stringify({store, sign, compared}, null, 2)}\n`)
  if (quiet) return
  const columns = [
    {title: 'moved', text: ({what}: Compared) => what},
    {title: 'source', text: ({source}: Compared) => source.toLocaleString('en')},
    {title: 'target', text: ({target}: Compared) => target.toLocaleString('en')},
  ]
  terminal.out(table(terminal, columns, compared, ''))
  terminal.out(`The store is in ${store} now; start its servers with --store and that URL.\n`)
  terminal.out(`The old one is as it was; ${sign} keeps servers from starting on it.\n`)
}
