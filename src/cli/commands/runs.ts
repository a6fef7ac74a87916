/** `belfry runs …` and `belfry busy`: what ran, what runs, and ending it. */
import type {Command} from 'commander'
import type {ExecutionJson} from '../../wire/execution.ts'
import {path} from '../client.ts'
import {followOutput} from './follow.ts'
import {PlainText} from '../sanitize.ts'
import {printJson, type Session, type Use} from '../session.ts'
import {facts, table, type Column} from '../format.ts'
import {status, toned, type Terminal} from '../terminal.ts'
import {duration, relative} from '../times.ts'

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
