/** What every command works with, made once from the global options and the environment. */
import {readFile} from 'node:fs/promises'
import type {Clock} from '../ports/runtime.ts'
import {CallFailed, Client} from './client.ts'
import type {Terminal} from './format.ts'

export const SERVER_FALLBACK = 'http://127.0.0.1:8080'

export interface Session {
  readonly client: Client
  readonly terminal: Terminal
  readonly clock: Clock
  /** Answers are for machines: printed as the API gave them. */
  readonly json: boolean
}

/** A command that cannot be done. The message is one sentence for people. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed'
}

/**
 * Makes an action of commander out of one that wants a session. Arguments, then options, as commander gives
 * them.
 */
export type Use = <Arguments extends readonly unknown[]>(
  action: (session: Session, ...args: Arguments) => Promise<void>,
) => (...args: unknown[]) => Promise<void>

export interface GlobalOptions {
  readonly server?: string
  readonly token?: string
  readonly tokenFile?: string
  readonly json?: boolean
}

type Environment = Readonly<Record<string, string | undefined>>

/** A flag beats the environment. An empty variable is not set. */
export async function openSession(
  options: GlobalOptions,
  env: Environment,
  world: {readonly terminal: Terminal; readonly clock: Clock},
): Promise<Session> {
  const server = options.server ?? notEmpty(env['BELFRY_SERVER']) ?? SERVER_FALLBACK
  const client = new Client(server, await tokenOf(options, env))
  return {...world, client, json: options.json ?? false}
}

async function tokenOf(options: GlobalOptions, env: Environment): Promise<string | null> {
  if (options.token !== undefined) return options.token
  const file =
    options.tokenFile ??
    (notEmpty(env['BELFRY_TOKEN']) === undefined ? notEmpty(env['BELFRY_TOKEN_FILE']) : undefined)
  if (file === undefined) return notEmpty(env['BELFRY_TOKEN']) ?? null
  return (await readNamed(file)).trim()
}

function notEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}

/** The text of a file that somebody named. Throws `CommandFailed`. */
export async function readNamed(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    throw new CommandFailed(`${file} cannot be read: ${codeOf(error)}.`, {cause: error})
  }
}

export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error)
}

/** The sentence to end with; `null` for an error that is a fault of ours. */
export function sentenceOf(error: unknown): string | null {
  return error instanceof CallFailed || error instanceof CommandFailed ? error.message : null
}

/** For machines: as the API gave it, indented. */
export function printJson(session: Session, value: unknown): void {
  session.terminal.out(`${JSON.stringify(value, null, 2)}\n`)
}

/** What the server had to say beside its answer; people see it, machines are not disturbed. */
export function printNotes(session: Session, headers: Headers): void {
  const warnings = headers.get('x-warnings')
  const ignored = headers.get('x-ignored-fields')
  if (warnings !== null) session.terminal.err(`warning: ${decode(warnings)}\n`)
  if (ignored !== null) session.terminal.err(`warning: ignored fields: ${decode(ignored)}\n`)
}

/** Headers carry what is not ASCII percent-encoded, and may be cut inside of such a code. */
function decode(text: string): string {
  return text.replaceAll(/(?:%[0-9A-Fa-f]{2})+/g, (codes) =>
    Buffer.from(codes.replaceAll('%', ''), 'hex').toString(),
  )
}
