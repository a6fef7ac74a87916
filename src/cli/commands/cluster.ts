/** Commands for the service itself: status, members, leave, and previews of schedules. */
import type {Command} from 'commander'
import type {MemberJson, PlannedTimesJson, StatusJson} from '../../wire/cluster.ts'
import {path} from '../client.ts'
import {type Column, fieldList, table} from '../format.ts'
import {printJson, type Session, type Use} from '../session.ts'
import {status, toned} from '../terminal.ts'
import {plannedCount} from '../values.ts'
import {printPlanned} from './jobs.ts'

export function addClusterCommands(program: Command, use: Use): void {
  program
    .command('status')
    .description('Show the status of the server and its cluster')
    .action(use(show))
  program
    .command('members')
    .description('List the members of the cluster')
    .action(use(members))
    .command('remove <member>')
    .description('Remove a member that has left or failed, by its name or id')
    .action(use(remove))
  program
    .command('leave')
    .description('Shut the server down gracefully: it leaves the cluster')
    .action(use(leave))
  program
    .command('schedule')
    .description('Preview schedules')
    .command('preview <expression>')
    .description('Show the next planned times of a schedule')
    .option('--timezone <zone>', 'IANA time zone of the schedule')
    .option('--name <job>', 'Name of the job, which determines the values of "~"')
    .option('--count <n>', 'Number of times', plannedCount)
    .action(use(preview))
}

async function show(session: Session): Promise<void> {
  const {value} = await session.client.call<StatusJson>('GET', '/')
  if (session.json) return printJson(session, value)
  const {terminal} = session
  for (const section of ['agent', 'gossip', 'tags'] as const) {
    terminal.out(`${toned(terminal, 'strong', section)}\n`)
    terminal.out(
      fieldList(
        terminal,
        Object.entries(value[section]).map(([key, text]) => [`  ${key}`, text]),
      ),
    )
  }
}

async function members(session: Session): Promise<void> {
  const {value} = await session.client.call<MemberJson[]>('GET', '/members')
  printMembers(session, value)
}

async function remove(session: Session, member: string): Promise<void> {
  const {value} = await session.client.call<MemberJson>('DELETE', path('members', member))
  if (session.json) return printJson(session, value)
  session.terminal.out(`removed ${value.Name} (status was ${value.statusText})\n`)
}

function printMembers(session: Session, value: readonly MemberJson[]): void {
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const columns: readonly Column<MemberJson>[] = [
    {
      title: 'NAME',
      text: (member) => member.Name,
      shown: (text) => toned(terminal, 'strong', text),
    },
    {title: 'STATUS', text: (member) => member.statusText, shown: (text) => status(terminal, text)},
    {
      title: 'ADDRESS',
      text: (member) => member.Tags['rpc_addr'] ?? `${member.Addr}:${member.Port}`,
    },
    {title: 'VERSION', text: (member) => member.Tags['version'] ?? ''},
    {
      title: 'TAGS',
      text: ({Tags}) =>
        Object.entries(Tags)
          .map(([key, text]) => `${key}=${text}`)
          .join(' '),
    },
  ]
  terminal.out(table(terminal, columns, value, 'No members.'))
}

async function leave(session: Session): Promise<void> {
  const {value} = await session.client.call<MemberJson[]>('POST', '/leave')
  printMembers(session, value)
}

async function preview(
  session: Session,
  expression: string,
  options: {timezone?: string; name?: string; count?: number},
): Promise<void> {
  const {value} = await session.client.call<PlannedTimesJson>('GET', '/schedules/preview', {
    query: {schedule: expression, ...options},
  })
  printPlanned(session, value)
}
