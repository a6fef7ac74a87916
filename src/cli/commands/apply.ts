/** `belfry jobs check` and `apply`: definitions in a file. Both check all jobs of it first, by a dry run. */
import type {Command} from 'commander'
import type {DryRunJson} from '../../wire/dry-run.ts'
import type {JobJson} from '../../wire/job.ts'
import {syntaxHint} from '../../wire/json.ts'
import {CallFailed, CommandFailed, expectedMessage, NegativeResult, UsageError} from '../errors.ts'
import {localTimes, relative, shownTime} from '../format.ts'
import {BACKUP_MAGIC, readInput} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {print, printJson, type Session, type WithSession} from '../session.ts'
import {type Terminal, toned} from '../terminal.ts'

interface Options {
  readonly file?: string
  readonly lenient?: true
  readonly run?: true
}

export function addApplyCommands(jobs: Command, use: WithSession): void {
  const lenient = ['--lenient', 'Accept unknown fields and parameters, which are ignored'] as const
  jobs
    .command('apply [file]')
    .description(
      'Create or replace one job after the other of a JSON file, checked first; - reads standard input',
    )
    .option('-f, --file <file>', 'The same as the argument')
    .option('--run', 'Also run each job once, immediately')
    .option(...lenient)
    .action(use(apply))
  jobs
    .command('check [file]')
    .description('Check the job, or the list of jobs, in a JSON file, and store nothing')
    .option('-f, --file <file>', 'The same as the argument')
    .option(...lenient)
    .action(use(check))
}

/** A job as in the file; the server validates it. */
type Definition = Readonly<Record<string, unknown>>
type Fault = DryRunJson['errors'][number]

interface Checked {
  readonly name: string
  readonly parent: unknown
  readonly result: DryRunJson
}

async function check(session: Session, file: string | undefined, options: Options): Promise<void> {
  const jobs = await readJobFile(fileOf(file, options, 'check'), session.terminal)
  const checked = await checkAll(session, jobs, options)
  const wrong = checked.filter(({result}) => !result.valid).length
  const documents = checked.map(({name, result}) => ({name, ...result}))
  const lines = checked.map((each) => shownCheck(session, each)).join('')
  const reply = {valid: wrong === 0, jobs: documents}
  print(session, reply, `${lines}${summaryOf(checked.length, wrong)}\n`)
  if (wrong > 0) throw new NegativeResult()
}

async function apply(session: Session, file: string | undefined, options: Options): Promise<void> {
  const jobs = await readJobFile(fileOf(file, options, 'apply'), session.terminal)
  requireValid(await checkAll(session, jobs, options))
  const stored: (JobJson & {readonly action: string})[] = []
  const query = {...queryOf(options), runoncreate: options.run === undefined ? undefined : 'true'}
  try {
    for (const job of jobs) {
      const about = jobs.length > 1 ? {about: oneLine(String(job['name']))} : {}
      const options = {body: job, query, once: true, ...about} as const
      const call = session.client.call<JobJson>('POST', '/jobs', options)
      const {value, headers} = await call.catch((error: unknown) => {
        throw halfway(job, error, stored.length, jobs.length)
      })
      const action = headers.get('x-action') ?? ''
      stored.push({...value, action})
      if (!session.json) session.terminal.out(`${DONE[action] ?? 'applied'} ${value.name}\n`)
    }
  } finally {
    if (session.json) printJson(session, stored)
  }
  if (!session.json && jobs.length === 0) session.terminal.out('The file has no jobs.\n')
}

/** Actions of the server. */
export const DONE: Readonly<Record<string, string>> = {
  create: 'created',
  update: 'updated',
  unchanged: 'unchanged',
}
const PLANNED: Readonly<Record<string, string>> = {
  create: 'would be created',
  update: 'would be updated',
  unchanged: 'is unchanged',
}

function fileOf(file: string | undefined, options: Options, command: 'apply' | 'check'): string {
  const named = [file, options.file].filter((each) => each !== undefined)
  if (named.length === 1) return named[0]!
  throw new UsageError(
    named.length === 0
      ? `Name a JSON file, as in belfry jobs ${command} jobs.json; - means standard input.`
      : 'Name one file, either as argument or with --file.',
  )
}

function queryOf({lenient}: Options) {
  return {strict: lenient === true ? undefined : 'true'}
}

/** Checks each job on the server, and all together. Parents may be in the file. */
async function checkAll(
  session: Session,
  jobs: readonly Definition[],
  options: Options,
): Promise<readonly Checked[]> {
  const [first] = jobs
  if (first !== undefined) await requireDryRuns(session, first)
  const file = indexOf(jobs)
  const checked: Checked[] = []
  for (const [index, job] of jobs.entries()) {
    const name = typeof job['name'] === 'string' ? job['name'] : `job ${index + 1} of the file`
    const call = session.client.call<DryRunJson>('POST', '/jobs', {
      body: job,
      query: {...queryOf(options), dry_run: 'true'},
    })
    const {value} = await call.catch((error: unknown) => named(name, error))
    const isInFile = file.has(job['parent_job'])
    const errors = value.errors.filter(({code}) => code !== 'parent_unknown' || !isInFile)
    errors.push(...fileFaults(job, file))
    const result = {...value, valid: errors.length === 0, errors}
    checked.push({name, parent: job['parent_job'] ?? '', result})
  }
  return checked
}

/**
 * A server without dry runs would store the job, so it gets a definition that every server rejects. The rest
 * is the job itself: the limits of a policy on executors and tags must allow the probe as they allow the job.
 */
async function requireDryRuns(session: Session, job: Definition): Promise<void> {
  const query = {dry_run: 'true'}
  const body = {...job, schedule: undefined, parent_job: undefined, retries: -1}
  try {
    await session.client.call('POST', '/jobs', {body, query})
  } catch (error) {
    if (!(error instanceof CallFailed) || error.status !== 400) throw error
    const message = 'This server is of an earlier release, and cannot check jobs. Upgrade it.'
    throw new CommandFailed(message, {cause: error})
  }
}

interface InFile {
  readonly parent: unknown
  readonly isEphemeral: boolean
  readonly count: number
}

/** The jobs of a file by name. */
type FileIndex = ReadonlyMap<unknown, InFile>

function indexOf(jobs: readonly Definition[]): FileIndex {
  const index = new Map<unknown, InFile>()
  for (const {name, parent_job: parent, ephemeral} of jobs) {
    const count = (index.get(name)?.count ?? 0) + 1
    index.set(name, {parent, isEphemeral: ephemeral === true, count})
  }
  return index
}

/** Faults that no server can see in one job. */
function fileFaults({name, parent_job: parent}: Definition, file: FileIndex): readonly Fault[] {
  const faults: Fault[] = []
  if (name !== undefined && file.get(name)!.count > 1)
    faults.push({field: 'name', problem: 'appears more than once in the file'})
  if (file.get(parent)?.isEphemeral === true)
    faults.push({field: 'parent_job', problem: `"${String(parent)}" is ephemeral`})
  // A job that is its own parent is a fault that the server finds.
  const seen = new Set<unknown>([undefined])
  let at = name === parent ? undefined : parent
  for (; !seen.has(at) && at !== name; at = file.get(at)?.parent) seen.add(at)
  if (at !== undefined && at === name) {
    const path = [name, ...[...seen].slice(1), name].map(String)
    faults.push({field: 'parent_job', problem: `makes a cycle, ${path.join(' -> ')}`})
  }
  return faults
}

/** Throws `CallFailed` with all faults. */
function requireValid(checked: readonly Checked[]): void {
  const wrong = checked.filter(({result}) => !result.valid)
  if (wrong.length === 0) return
  const errors = wrong.flatMap(({name, result}) => result.errors.map((each) => ({name, ...each})))
  const lines = errors.map(({name, ...fault}) => `  ${oneLine(`${name}: ${sentenceOf(fault)}`)}`)
  const message = `Nothing was stored. ${summaryOf(checked.length, wrong.length)}`
  const text = [message, ...lines].join('\n')
  throw withLenient(new CallFailed(text, 400, {code: 'job_invalid', errors}))
}

/** Names the option that accepts the unknown fields among the faults. */
export function withLenient(error: unknown): unknown {
  if (!(error instanceof CallFailed) || error.errors === null) return error
  const {message, status, code, errors} = error
  const isUnknown = errors.some((each) => (each as Partial<Fault>).code === 'field_unknown')
  const advice = 'To ignore unknown fields and parameters, use --lenient.'
  if (!isUnknown) return error
  return new CallFailed(`${message}\n${advice}`, status, {code, errors, cause: error})
}

function sentenceOf({field, problem}: Fault): string {
  return field === '' ? problem : `${field}: ${problem}`
}

function summaryOf(total: number, wrong: number): string {
  if (total === 0) return 'The file has no jobs.'
  const jobs = total === 1 ? 'The job' : `All ${total} jobs`
  if (wrong === 0) return `${jobs} ${total === 1 ? 'is' : 'are'} valid.`
  if (total === 1) return 'The job is not valid.'
  return `${wrong} of ${total} jobs ${wrong === 1 ? 'is' : 'are'} not valid.`
}

function shownCheck({terminal, clock, utc}: Session, checked: Checked): string {
  const {name, parent, result} = checked
  const {valid, action, errors, warnings, timezone, next, nodes} = result
  const zone = utc ? 'UTC' : (timezone ?? 'UTC')
  const now = clock.now()
  const state = valid ? (PLANNED[action ?? ''] ?? 'would be stored') : 'is not valid'
  const nothing = parent === '' ? 'nothing is planned' : `after ${String(parent)}`
  const rows = [
    ...errors.map((fault) => ['error', sentenceOf(fault)] as const),
    ...warnings.map((warning) => ['warning', localTimes(warning, zone)] as const),
    ...next.map((time, at) => {
      const text = `${shownTime(time, zone)} (${relative(time, now)})`
      return [at === 0 ? 'next' : '', text] as const
    }),
    ...(next.length === 0 && timezone !== null ? [['next', nothing] as const] : []),
    ['nodes', [countOf(result), nodes.join(', ')].join(': ').replace(/: $/, '')] as const,
  ]
  const title = toned(terminal, valid ? 'good' : 'bad', state)
  const lines = rows.map(([what, text]) => `  ${what.padEnd(7)}  ${oneLine(text)}`)
  return [`${toned(terminal, 'strong', oneLine(name))} ${title}`, ...lines, ''].join('\n')
}

function countOf({nodes_run: run, nodes_total: total}: DryRunJson): string {
  return run === undefined ? String(total) : `${run} of ${total}`
}

/** The jobs before stay stored: a repeated command leaves them unchanged. */
function halfway(job: Definition, error: unknown, stored: number, total: number): unknown {
  const message = expectedMessage(error)
  if (message === null) return error
  const advice =
    total === 1 ? '' : ` ${stored} of ${total} jobs were stored; repeat the command for the rest.`
  const text = `${oneLine(String(job['name']))}: ${message}${advice}`
  return error instanceof CallFailed
    ? new CallFailed(text, error.status, {code: error.code, cause: error})
    : new CommandFailed(text, {cause: error})
}

/** Adds the job's name to an error of the server, which names the field only. */
function named(name: string, error: unknown): never {
  const message = expectedMessage(error)
  if (message === null) throw error
  const text = `${oneLine(name)}: ${message}`
  if (!(error instanceof CallFailed)) throw new CommandFailed(text, {cause: error})
  throw new CallFailed(text, error.status, {code: error.code, cause: error})
}

/** The job or the jobs in `file` (`-` = standard input), parents first. Throws `CommandFailed`. */
async function readJobFile(
  file: string,
  terminal: Pick<Terminal, 'input'>,
): Promise<readonly Definition[]> {
  const text = await readInput(terminal, file)
  const where = file === '-' ? 'Standard input' : file
  if (text.trim() === '')
    throw new CommandFailed(`${where} is empty. It must contain jobs as JSON.`)
  if (text.startsWith(BACKUP_MAGIC))
    throw new CommandFailed(`${where} is a backup of a store, not a file of jobs.`)
  let content: unknown
  try {
    content = JSON.parse(text)
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    const why = `${oneLine(error.message)}${syntaxHint(text)}`
    throw new CommandFailed(`${where} must be JSON: ${why}.`, {cause: error})
  }
  const list: readonly unknown[] = Array.isArray(content) ? content : [content]
  if (!list.every(isDefinition))
    throw new CommandFailed(`${where} must contain a job, or a list of jobs, as JSON objects.`)
  return parentsFirst(list)
}

function isDefinition(value: unknown): value is Definition {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Sorts parents before their dependents, otherwise stably. Cycles come last. */
export function parentsFirst(jobs: readonly Definition[]): readonly Definition[] {
  const ordered: Definition[] = []
  let remaining = jobs
  while (remaining.length > 0) {
    const names = new Set(remaining.map((job) => job['name']))
    const ready = remaining.filter((job) => !names.has(job['parent_job']))
    if (ready.length === 0) return [...ordered, ...remaining]
    ordered.push(...ready)
    remaining = remaining.filter((job) => names.has(job['parent_job']))
  }
  return ordered
}
