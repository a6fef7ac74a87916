/** `belfry runs …` and `belfry busy`: what ran, what runs, and ending it. */
import type {Command} from 'commander'
import type {Clock} from '../../ports/runtime.ts'
import type {ExecutionJson} from '../../wire/execution.ts'
import {CallFailed, path, readEvents, type ServerEvent} from '../client.ts'
import {
  type Column,
  duration,
  facts,
  relative,
  status,
  table,
  type Terminal,
  toned,
} from '../format.ts'
import {PlainText} from '../sanitize.ts'
import {CommandFailed, printJson, type Session, type Use} from '../session.ts'

const RUNS_SHOWN = '20'
/** Lists carry output; a table has no room for it. */
const NO_OUTPUT = {output_size_limit: '0'}

export function addRunCommands(program: Command, use: Use): void {
  const runs = program.command('runs').description('Runs of jobs: list, show, output, cancel')
  runs
    .command('list <job>')
    .description('List the executions of a job, newest first')
    .option('--status <status>', 'only those, such as failed')
    .option('--limit <n>', 'at most that many', RUNS_SHOWN)
    .action(use(list))
  runs.command('show <job> <execution>').description('Show one execution').action(use(show))
  runs
    .command('output <job> <execution>')
    .description('Print the output of an execution, without control sequences for terminals')
    .option('-f, --follow', 'stay until it ends')
    .option('--raw', 'with control sequences, as the job wrote them')
    .action(use(output))
  runs
    .command('cancel <job> <execution>')
    .description('End an execution that waits or runs')
    .action(use(cancel))
  program.command('busy').description('List what runs now, on all nodes').action(use(busy))
}

function executionColumns(terminal: Terminal, now: number): readonly Column<ExecutionJson>[] {
  return [
    {
      title: 'EXECUTION',
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

/** What was heard of runs too late; a column only where there is something in it. */
const LATE_RESULT: Column<ExecutionJson> = {
  title: 'LATE RESULT',
  text: (execution) => execution.late_result,
}

async function list(
  session: Session,
  job: string,
  options: {status?: string; limit: string},
): Promise<void> {
  const query = {...NO_OUTPUT, status: options.status, _end: options.limit}
  const at = path('jobs', job, 'executions')
  const {value} = await session.client.call<ExecutionJson[]>('GET', at, {query})
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const isLate = value.some((execution) => LATE_RESULT.text(execution) !== '')
  const columns = [
    ...executionColumns(terminal, session.clock.now()),
    ...(isLate ? [LATE_RESULT] : []),
  ]
  terminal.out(table(terminal, columns, value, 'No executions.'))
}

async function busy(session: Session): Promise<void> {
  const {value} = await session.client.call<ExecutionJson[]>('GET', '/busy', {query: NO_OUTPUT})
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const columns: readonly Column<ExecutionJson>[] = [
    {title: 'JOB', text: (execution) => execution.job_name},
    ...executionColumns(terminal, session.clock.now()).filter(({title}) => title !== 'TOOK'),
  ]
  terminal.out(table(terminal, columns, value, 'Nothing runs.'))
}

async function show(session: Session, job: string, execution: string): Promise<void> {
  const at = path('jobs', job, 'executions', execution)
  const {value} = await session.client.call<ExecutionJson>('GET', at)
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const now = session.clock.now()
  const when = (time: string) => {
    const away = relative(time, now)
    return away === '-' ? '-' : `${time} (${away})`
  }
  terminal.out(
    facts(terminal, [
      ['execution', toned(terminal, 'strong', value.id)],
      ['job', value.job_name],
      ['status', status(terminal, value.status)],
      ['started', when(value.started_at)],
      ['finished', when(value.finished_at)],
      ['took', duration(value.started_at, value.finished_at)],
      ['node', value.node_name],
      ['launch', String(value.group)],
      ['attempt', String(value.attempt)],
      ...(value.late_result === '' ? [] : [['late result', value.late_result] as const]),
    ]),
  )
  if (value.output !== '') terminal.out(`\n${endLine(new PlainText().push(value.output))}`)
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

async function cancel(session: Session, job: string, execution: string): Promise<void> {
  const at = path('jobs', job, 'executions', execution, 'cancel')
  const {value} = await session.client.call<ExecutionJson>('POST', at)
  if (session.json) return printJson(session, value)
  session.terminal.out(
    `${value.id} is ${value.status === 'running' ? 'being ended' : value.status}\n`,
  )
}

function endLine(text: string): string {
  return text.endsWith('\n') ? text : `${text}\n`
}

/*
 * Watching a run: its output as it is written, until it ends. A connection that breaks is opened again where
 * it broke, so a restart of the server is a pause, not an end.
 */

/** As long as a server takes to restart, several times over. */
const TRIES_MAX = 30
const AGAIN_MS = 1_000

type End = Pick<ExecutionJson, 'id' | 'status'> & {readonly head: string; readonly foot: string}

/** Prints until the run has ended; then says on standard error how. Throws `CallFailed`, `CommandFailed`. */
export async function followOutput(
  session: Session,
  path: string,
  print: (text: string) => void,
): Promise<void> {
  let position = ''
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const before = position
    const end = await watch(session, path, position, (event) => {
      position = event.id
      print((JSON.parse(event.data) as {text: string}).text)
    })
    if (end !== null) return sayEnd(session, end, print)
    if (position !== before) tries = 0
    await pause(session.clock)
  }
  throw new CommandFailed('The connection broke off too often; follow the run again later.')
}

/**
 * `null` when the connection broke off. A refusal of the server is thrown; its silence is not, once it had
 * answered.
 */
async function watch(
  session: Session,
  path: string,
  position: string,
  heard: (event: ServerEvent) => void,
): Promise<End | null> {
  const resume = position === '' ? {} : {'last-event-id': position}
  try {
    const headers = {accept: 'text/event-stream', ...resume}
    const response = await session.client.open('GET', path, {headers})
    for await (const event of readEvents(response.body!)) {
      if (event.name === 'output') heard(event)
      if (event.name === 'end') return JSON.parse(event.data) as End
    }
    return null
  } catch (error) {
    const refused = error instanceof CallFailed && (position === '' || isFinal(error.status))
    if (refused || error instanceof SyntaxError) throw error
    return null
  }
}

/** No use in asking again. */
function isFinal(httpStatus: number | null): boolean {
  return httpStatus !== null && httpStatus < 500
}

function sayEnd(session: Session, end: End, print: (text: string) => void): void {
  print(end.foot)
  const {terminal} = session
  terminal.err(`${end.head}${end.id} ${status(terminal, end.status)}\n`)
}

function pause(clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    clock.after(AGAIN_MS, resolve)
  })
}
