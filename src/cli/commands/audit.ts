/** `belfry audit`, and `belfry jobs history`, `diff` and `revert`: who changed what. */
import type {Command} from 'commander'
import {AUDIT_ACTIONS} from '../../core/audit.ts'
import {
  type AuditEntryJson,
  RESULTS,
  type RevisionDiffJson,
  type RevisionJson,
} from '../../wire/audit.ts'
import type {JobJson} from '../../wire/job.ts'
import {isObject} from '../../wire/json.ts'
import {path} from '../client.ts'
import {UsageError} from '../errors.ts'
import {type Column, shownTime} from '../format.ts'
import {oneLine, plainJson} from '../sanitize.ts'
import {print, printTable, printTotal, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'
import {oneOf, pastTimeOf, revisionNumber, whole} from '../values.ts'

const ENTRIES_SHOWN = 50
const REVISIONS_SHOWN = 20
/** All actions of a kind are listed by the part before the dot. */
const ACTIONS = [...AUDIT_ACTIONS, ...new Set(AUDIT_ACTIONS.map((action) => action.split('.')[0]!))]

export function addAuditCommand(program: Command, use: WithSession): void {
  program
    .command('audit')
    .description('List changes and refused accesses, newest first')
    .option('--actor <token>', 'Only of this token: its name or accessor')
    .option(
      '--action <action>',
      'Only this action, such as job.update, or all of a kind, as job',
      oneOf('--action', ACTIONS),
    )
    .option('--job <name>', 'Only of this job')
    .option('--target <name>', 'Only of the target of this name, such as a policy')
    .option(
      '--result <result>',
      'Only with this result: done or refused',
      oneOf('--result', RESULTS),
    )
    .option('--from <when>', 'Not before this time, or duration before now, such as 24h')
    .option('--to <when>', 'Before this time, or duration before now')
    .option('--limit <n>', 'Maximum number of entries', whole('--limit'), ENTRIES_SHOWN)
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
  readonly limit: number
}

async function audit(session: Session, options: AuditOptions): Promise<void> {
  const {limit, ...filters} = options
  const now = session.clock.now()
  const from = pastTimeOf('--from', options.from, now)
  const to = pastTimeOf('--to', options.to, now)
  if (from !== undefined && to !== undefined && Date.parse(from) >= Date.parse(to))
    throw new UsageError('--from must be before --to: nothing is between them.')
  const query = {...filters, from, to, _end: limit}
  const {value, headers} = await session.client.call<AuditEntryJson[]>('GET', '/audit', {query})
  const {terminal} = session
  const columns: readonly Column<AuditEntryJson>[] = [
    {title: 'TIME', text: ({at}) => shownTime(at, session.zone), isName: true},
    {title: 'ACTOR', text: ({actor}) => actor || '-'},
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
  printTable(session, columns, value, 'No entries.')
  printTotal(session, headers, value.length, 'entries')
}

function revisionsOf({revision_before: before, revision_after: after}: AuditEntryJson): string {
  if (before === null && after === null) return '-'
  return `${before ?? 'new'} → ${after ?? 'deleted'}`
}

/** Commands below `belfry jobs`. */
export function addHistoryCommands(jobs: Command, use: WithSession): void {
  jobs
    .command('history <name>')
    .description('List the revisions of a job and who made them, newest first')
    .option('--limit <n>', 'Maximum number of revisions', whole('--limit'), REVISIONS_SHOWN)
    .action(use(history))
  jobs
    .command('diff <name> [revision] [other]')
    .description(
      'Show what a revision changed (default: the newest), or the difference between two',
    )
    .action(use(diff))
  jobs
    .command('revert <name> <revision>')
    .description('Make the definition of an earlier revision the current one')
    .action(use(revert))
}

async function history(session: Session, name: string, options: {limit: number}): Promise<void> {
  const query = {_end: options.limit}
  const at = path('jobs', name, 'revisions')
  const {value} = await session.client.call<RevisionJson[]>('GET', at, {query})
  const {terminal} = session
  const columns: readonly Column<RevisionJson>[] = [
    {
      title: 'REVISION',
      text: ({revision}) => String(revision),
      shown: (text) => toned(terminal, 'strong', text),
    },
    {title: 'TIME', text: ({at}) => shownTime(at, session.zone), isName: true},
    {title: 'ACTOR', text: ({actor}) => actor || '-'},
    {title: 'ACTION', text: ({action}) => action || '-'},
    {title: 'DETAIL', text: ({detail}) => detail},
  ]
  printTable(session, columns, value, 'No revisions.')
}

/** Prints the changes of a revision, or those from the first to the second one. */
async function diff(
  session: Session,
  name: string,
  revision: string | undefined,
  other: string | undefined,
): Promise<void> {
  for (const text of [revision, other]) if (text !== undefined) revisionNumber(text)
  const to = other ?? revision ?? (await newest(session, name))
  const query = {with: other === undefined ? undefined : revision}
  const at = path('jobs', name, 'revisions', to, 'diff')
  const {value} = await session.client.call<RevisionDiffJson>('GET', at, {query})
  const lines = changedLines(value.before, value.after).map((line) => `${line}\n`)
  print(session, value, lines.length === 0 ? 'No difference.\n' : lines.join(''))
}

/** Each field that differs, as it was and as it is. */
export function changedLines(
  before: Readonly<Record<string, unknown>> | null,
  after: Readonly<Record<string, unknown>> | null,
): readonly string[] {
  const [old, now] = [linesOf('-', before, ''), linesOf('+', after, '')]
  const bare = (lines: typeof old) => new Set(lines.map(([, line]) => line.slice(1)))
  const [inOld, inNow] = [bare(old), bare(now)]
  return [
    ...old.filter(([, line]) => !inNow.has(line.slice(1))),
    ...now.filter(([, line]) => !inOld.has(line.slice(1))),
  ]
    .toSorted(([one], [two]) => (one < two ? -1 : one > two ? 1 : 0))
    .map(([, line]) => line)
}

async function newest({client}: Session, name: string): Promise<string> {
  const at = path('jobs', name, 'revisions')
  const {value} = await client.call<RevisionJson[]>('GET', at, {query: {_end: '1'}})
  return String(value[0]?.revision ?? 1)
}

/** Lines of a diff: one for each field and each entry of a map, with its name as the key to sort by. */
function linesOf(
  sign: '-' | '+',
  fields: Readonly<Record<string, unknown>> | null,
  prefix: string,
): readonly (readonly [key: string, line: string])[] {
  return Object.entries(fields ?? {}).flatMap(([field, value]) => {
    const name = `${prefix}${field}`
    if (isObject(value)) return linesOf(sign, value, `${name}.`)
    return [[name, oneLine(`${sign} ${name}: ${plainJson(value)}`)] as const]
  })
}

async function revert(session: Session, name: string, revision: string): Promise<void> {
  revisionNumber(revision)
  const at = path('jobs', name, 'revisions', revision, 'restore')
  const {value} = await session.client.call<JobJson>('POST', at)
  print(session, value, `${value.name} is as it was in revision ${oneLine(revision)}\n`)
}
