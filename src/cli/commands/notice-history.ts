/** `belfry notice incidents`, `messages`, `resend`: what is open, what was sent, and what was not. */
import type {Command} from 'commander'
import {
  INCIDENT_STATES,
  type ListedIncidentJson,
  type ListedMessageJson,
} from '../../wire/notice-list.ts'
import {MESSAGE_STATES} from '../../core/notice-message.ts'
import {path} from '../client.ts'
import {type Column, relative, table} from '../format.ts'
import {pages} from '../pages.ts'
import {oneLine} from '../sanitize.ts'
import {print, type Session, type WithSession} from '../session.ts'
import {status} from '../terminal.ts'
import {oneOf, whole} from '../values.ts'

const ROWS_SHOWN = 20

export function addNoticeHistoryCommands(notice: Command, use: WithSession): void {
  notice
    .command('incidents')
    .description('List the incidents that rules of notices found; newest first')
    .option(
      '--state <state>',
      `Only in this state: ${INCIDENT_STATES.join(', ')}`,
      oneOf('--state', INCIDENT_STATES),
    )
    .option('--rule <rule>', 'Only of this rule')
    .option('--job <glob>', "Only of these jobs, as in 'backup-*'")
    .option('--limit <n>', 'Maximum number of incidents', whole('--limit'), ROWS_SHOWN)
    .action(use(incidents))
  notice
    .command('messages')
    .description('List the messages of notices, and whether they were delivered; newest first')
    .option(
      '--state <state>',
      `Only in this state: ${MESSAGE_STATES.join(', ')}`,
      oneOf('--state', MESSAGE_STATES),
    )
    .option('--rule <rule>', 'Only of this rule')
    .option('--channel <channel>', 'Only over this channel')
    .option('--job <glob>', "Only about these jobs, as in 'backup-*'")
    .option('--limit <n>', 'Maximum number of messages', whole('--limit'), ROWS_SHOWN)
    .action(use(messages))
  notice
    .command('resend <message>')
    .description('Send a message again, with the same id')
    .action(use(resend))
}

interface ListOptions {
  readonly limit: number
  readonly state?: string
  readonly rule?: string
  readonly channel?: string
  readonly job?: string
}

async function incidents(session: Session, {limit, ...filters}: ListOptions): Promise<void> {
  const list = await pages<ListedIncidentJson>(
    session,
    '/notices/incidents',
    'incidents',
    {...filters},
    limit,
  )
  const {terminal} = session
  const now = session.clock.now()
  const columns: readonly Column<ListedIncidentJson>[] = [
    {title: 'INCIDENT', text: ({summary}) => summary, isName: true},
    {title: 'STATE', text: ({state}) => state, shown: (text) => status(terminal, text)},
    {title: 'OPENED', text: ({opened_at: at}) => relative(at, now)},
    {title: 'CLOSED', text: ({closed_at: at}) => relative(at ?? null, now)},
    {title: 'COUNT', text: ({count}) => String(count)},
    {title: 'LAUNCH', text: ({launch}) => (launch === undefined ? '' : String(launch))},
    {title: 'RULE', text: ({rule}) => rule},
  ]
  const text = table(terminal, columns, list.rows, 'No incidents.')
  print(session, {incidents: list.rows, next: list.next}, text)
}

export async function messages(
  session: Session,
  {limit, ...filters}: Partial<ListOptions>,
): Promise<void> {
  const list = await pages<ListedMessageJson>(
    session,
    '/notices/messages',
    'messages',
    {...filters},
    limit ?? ROWS_SHOWN,
  )
  const {terminal} = session
  const now = session.clock.now()
  const columns: readonly Column<ListedMessageJson>[] = [
    {title: 'MESSAGE', text: ({message}) => message.id, isName: true},
    {title: 'CHANNEL', text: ({channel}) => channel},
    {title: 'STATE', text: ({state}) => state, shown: (text) => status(terminal, text)},
    {title: 'MADE', text: ({made_at: at}) => relative(at, now)},
    {title: 'ATTEMPTS', text: ({attempts}) => String(attempts)},
    {title: 'NEXT', text: ({next_at: at}) => relative(at ?? null, now)},
    {title: 'KIND', text: ({message}) => message.kind},
    {title: 'SUMMARY', text: ({message}) => message.summary},
    {title: 'LAST ERROR', text: ({error}) => error},
  ]
  const text = table(terminal, columns, list.rows, 'No messages.')
  print(session, {messages: list.rows, next: list.next}, text)
}

async function resend(session: Session, id: string): Promise<void> {
  const at = `${path('notices', 'messages', id)}/resend`
  const {value} = await session.client.call<ListedMessageJson>('POST', at)
  const {channel, message} = value
  print(session, value, `${oneLine(message.id)} is sent again over ${oneLine(channel)}\n`)
}
