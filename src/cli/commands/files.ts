/** Commands that carry files: restoring jobs, a backup of the store, and a store made of one. */
import {openAsBlob} from 'node:fs'
import {link, open, rm, type FileHandle} from 'node:fs/promises'
import type {Command} from 'commander'
import {codeOf, CommandFailed, printJson, type Session, type Use} from '../session.ts'
import {formatByteSize} from '../../lib/byte-size.ts'
import type {Terminal} from '../format.ts'

/** Makes a store of an image in a data directory; `problem` is one sentence. */
export type RestoreBackup = (
  image: string,
  dataDirectory: string,
) => Promise<{readonly ok: true} | {readonly ok: false; readonly problem: string}>

const MIB = 2 ** 20
/** Images hold everything jobs printed. */
const OWNER_ONLY = 0o600

export function addFileCommands(
  program: Command,
  use: Use,
  world: {readonly terminal: Terminal; readonly restoreImage: RestoreBackup},
): void {
  program
    .command('restore <file>')
    .description('Create and replace jobs from a JSON file, all of them or none')
    .option('--disabled', 'import every job disabled')
    .action(use(restore))
  program
    .command('backup [file]')
    .description('Save a consistent image of the store; - for standard output')
    .action(use(backup))
  program
    .command('restore-store <image>')
    .description('Make a store out of an image, in a data directory that no server has used yet')
    .requiredOption('--data <dir>', 'the data directory')
    .action(async (image: string, options: {data: string}) => {
      const restored = await world.restoreImage(image, options.data)
      if (!restored.ok) throw new CommandFailed(restored.problem)
      world.terminal.out(`${options.data} holds the store; start it with --data ${options.data}\n`)
    })
}

async function restore(session: Session, file: string, options: {disabled?: true}): Promise<void> {
  const form = new FormData()
  form.set('file', await blobOf(file), 'jobs.json')
  const query = {disabled: options.disabled === undefined ? undefined : 'true'}
  const {value} = await session.client.call<string[]>('POST', '/restore', {form, query})
  if (session.json) return printJson(session, value)
  session.terminal.out(value.map((line) => `${line}\n`).join(''))
}

async function blobOf(file: string): Promise<Blob> {
  try {
    return await openAsBlob(file, {type: 'application/json'})
  } catch (error) {
    throw new CommandFailed(`${file} cannot be read: ${codeOf(error)}.`, {cause: error})
  }
}

async function backup(session: Session, file: string | undefined): Promise<void> {
  const headers = {accept: 'application/vnd.sqlite3'}
  const response = await session.client.open('GET', '/backup', {headers})
  const {terminal} = session
  if (file === '-') {
    for await (const bytes of response.body!) await terminal.outBytes(bytes)
    return
  }
  const target = file ?? nameOf(response)
  const bytes = await save(response, target, terminal)
  if (session.json) printJson(session, {file: target, bytes})
  else terminal.out(`saved ${target} (${formatByteSize(bytes)})\n`)
}

/** As the server proposes, but never a path. */
function nameOf(response: Response): string {
  const header = response.headers.get('content-disposition') ?? ''
  return /filename="(\w[\w.-]*)"/.exec(header)?.[1] ?? 'belfry.sqlite'
}

/**
 * Under another name until it is whole, so that half an image never looks like one; an existing file is left
 * alone. Answers the number of bytes.
 */
async function save(response: Response, target: string, terminal: Terminal): Promise<number> {
  const draft = `${target}.part`
  let made = false
  try {
    const handle = await open(draft, 'wx', OWNER_ONLY)
    made = true
    const bytes = await fill(handle, response, terminal)
    await link(draft, target)
    return bytes
  } catch (error) {
    const taken = made ? target : draft
    const why = codeOf(error) === 'EEXIST' ? `${taken} is there already` : codeOf(error)
    throw new CommandFailed(`The backup cannot be saved to ${target}: ${why}.`, {cause: error})
  } finally {
    if (made) await rm(draft, {force: true})
    else await response.body?.cancel()
  }
}

/** Closes the file. */
async function fill(handle: FileHandle, response: Response, terminal: Terminal): Promise<number> {
  let bytes = 0
  let shown = -1
  try {
    for await (const piece of response.body!) {
      await handle.writeFile(piece)
      bytes += piece.length
      const whole = Math.floor(bytes / MIB)
      if (terminal.progress && whole > shown) {
        shown = whole
        terminal.err(`\r${whole} MiB`)
      }
    }
    await handle.sync()
    return bytes
  } finally {
    if (shown >= 0) terminal.err('\r\u001b[K')
    await handle.close()
  }
}
