/** Commands for the service itself: status, leave, and previews of schedules. */
import type {Command} from 'commander'
import type {MemberJson, PlannedTimesJson, StatusJson} from '../../wire/cluster.ts'
import {fieldList} from '../format.ts'
import {printJson, type Session, type Use} from '../session.ts'
import {toned} from '../terminal.ts'
import {plannedCount} from '../values.ts'
import {printPlanned} from './jobs.ts'

export function addClusterCommands(program: Command, use: Use): void {
  program
    .command('status')
    .description('Show the status of the server and its cluster')
    .action(use(show))
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

async function leave(session: Session): Promise<void> {
  const {value: here} = await session.client.call<StatusJson>('GET', '/')
  const {value} = await session.client.call<MemberJson[]>('POST', '/leave')
  if (session.json) return printJson(session, value)
  session.terminal.out(`${here.agent['name']} is stopping: it finishes its work and leaves\n`)
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
