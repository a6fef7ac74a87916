/** Context of a client command, created from the global options and the environment. */
import type {Clock} from '../ports/runtime.ts'
import {Client} from './client.ts'
import {type Column, localTimes, table} from './format.ts'
import {plainJson} from './sanitize.ts'
import type {Terminal} from './terminal.ts'
import {chooseToken} from './token.ts'
import {timeoutOf} from './values.ts'

export const SERVER_FALLBACK = 'http://127.0.0.1:8080'

export interface Session {
  readonly client: Client
  readonly terminal: Terminal
  readonly clock: Clock
  /** Print the JSON of the API. */
  readonly json: boolean
  /** IANA name; times are shown in it. */
  readonly zone: string
  /** `--utc`: the zones of jobs do not count either. */
  readonly utc: boolean
  /** Command of the editor; `null` = none is set. */
  readonly editor: string | null
}

/** Turns an action with a session into an action of commander, which passes arguments, then options. */
export type WithSession = <Arguments extends readonly unknown[]>(
  action: (session: Session, ...args: Arguments) => Promise<void>,
) => (...args: unknown[]) => Promise<void>

export interface GlobalOptions {
  readonly server?: string
  readonly token?: string
  readonly tokenFile?: string
  readonly timeout?: number
  readonly utc?: boolean
  readonly json?: boolean
}

type Environment = Readonly<Record<string, string | undefined>>

/** A flag overrides the environment. An empty variable counts as not set. */
export async function openSession(
  options: GlobalOptions,
  env: Environment,
  context: {
    readonly terminal: Terminal
    readonly clock: Clock
    readonly newId?: () => string
    readonly timezone?: string
  },
): Promise<Session> {
  const server = options.server ?? notEmpty(env['BELFRY_SERVER']) ?? SERVER_FALLBACK
  const fallback = notEmpty(env['BELFRY_TIMEOUT'])
  const timeoutMs =
    options.timeout ?? (fallback === undefined ? null : timeoutOf('BELFRY_TIMEOUT')(fallback))
  const token = await chooseToken(options, env)
  const {terminal, clock, timezone = 'UTC'} = context
  const utc = options.utc ?? false
  const zone = utc ? 'UTC' : timezone
  const warn = (text: string) => printWarning({terminal, json: options.json ?? false}, text)
  const onReply = (headers: Headers, about?: string) => {
    for (const warning of warningsIn(headers)) {
      const text = localTimes(warning, zone)
      warn(about === undefined ? text : `${about}: ${text}`)
    }
  }
  const client = new Client(server, token, {timeoutMs, newId: context.newId ?? null, onReply})
  const editor = notEmpty(env['VISUAL']) ?? notEmpty(env['EDITOR']) ?? null
  return {terminal, clock, client, json: options.json ?? false, zone, utc, editor}
}

function notEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}

/** Prints the JSON of the API, indented. */
export function printJson(session: Session, value: unknown): void {
  session.terminal.out(`${plainJson(value, 2)}\n`)
}

/** Prints `text`, or with `--json` the reply of the API. */
export function print(session: Session, reply: unknown, text: string): void {
  if (session.json) printJson(session, reply)
  else session.terminal.out(text)
}

/** `none` replaces a table without rows. */
export function printTable<Row>(
  session: Session,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  none: string,
): void {
  print(session, rows, table(session.terminal, columns, rows, none))
}

/** Says that the server has more rows than it sent. */
export function printTotal(session: Session, headers: Headers, sent: number, rows: string): void {
  const total = Number(headers.get('x-total-count') ?? sent)
  if (total > sent && !session.json) session.terminal.err(`${sent} of ${total} ${rows}\n`)
}

/** Prints to standard error, so that warnings do not disturb scripts. With `json` it is a line of JSON. */
export function printWarning(
  {terminal, json}: Pick<Session, 'terminal' | 'json'>,
  warning: string,
): void {
  terminal.err(json ? `${plainJson({warning})}\n` : `warning: ${warning}\n`)
}

/** Warnings of the server. */
function warningsIn(headers: Headers): readonly string[] {
  const warnings = headers.get('x-warnings')
  const ignored = headers.get('x-ignored-fields')
  return [
    ...(warnings === null ? [] : [decode(warnings)]),
    ...(ignored === null ? [] : [`ignored fields: ${decode(ignored)}`]),
  ]
}

/** Headers percent-encode other characters than ASCII, and may be truncated within a code. */
function decode(text: string): string {
  return text.replaceAll(/(?:%[0-9A-Fa-f]{2})+/g, (codes) =>
    Buffer.from(codes.replaceAll('%', ''), 'hex').toString(),
  )
}
