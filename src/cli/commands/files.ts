/** Commands for files: restore jobs, back up the store, and restore a store from a backup. */
import {openAsBlob} from 'node:fs'
import {link, open, rm, type FileHandle} from 'node:fs/promises'
import {dirname} from 'node:path'
import type {Command} from 'commander'
import {codeOf} from '../../lib/error.ts'
import {LONG_TIMEOUT_MS} from '../client.ts'
import {CommandFailed, readFailure} from '../errors.ts'
import {BACKUP_MAGIC} from '../input.ts'
import {print, type Session, type WithSession} from '../session.ts'
import {formatByteSize} from '../../lib/byte-size.ts'
import {otherFormat} from '../../wire/json.ts'
import {DONE, withLenient} from './apply.ts'
import type {Terminal} from '../terminal.ts'

/** Creates a store from a backup in a data directory. */
export type RestoreBackup = (
  backup: string,
  dataDirectory: string,
) => Promise<{readonly ok: true} | {readonly ok: false; readonly problem: string}>

const RESTORED = `Nothing of the past runs: its executions have ended. Firing is paused until belfry resume.
New launches have numbers above 1000000000, so that none is used twice.
If the store has secrets, its server needs their key: --secret-key-file.
`

const MIB = 2 ** 20
/** A backup contains the output of all jobs. */
const OWNER_ONLY = 0o600

export function addFileCommands(
  program: Command,
  use: WithSession,
  context: {readonly terminal: Terminal; readonly restoreBackup: RestoreBackup},
): void {
  program
    .command('restore <file>')
    .description(
      'Create or replace all jobs of a JSON file in one transaction; for a backup see restore-store',
    )
    .option('--disabled', 'Import all jobs as disabled')
    .option('--lenient', 'Accept unknown fields and parameters, which are ignored')
    .action(use(restore))
  program
    .command('backup [file]')
    .description(
      'Save a backup of all jobs, output and history, for you only; - means standard output',
    )
    .action(use(backup))
  program
    .command('restore-store <backup>')
    .description('Restore a backup of the whole store into a new data directory; needs no server')
    .requiredOption('--data <dir>', 'Data directory')
    .action(async (backup: string, options: {data: string}) => {
      const {data} = options
      const restored = await context.restoreBackup(backup, data)
      if (!restored.ok) throw new CommandFailed(restored.problem)
      context.terminal.out(`restored to ${data}; start the server with --data ${data}\n${RESTORED}`)
    })
}

async function restore(
  session: Session,
  file: string,
  options: {disabled?: true; lenient?: true},
): Promise<void> {
  const form = new FormData()
  form.set('file', await jobsBlobOf(file), 'jobs.json')
  const query = {
    disabled: options.disabled === undefined ? undefined : 'true',
    strict: options.lenient === undefined ? 'true' : undefined,
  }
  const asked = {form, query, timeoutMs: LONG_TIMEOUT_MS}
  const call = session.client.call<string[]>('POST', '/restore', asked)
  const {value} = await call.catch((error: unknown) => {
    throw withLenient(error)
  })
  print(session, value, value.map((line) => `${inWords(line)}\n`).join(''))
}

/** The server has lines such as `success create NAME`. Other commands print `created NAME`. */
function inWords(line: string): string {
  const [, action = '', name] = /^success (\w+) (.+)$/.exec(line) ?? []
  const done = DONE[action]
  return done === undefined ? line : `${done} ${name}`
}

/** Bytes from which another format is recognised. */
const START_BYTES = 4096

/** A file of jobs. Throws `CommandFailed` for a backup of a store, and for text in another format. */
async function jobsBlobOf(file: string): Promise<Blob> {
  const blob = await blobOf(file)
  const start = await blob.slice(0, START_BYTES).text()
  if (start.startsWith(BACKUP_MAGIC))
    throw new CommandFailed(
      `${file} is a backup of a store, not a file of jobs. Use belfry restore-store ${file} --data DIR.`,
    )
  const other = otherFormat(start)
  if (other !== '') throw new CommandFailed(`${file} must be JSON${other}.`)
  return blob
}

async function blobOf(file: string): Promise<Blob> {
  try {
    return await openAsBlob(file, {type: 'application/json'})
  } catch (error) {
    throw new CommandFailed(`${file} cannot be read: ${readFailure(error)}.`, {cause: error})
  }
}

async function backup(session: Session, file: string | undefined): Promise<void> {
  const headers = {accept: 'application/octet-stream'}
  const response = await session.client.open('GET', '/backup', {
    headers,
    timeoutMs: LONG_TIMEOUT_MS,
  })
  const {terminal} = session
  if (file === '-') {
    for await (const bytes of response.body!) await terminal.outBytes(bytes)
    return
  }
  const target = file ?? nameOf(response)
  const bytes = await save(response, target, terminal)
  print(session, {file: target, bytes}, `saved ${target} (${formatByteSize(bytes)})\n`)
}

/** The name that the server proposes, which is never a path. */
function nameOf(response: Response): string {
  const header = response.headers.get('content-disposition') ?? ''
  return /filename="(\w[\w.-]*)"/.exec(header)?.[1] ?? 'belfry.sqlite'
}

/**
 * Writes to a temporary name first, so a partial backup is never taken for a complete one. Never overwrites a
 * file. Returns the number of bytes.
 */
async function save(response: Response, target: string, terminal: Terminal): Promise<number> {
  const partial = `${target}.part`
  let created = false
  try {
    const handle = await open(partial, 'wx', OWNER_ONLY)
    created = true
    const bytes = await fill(handle, response, terminal)
    await link(partial, target)
    return bytes
  } catch (error) {
    const existing = created ? target : partial
    const why =
      codeOf(error) === 'EEXIST'
        ? `${existing} already exists`
        : codeOf(error) === 'ENOENT'
          ? `the directory ${dirname(target)} does not exist`
          : codeOf(error)
    throw new CommandFailed(`The backup cannot be saved to ${target}: ${why}.`, {cause: error})
  } finally {
    if (created) await rm(partial, {force: true})
    else await response.body?.cancel()
  }
}

/** Closes the file. */
async function fill(handle: FileHandle, response: Response, terminal: Terminal): Promise<number> {
  let bytes = 0
  let shownMib = -1
  try {
    for await (const chunk of response.body!) {
      await handle.writeFile(chunk)
      bytes += chunk.length
      const mib = Math.floor(bytes / MIB)
      if (terminal.progress && mib > shownMib) {
        shownMib = mib
        terminal.err(`\r${mib} MiB`)
      }
    }
    await handle.sync()
    return bytes
  } finally {
    if (shownMib >= 0) terminal.err('\r\u001b[K')
    await handle.close()
  }
}
