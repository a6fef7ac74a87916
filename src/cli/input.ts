/** Input of client commands: files, standard input, and a secret that a person types. */
import {readFile} from 'node:fs/promises'
import {createInterface} from 'node:readline'
import {PassThrough, type Readable, type Writable} from 'node:stream'
import {buffer} from 'node:stream/consumers'
import {CommandFailed, readFailure} from './errors.ts'
import type {Terminal} from './terminal.ts'

/** First bytes of a backup of a store, which is a database. */
export const BACKUP_MAGIC = 'SQLite format 3\0'

/** Throws `CommandFailed`. */
export async function readTextFile(file: string): Promise<string> {
  return (await readBytes(file)).toString()
}

/** The text of a file, or of standard input if `file` is `-`. Throws `CommandFailed`. */
export async function readInput(terminal: Pick<Terminal, 'input'>, file: string): Promise<string> {
  return (await readInputBytes(terminal, file)).toString()
}

/** The secret in a file, or in standard input. A person is asked for it. Throws `CommandFailed`. */
export async function readSecret(terminal: Terminal, file: string): Promise<string> {
  if (file === '-' && terminal.askSecret !== undefined) return terminal.askSecret('Value: ')
  const bytes = await readInputBytes(terminal, file)
  try {
    const text = new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(bytes)
    // `echo` and editors add one.
    return text.replace(/\r?\n$/, '')
  } catch (error) {
    const where = file === '-' ? 'Standard input' : file
    throw new CommandFailed(
      `${where} must be UTF-8 text. Encode it, as with base64, and decode it in the job.`,
      {cause: error},
    )
  }
}

async function readInputBytes(terminal: Pick<Terminal, 'input'>, file: string): Promise<Buffer> {
  return file === '-' ? buffer(terminal.input()) : readBytes(file)
}

async function readBytes(file: string): Promise<Buffer> {
  try {
    return await readFile(file)
  } catch (error) {
    throw new CommandFailed(`${file} cannot be read: ${readFailure(error)}.`, {cause: error})
  }
}

/**
 * Asks a person to confirm. A script, whose standard input is no terminal, is not asked. Throws
 * `CommandFailed` without a yes.
 */
export async function confirm(
  {ask}: Pick<Terminal, 'ask'>,
  question: string,
  options: {readonly yes?: true},
): Promise<void> {
  if (options.yes === true || ask === undefined) return
  const answer = await ask(`${question} [y/N] `)
  if (!/^y(es)?$/i.test(answer.trim())) throw new CommandFailed('Nothing was changed.')
}

/** Reads one line from a terminal; `''` on Ctrl-C and Ctrl-D. */
export async function askLine(input: Readable, output: Writable, prompt: string): Promise<string> {
  const reader = createInterface({input, output, terminal: true})
  const {promise, resolve} = Promise.withResolvers<string>()
  const onClose = () => {
    output.write('\n')
    resolve('')
  }
  reader.once('close', onClose).question(prompt, resolve)
  const line = await promise
  // Only this listener: the reader needs its own to stop, else it shows the answers of later questions.
  reader.off('close', onClose).close()
  return line
}

/**
 * Reads one line from a terminal without showing it. Throws `CommandFailed` on Ctrl-C and Ctrl-D, and if more
 * lines came with the first: of a pasted key, only the first line would be stored.
 */
export async function askHidden(
  input: Readable,
  err: (text: string) => void,
  prompt: string,
): Promise<string> {
  const lines: string[] = []
  // The reader echoes what is typed to its output, which is dropped. `terminal` turns off the terminal's own
  // echo.
  const reader = createInterface({input, output: new PassThrough().resume(), terminal: true})
  reader.on('line', (line) => lines.push(line))
  // The prompt follows the reader: until then the terminal shows what is typed.
  err(prompt)
  await new Promise<unknown>((resolve) => {
    // Pasted lines arrive together: all are read before the promise continues.
    reader.once('line', resolve).once('close', resolve)
  })
  reader.close()
  err('\n')
  const [line, ...others] = lines
  if (line === undefined) throw new CommandFailed('Nothing was read.')
  if (others.length === 0) return line
  throw new CommandFailed('The value has several lines. Put it into a file, and use --file.')
}
