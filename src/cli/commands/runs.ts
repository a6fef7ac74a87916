/** `belfry runs …` and `belfry busy`: list executions, show and follow their output, cancel them. */
import type {Command} from 'commander'
import {pause} from '../../lib/pause.ts'
import {type CancelledJson, type ExecutionJson, omittedLine} from '../../wire/execution.ts'
import type {JobJson} from '../../wire/job.ts'
import {EXECUTION_FILTERS} from '../../wire/query.ts'
import {addAllLaunchesCommand, endReason, type Range, rangeQuery, withRange} from './launches.ts'
import {addProblemsCommand} from './problems.ts'
import {addTraceCommand} from './trace.ts'
import {path, STREAM_TIMEOUT_MS} from '../client.ts'
import {NegativeResult, CallFailed, CommandFailed, UsageError} from '../errors.ts'
import {type Column, duration, fieldList, relative, table, timeAndAge} from '../format.ts'
import {pages} from '../pages.ts'
import {FAILURES_MAX, RETRY_MS} from '../poll.ts'
import {PlainText} from '../sanitize.ts'
import {readEvents, type ServerEvent} from '../server-events.ts'
import {print, printJson, printTable, type Session, type WithSession} from '../session.ts'
import {status, type Terminal, toned} from '../terminal.ts'
import {durationText, oneOf, whole} from '../values.ts'

const RUNS_SHOWN = 20
/** Tables do not show the output. */
const NO_OUTPUT = {output_size_limit: '0'}

/** Commands of executions and launches of all jobs. */
export function addRunCommands(program: Command, use: WithSession): void {
  addAllLaunchesCommand(program, use)
  addTraceCommand(program, use)
  addProblemsCommand(program, use)
  const runs = program
    .command('runs')
    .description('List, show, follow and cancel the executions of jobs')
  withRange(
    runs
      .command('list [job]')
      .description('List the executions of a job, or of all jobs, newest first'),
  )
    .option('--job <glob>', "Without a job: only of these jobs, as in 'backup-*'")
    .option('--reason <code>', 'Only with this reason code, such as node_lost')
    .option('--exit-code <n>', 'Only with this exit code', whole('--exit-code', 0))
    .option('--min-duration <duration>', 'Only those that took, or have run, this long')
    .option(
      '--status <status>',
      `Only executions with this status: ${EXECUTION_FILTERS.join(', ')}; all = also pending`,
      oneOf('--status', EXECUTION_FILTERS),
    )
    .option('--limit <n>', 'Maximum number of executions', whole('--limit'), RUNS_SHOWN)
    .action(use(list))
  runs
    .command('show <job> <execution>')
    .description('Show one execution')
    .option('--tail <lines>', 'Only the last lines of its output; 0 = none', whole('--tail', 0))
    .action(use(show))
  runs
    .command('output <job> <execution>')
    .description('Print the output of an execution, without terminal control sequences')
    .option(
      '-f, --follow',
      'Print new output until the execution ends; exit code 0 if it succeeds, else 1',
    )
    .option('--raw', 'Keep terminal control sequences')
    .action(use(output))
  runs
    .command('cancel [job] [execution]')
    .description('Cancel a pending or running execution, or with --job all of a job')
    .option('--job <name>', 'All pending and running executions of this job')
    .option('--launch <number>', 'With --job: only those of this launch', whole('--launch'))
    .action(use(cancel))
  program.command('busy').description('List the running executions on all nodes').action(use(busy))
}

function executionColumns(terminal: Terminal, now: number): readonly Column<ExecutionJson>[] {
  return [
    {
      title: 'EXECUTION',
      isName: true,
      text: (execution) => execution.id,
      shown: (text) => toned(terminal, 'strong', text),
    },
    {
      title: 'STATUS',
      text: (execution) => execution.status,
      shown: (text) => status(terminal, text),
    },
    {title: 'STARTED', text: (execution) => relative(execution.started_at, now)},
    {title: 'TOOK', text: ({started_at, finished_at}) => duration(started_at, finished_at)},
    {title: 'NODE', text: (execution) => execution.node_name},
    {title: 'ATTEMPT', text: (execution) => String(execution.attempt)},
  ]
}

/** Shown only if an execution has one. */
function optionalColumns(now: number): readonly Column<ExecutionJson>[] {
  return [
    {title: 'WHY', text: (execution) => retryText(execution, now) || endReason(execution)},
    {title: 'LATE RESULT', text: (execution) => execution.late_result},
  ]
}

/** When a pending retry starts; `''` = the execution is none. */
function retryText({not_before: at}: ExecutionJson, now: number): string {
  if (at === undefined) return ''
  return Date.parse(at) > now ? `retry ${relative(at, now)}` : 'retry due'
}

interface ListOptions extends Range {
  readonly status?: string
  readonly limit: number
  readonly job?: string
  readonly node?: string
  readonly reason?: string
  readonly exitCode?: number
  readonly minDuration?: string
}

async function list(
  session: Session,
  job: string | undefined,
  {limit, since, until, endedSince, exitCode, minDuration, ...rest}: ListOptions,
): Promise<void> {
  if (job !== undefined && rest.job !== undefined)
    throw new UsageError('runs list takes a job, or --job, not both.')
  const {status, ...filters} = {
    ...rest,
    ...rangeQuery(session, {since, until, endedSince}),
    exit_code: exitCode,
    min_duration:
      minDuration === undefined ? undefined : durationText('--min-duration', minDuration),
  }
  if (job !== undefined && Object.values(filters).every((value) => value === undefined)) {
    const query = {...NO_OUTPUT, status, _end: limit}
    const at = path('jobs', job, 'executions')
    const {value} = await session.client.call<ExecutionJson[]>('GET', at, {query})
    return printExecutions(session, value, [], value)
  }
  const query = {...filters, status, job: job ?? filters.job}
  const {rows, next} = await pages<ExecutionJson>(
    session,
    '/executions',
    'executions',
    query,
    limit,
  )
  printExecutions(session, rows, [JOB], {executions: rows, next})
}

const JOB: Column<ExecutionJson> = {title: 'JOB', text: (execution) => execution.job_name}

function printExecutions(
  session: Session,
  value: readonly ExecutionJson[],
  more: readonly Column<ExecutionJson>[],
  reply: unknown,
): void {
  const {terminal} = session
  const now = session.clock.now()
  const columns = [
    ...more,
    ...executionColumns(terminal, now),
    ...optionalColumns(now).filter(({text}) => value.some((execution) => text(execution) !== '')),
  ]
  print(session, reply, table(terminal, columns, value, 'No executions.'))
}

async function busy(session: Session): Promise<void> {
  const {value} = await session.client.call<ExecutionJson[]>('GET', '/busy', {query: NO_OUTPUT})
  const {terminal} = session
  const columns: readonly Column<ExecutionJson>[] = [
    JOB,
    ...executionColumns(terminal, session.clock.now()).filter(({title}) => title !== 'TOOK'),
  ]
  printTable(session, columns, value, 'No running executions.')
}

async function show(
  session: Session,
  job: string,
  execution: string,
  {tail}: {tail?: number},
): Promise<void> {
  const at = path('jobs', job, 'executions', execution)
  const {value} = await session.client.call<ExecutionJson>('GET', at)
  if (session.json)
    return printJson(session, {...value, output: lastLines(value.output, tail).text})
  const {terminal} = session
  const now = session.clock.now()
  const when = (time: string) => timeAndAge(time, session.zone, now)
  terminal.out(
    fieldList(terminal, [
      ['execution', toned(terminal, 'strong', value.id)],
      ['job', value.job_name],
      ['status', status(terminal, value.status)],
      ...(endReason(value) === '' ? [] : [['why', endReason(value)] as const]),
      ...(value.not_before === undefined ? [] : [['retry', when(value.not_before)] as const]),
      ['started', when(value.started_at)],
      ['finished', when(value.finished_at)],
      ['took', duration(value.started_at, value.finished_at)],
      ['node', value.node_name],
      ['launch', String(value.group)],
      ['attempt', String(value.attempt)],
      ...(value.output_truncated ? [['output', outputSize(value)] as const] : []),
      ...(value.late_result === '' ? [] : [['late result', value.late_result] as const]),
    ]),
  )
  if (value.output === '') return
  const {text, before} = lastLines(endLine(new PlainText().push(value.output)), tail)
  const omitted = `… ${before} ${before === 1 ? 'line' : 'lines'} before …\n`
  terminal.out(`\n${before === 0 ? '' : omitted}${text}`)
}

/** The last `count` lines of `text`, and how many lines are before them. */
function lastLines(text: string, count = Infinity): {text: string; before: number} {
  const lines = text.match(/[^\n]*\n|[^\n]+$/g) ?? []
  const before = Math.max(0, lines.length - count)
  return {text: lines.slice(before).join(''), before}
}

/** A server of the previous release does not tell sizes. */
function outputSize({output_size: size, output_omitted: omitted}: Partial<ExecutionJson>): string {
  if (size === undefined || omitted === undefined) return 'only its last part is kept'
  return `${bytesText(size)} bytes, ${bytesText(omitted)} of them not kept`
}

function bytesText(bytes: number): string {
  return bytes.toLocaleString('en-US')
}

async function output(
  session: Session,
  job: string,
  execution: string,
  options: {follow?: true; raw?: true},
): Promise<void> {
  const at = path('jobs', job, 'executions', execution, 'output')
  const plain = new PlainText()
  const print = (text: string) =>
    session.terminal.out(options.raw === true ? text : plain.push(text))
  if (options.follow === true) return followOutput(session, at, print)
  const response = await session.client.open('GET', at, {headers: {accept: 'text/plain'}})
  print(await response.text())
}

async function cancel(
  session: Session,
  job: string | undefined,
  execution: string | undefined,
  options: {job?: string; launch?: number},
): Promise<void> {
  if (options.job !== undefined) {
    if (job !== undefined)
      throw new UsageError('runs cancel takes --job, or a job and an execution, not both.')
    return cancelAll(session, options.job, options.launch)
  }
  if (job === undefined || execution === undefined || options.launch !== undefined)
    throw new UsageError('runs cancel needs a job and an execution, or --job for all of a job.')
  const at = path('jobs', job, 'executions', execution, 'cancel')
  const {value} = await session.client.call<ExecutionJson>('POST', at)
  const end = value.status === 'running' ? 'being cancelled' : value.status
  print(session, value, `${value.id} is ${end}\n`)
}

async function cancelAll(session: Session, job: string, launch?: number): Promise<void> {
  const at = path('jobs', job, 'executions', 'cancel')
  const cancelled: string[] = []
  // A server cancels a bounded number; those that it has asked to end may be named again.
  for (let isMore = true, before = -1; isMore && cancelled.length !== before;) {
    before = cancelled.length
    const {value} = await session.client.call<CancelledJson>('POST', at, {query: {launch}})
    for (const id of value.cancelled) if (!cancelled.includes(id)) cancelled.push(id)
    isMore = value.more
  }
  if (session.json) return printJson(session, {cancelled})
  const {terminal} = session
  const what = cancelled.length === 1 ? '1 execution' : `${cancelled.length} executions`
  terminal.out(`${what} of ${job} ${cancelled.length === 1 ? 'is' : 'are'} being cancelled\n`)
  if (launch === undefined && !(await isDisabled(session, job)))
    terminal.err(`New launches may start. To prevent them: belfry jobs disable ${job}\n`)
}

/** False if the caller may not read the job, or it is gone. */
async function isDisabled({client}: Session, job: string): Promise<boolean> {
  try {
    return (await client.call<JobJson>('GET', path('jobs', job))).value.disabled
  } catch (error) {
    if (error instanceof CallFailed) return false
    throw error
  }
}

function endLine(text: string): string {
  return text.endsWith('\n') ? text : `${text}\n`
}

type End = Pick<ExecutionJson, 'id' | 'status'> & {readonly head: string; readonly foot: string}

/**
 * Prints the output until the execution ends, then its status on standard error. A lost connection is resumed
 * at its position, so a restart of the server is only a pause. Throws `CallFailed`, `CommandFailed`.
 */
async function followOutput(
  session: Session,
  path: string,
  print: (text: string) => void,
): Promise<void> {
  let position = ''
  let last = ''
  for (let attempts = 0; attempts < FAILURES_MAX; attempts += 1) {
    const before = position
    const end = await watch(session, path, position, (event) => {
      position = event.id
      const {text, omitted = 0} = JSON.parse(event.data) as {text: string; omitted?: number}
      print(omitted === 0 ? text : omittedLine(omitted, last) + text)
      last = text
    })
    if (end !== null) return printEnd(session, end, print)
    if (position !== before) attempts = 0
    await pause(session.clock, RETRY_MS)
  }
  throw new CommandFailed('The connection was lost too often. Follow the execution again later.')
}

/**
 * `null` when the connection was lost. Throws errors of the server, and an unreachable server only before the
 * first output.
 */
async function watch(
  session: Session,
  path: string,
  position: string,
  onOutput: (event: ServerEvent) => void,
): Promise<End | null> {
  const resume = position === '' ? {} : {'last-event-id': position}
  try {
    const headers = {accept: 'text/event-stream', ...resume}
    const response = await session.client.open('GET', path, {headers, timeoutMs: STREAM_TIMEOUT_MS})
    for await (const event of readEvents(response.body!)) {
      if (event.name === 'output') onOutput(event)
      if (event.name === 'end') return JSON.parse(event.data) as End
    }
    return null
  } catch (error) {
    const failed = error instanceof CallFailed && (position === '' || isFinal(error.status))
    if (failed || error instanceof SyntaxError) throw error
    return null
  }
}

/** A retry would fail in the same way. */
function isFinal(httpStatus: number | null): boolean {
  return httpStatus !== null && httpStatus < 500
}

function printEnd(session: Session, end: End, print: (text: string) => void): void {
  print(end.foot)
  const {terminal} = session
  terminal.err(`${end.head}${end.id} ${status(terminal, end.status)}\n`)
  if (end.status !== 'succeeded') throw new NegativeResult()
}
