/** `belfry audit`: who changed what. */
import type {Command} from 'commander'
import {parseLength} from '../../lib/duration.ts'
import type {AuditEntryJson} from '../../wire/audit.ts'
import {formatTime} from '../../wire/time.ts'
import {type Column, table} from '../format.ts'
import {printJson, type Session, type Use} from '../session.ts'
import {toned} from '../terminal.ts'

const ENTRIES_SHOWN = '50'

export function addAuditCommand(program: Command, use: Use): void {
  program
    .command('audit')
    .description('List changes and refused accesses, newest first')
    .option('--actor <token>', 'Only of this token: its name or accessor')
    .option('--action <action>', 'Only this action, such as job.update, or all of a kind, as job')
    .option('--job <name>', 'Only of this job')
    .option('--target <name>', 'Only of the target of this name, such as a policy')
    .option('--result <result>', 'Only with this result: done or refused')
    .option('--from <when>', 'Not before this time, or duration before now, such as 24h')
    .option('--to <when>', 'Before this time, or duration before now')
    .option('--limit <n>', 'Maximum number of entries', ENTRIES_SHOWN)
    .action(use(audit))
}

interface AuditOptions {
  readonly actor?: string
  readonly action?: string
  readonly job?: string
  readonly target?: string
  readonly result?: string
  readonly from?: string
  readonly to?: string
  readonly limit: string
}

async function audit(session: Session, options: AuditOptions): Promise<void> {
  const {limit, from, to, ...filters} = options
  const when = (text: string | undefined) => (text === undefined ? text : timeOf(session, text))
  const query = {
    ...Object.fromEntries(Object.entries(filters)),
    from: when(from),
    to: when(to),
    _end: limit,
  }
  const {value, headers} = await session.client.call<AuditEntryJson[]>('GET', '/audit', {query})
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const columns: readonly Column<AuditEntryJson>[] = [
    {title: 'TIME', text: ({at}) => at},
    {title: 'ACTOR', text: ({actor}) => actor},
    {title: 'ADDRESS', text: ({address}) => address || '-'},
    {
      title: 'ACTION',
      text: ({action}) => action,
      shown: (text) => toned(terminal, 'strong', text),
    },
    {title: 'TARGET', text: ({target_type, target}) => `${target_type} ${target}`.trim()},
    {title: 'REVISION', text: revisionsOf},
    {title: 'DETAIL', text: ({detail}) => detail},
  ]
  terminal.out(table(terminal, columns, value, 'No entries.'))
  const total = Number(headers.get('x-total-count') ?? value.length)
  if (total > value.length) terminal.err(`${value.length} of ${total} entries\n`)
}

/** A duration counts back from now. Everything else is a time, which the server reads. */
function timeOf({clock}: Session, text: string): string {
  const lengthMs = parseLength(text)
  return lengthMs === null ? text : formatTime(clock.now() - lengthMs)
}

function revisionsOf({revision_before: before, revision_after: after}: AuditEntryJson): string {
  if (before === null && after === null) return '-'
  return `${before ?? ''} -> ${after ?? ''}`.trim()
}
