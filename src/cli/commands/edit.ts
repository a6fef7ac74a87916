/**
 * `belfry jobs edit`: the definition of a job in an editor. It is stored only if the job has not changed
 * since, and a text that is refused is never lost.
 */
import {spawn} from 'node:child_process'
import {mkdtemp, rm, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {Command} from 'commander'
import {type JobJson, READ_ONLY_FIELDS} from '../../wire/job.ts'
import {isObject} from '../../wire/json.ts'
import {path} from '../client.ts'
import {CallFailed, CommandFailed} from '../errors.ts'
import {confirm, readTextFile} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {print, type Session, type WithSession} from '../session.ts'
import {changedLines} from './audit.ts'

type Fields = Readonly<Record<string, unknown>>

/** Only the person who edits it may read it. */
const OWNER_ONLY = 0o600
const NOTICE = '#'

/** Command below `belfry jobs`. */
export function addEditCommand(jobs: Command, use: WithSession): void {
  jobs
    .command('edit <name>')
    .description('Edit a job in $VISUAL or $EDITOR')
    .option('--yes', 'Do not ask before the change is stored')
    .action(use(edit))
}

async function edit(session: Session, name: string, options: {yes?: true}): Promise<void> {
  const {editor, terminal} = session
  if (editor === null && terminal.ask === undefined)
    throw new CommandFailed('jobs edit needs a terminal, or an editor in EDITOR.')
  const first = await read(session, name)
  const folder = await mkdtemp(join(tmpdir(), 'belfry-edit-'))
  const file = join(folder, 'job.json')
  let {revision, fields} = first
  let text = `${JSON.stringify(fields, null, 2)}\n`
  let notice = ''
  let isDeclined = false
  for (;;) {
    await writeFile(file, `${notice}${text}`, {mode: OWNER_ONLY})
    await openEditor(editor ?? 'vi', file)
    const edited = withoutNotice(await readTextFile(file))
    if (edited === text) break
    text = edited
    notice = ''
    const problem = await attempt(async () => {
      const definition = parse(text)
      const lines = changedLines(fields, definition)
      if (lines.length === 0) return
      session.terminal.err(lines.map((line) => `${line}\n`).join(''))
      await confirm(session.terminal, `Store this change of ${name}?`, options).catch((error) => {
        isDeclined = true
        throw error
      })
      await store(session, name, definition, revision)
    })
    if (problem === null) return rm(folder, {recursive: true})
    if (isDeclined) throw new CommandFailed(`Nothing was changed. Your text is in ${file}.`)
    session.terminal.err(`belfry: ${problem.message}\n`)
    notice = noticeOf(problem.message)
    if (problem instanceof CallFailed && problem.status === 412) {
      ;({revision, fields} = await kept(file, () => read(session, name)))
      notice += noticeOf(
        'The job was changed meanwhile. The difference is shown before yours is stored.',
      )
    }
  }
  if (notice !== '') throw new CommandFailed(`Nothing was changed. Your text is in ${file}.`)
  await rm(folder, {recursive: true})
  session.terminal.err('Nothing was changed.\n')
}

interface Current {
  readonly revision: string
  readonly fields: Fields
}

async function read({client}: Session, name: string): Promise<Current> {
  const {value, headers} = await client.call<JobJson>('GET', path('jobs', name))
  const fields = Object.entries(value).filter(([field]) => !READ_ONLY_FIELDS.has(field))
  return {revision: headers.get('etag') ?? '*', fields: Object.fromEntries(fields)}
}

async function store(
  session: Session,
  name: string,
  body: Fields,
  revision: string,
): Promise<void> {
  const headers = {'if-match': revision}
  const at = path('jobs', name)
  const {value} = await session.client.call<JobJson>('PUT', at, {body, headers})
  print(session, value, `changed ${value.name}\n`)
}

/** The error that a person can correct. */
async function attempt(action: () => Promise<void>): Promise<CallFailed | CommandFailed | null> {
  try {
    await action()
    return null
  } catch (error) {
    if (error instanceof CallFailed || error instanceof CommandFailed) return error
    throw error
  }
}

/** Names the file with the text if the action fails. */
async function kept<Value>(file: string, action: () => Promise<Value>): Promise<Value> {
  try {
    return await action()
  } catch (error) {
    if (!(error instanceof CallFailed)) throw error
    throw new CommandFailed(`${error.message} Your text is in ${file}.`, {cause: error})
  }
}

function parse(text: string): Fields {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new CommandFailed(`The text must be JSON: ${error.message}.`, {cause: error})
  }
  if (!isObject(value)) throw new CommandFailed('The text must be a JSON object.')
  return value
}

function noticeOf(message: string): string {
  return message
    .split('\n')
    .map((line) => `${NOTICE} ${oneLine(line)}\n`)
    .join('')
}

function withoutNotice(text: string): string {
  return text
    .split('\n')
    .filter((line) => !line.startsWith(NOTICE))
    .join('\n')
}

/** `editor` is a command with options, such as `code --wait`. */
async function openEditor(editor: string, file: string): Promise<void> {
  const child = spawn('/bin/sh', ['-c', `${editor} "$0"`, file], {stdio: 'inherit'})
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  if (code !== 0) throw new CommandFailed(`The editor failed. Your text is in ${file}.`)
}
