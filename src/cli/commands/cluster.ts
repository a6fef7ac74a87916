/** Command for the service itself: leave. */
import type {Command} from 'commander'
import type {MemberJson} from '../../wire/member.ts'
import type {StatusJson} from '../../wire/status.ts'
import {confirm} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {print, type Session, type WithSession} from '../session.ts'

export function addClusterCommands(program: Command, use: WithSession): void {
  program
    .command('leave')
    .description('Shut the server down gracefully: it leaves the cluster')
    .option('--yes', 'Do not ask')
    .action(use(leave))
}

/** Stops the server that has told its name, also if several are set. */
async function leave(session: Session, options: {yes?: true}): Promise<void> {
  const {value: here} = await session.client.call<StatusJson>('GET', '/')
  const name = oneLine(here.agent['name'] ?? '')
  await confirm(session.terminal, `Stop the server ${name}?`, options)
  const call = {sameServer: true} as const
  const {value} = await session.client.call<MemberJson[]>('POST', '/leave', call)
  print(session, value, `${name} is stopping: it finishes its work and leaves\n`)
}
