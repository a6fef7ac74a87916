/** `belfry migrate`: shows the progress of a migration and its comparison. `main.ts` passes the migration. */
import type {Command} from 'commander'
import type {Clock} from '../../ports/runtime.ts'
import {CommandFailed, UsageError} from '../errors.ts'
import {table} from '../format.ts'
import type {GlobalOptions} from '../session.ts'
import {ProgressLine, type Terminal} from '../terminal.ts'

export interface MigrateRequest {
  readonly from: string
  readonly to: string
  /** Called with `null` while the source is checked, then with the rows written of each table. */
  readonly progress: (
    progress: {readonly table: string; readonly done: number; readonly total: number} | null,
  ) => void
}

interface Compared {
  readonly what: string
  readonly source: number
  readonly target: number
}

/** Migrates a store to another engine. */
export type MigrateStore = (request: MigrateRequest) => Promise<
  | {
      readonly ok: true
      /** Address of the new store, without secrets. */
      readonly store: string
      /** The migrated marker: a file that prevents servers from starting on the old store. */
      readonly markerFile: string
      readonly compared: readonly Compared[]
    }
  | {
      readonly ok: false
      readonly problem: string
      /** The request itself is invalid. */
      readonly isUsage: boolean
    }
>

interface MigrateContext {
  readonly terminal: Terminal
  readonly clock: Clock
  readonly migrateStore: MigrateStore
}

export function addMigrateCommand(program: Command, context: MigrateContext): void {
  program
    .command('migrate')
    .description('Migrate the store of a stopped server to an empty schema on PostgreSQL')
    .requiredOption('--from <dir>', 'Data directory of the server')
    .requiredOption('--to <url>', 'PostgreSQL URL, as for --store: postgres://…')
    .option('--quiet', 'Print errors only')
    .action((_options: unknown, command: Command) => migrate(command.optsWithGlobals(), context))
}

interface MigrateOptions extends GlobalOptions {
  readonly from: string
  readonly to: string
  readonly quiet?: true
}

async function migrate(options: MigrateOptions, context: MigrateContext): Promise<void> {
  const {from, to, quiet = false, json = false} = options
  const {terminal, clock} = context
  const line = new ProgressLine(terminal, clock)
  const progress: MigrateRequest['progress'] = (written) => {
    if (quiet) return
    if (written === null) line.print('checking the source')
    else line.show({what: written.table, done: written.done, total: written.total})
  }
  const migrated = await context.migrateStore({from, to, progress}).finally(() => line.end())
  if (!migrated.ok) throw new (migrated.isUsage ? UsageError : CommandFailed)(migrated.problem)
  const {store, markerFile, compared} = migrated
  if (json) return terminal.out(`${JSON.stringify({store, sign: markerFile, compared}, null, 2)}\n`)
  if (quiet) return
  const columns = [
    {title: 'moved', text: ({what}: Compared) => what},
    {title: 'source', text: ({source}: Compared) => source.toLocaleString('en')},
    {title: 'target', text: ({target}: Compared) => target.toLocaleString('en')},
  ]
  terminal.out(table(terminal, columns, compared, ''))
  terminal.out(`The store is now in ${store}. Start its servers with --store and this URL.\n`)
  terminal.out(`The old store is unchanged; ${markerFile} prevents servers from starting on it.\n`)
}
