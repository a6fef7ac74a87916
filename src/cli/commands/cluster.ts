/** Commands for the service itself: leave, and previews of schedules. */
import type {Command} from 'commander'
import type {MemberJson, PlannedTimesJson, StatusJson} from '../../wire/cluster.ts'
import {confirm} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {printJson, type Session, type Use} from '../session.ts'
import {plannedCount} from '../values.ts'
import {printPlanned} from './jobs.ts'

export function addClusterCommands(program: Command, use: Use): void {
  program
    .command('leave')
    .description('Shut the server down gracefully: it leaves the cluster')
    .option('--yes', 'Do not ask')
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

/** Stops the server that has told its name, also if several are set. */
async function leave(session: Session, options: {yes?: true}): Promise<void> {
  const {value: here} = await session.client.call<StatusJson>('GET', '/')
  const name = oneLine(here.agent['name'] ?? '')
  await confirm(session.terminal, `Stop the server ${name}?`, options)
  const call = {sameServer: true} as const
  const {value} = await session.client.call<MemberJson[]>('POST', '/leave', call)
  if (session.json) return printJson(session, value)
  session.terminal.out(`${name} is stopping: it finishes its work and leaves\n`)
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
