/** `belfry settings`: what is stored in the cluster, for all servers. */
import type {Command} from 'commander'
import type {SettingsJson} from '../../wire/settings.ts'
import {UsageError} from '../errors.ts'
import {fieldList} from '../format.ts'
import {print, printJson, type Session, type WithSession} from '../session.ts'
import {printPauses} from './firing.ts'

export function addSettingsCommands(program: Command, use: WithSession): void {
  program
    .command('settings')
    .description('Show the settings of the cluster: the default time zone, the pauses')
    .action(use(show))
    .command('set <setting> <value>')
    .description('Change a setting. timezone: the time zone of jobs that name none')
    .action(use(set))
}

async function show(session: Session): Promise<void> {
  const {value} = await session.client.call<SettingsJson>('GET', '/settings')
  if (session.json) return printJson(session, value)
  const {timezone, submissions_paused: isPaused, firing} = value
  session.terminal.out(
    fieldList(session.terminal, [
      ['timezone', timezone],
      ['submissions', isPaused ? 'paused' : 'not paused'],
      ['firing', firing.store === '' ? firingOf(firing.pauses.length) : `paused (${firing.store})`],
    ]),
  )
  if (firing.pauses.length > 0) printPauses(session, firing.pauses)
}

function firingOf(pauses: number): string {
  return pauses === 0
    ? 'not paused'
    : `paused for ${pauses === 1 ? 'these jobs:' : `${pauses} sets of jobs:`}`
}

async function set(session: Session, setting: string, value: string): Promise<void> {
  if (setting !== 'timezone')
    throw new UsageError(
      `The setting must be timezone, not ${JSON.stringify(setting)}. For pauses, use belfry pause.`,
    )
  const before = await session.client.call<SettingsJson>('GET', '/settings')
  const after = await session.client.call<SettingsJson>('PATCH', '/settings', {
    body: {timezone: value},
  })
  const {timezone} = after.value
  print(
    session,
    after.value,
    before.value.timezone === timezone
      ? `timezone is ${timezone} already\n`
      : `timezone is ${timezone} (was ${before.value.timezone})\n` +
          'Jobs without a time zone of their own are planned anew.\n' +
          'The next time of some may be the old one for a moment.\n',
  )
}
