/** `belfry launches` and `belfry jobs launches`: what became of planned times and requests. */
import type {Command} from 'commander'
import {endCause} from '../../core/explain/executions.ts'
import {reasonTold} from '../../core/explain/reasons.ts'
import {type Words, wordsIn} from '../../core/explain/words.ts'
import {
  type ExecutionJson,
  LAUNCH_DECISIONS,
  LAUNCH_ENDS,
  type LaunchJson,
} from '../../wire/execution.ts'
import {LAUNCH_CAUSES} from '../../core/launch-record.ts'
import {path} from '../client.ts'
import {type Column, duration, shownTime, table} from '../format.ts'
import {pages} from '../pages.ts'
import {print, type Session, type WithSession} from '../session.ts'
import {status} from '../terminal.ts'
import {oneOf, pastTimeOf, whole} from '../values.ts'

const LAUNCHES_SHOWN = 20
const DECISION = [
  '--decision <decision>',
  `Only launches with this decision: ${LAUNCH_DECISIONS.join(', ')}`,
  oneOf('--decision', LAUNCH_DECISIONS),
] as const
/** A leader decides most times within it; later is worth a look. */
const LATE_MIN_MS = 1_000

/** Lists over all jobs: flags of `belfry launches` and `belfry runs list`. */
export function withRange(command: Command): Command {
  return command
    .option('--since <when>', 'Recorded since this time, or duration before now, such as 8h')
    .option('--until <when>', 'Recorded before this time, or duration before now')
    .option('--ended-since <when>', 'Ended since then; needs --status with a bad end')
    .option('--node <name>', 'Only on this node')
}

export interface Range {
  readonly since?: string | undefined
  readonly until?: string | undefined
  readonly endedSince?: string | undefined
}

/** Parameters of the API. */
export function rangeQuery({clock}: Session, {since, until, endedSince}: Range) {
  const now = clock.now()
  return {
    since: pastTimeOf('--since', since, now),
    until: pastTimeOf('--until', until, now),
    ended_since: pastTimeOf('--ended-since', endedSince, now),
  }
}

/** Command of all jobs. */
export function addAllLaunchesCommand(program: Command, use: WithSession): void {
  withRange(
    program
      .command('launches')
      .description(
        'List the launches of all jobs, and why planned times did not run; newest first',
      ),
  )
    .option(...DECISION)
    .option('--reason <code>', 'Only with this reason code, such as no_target')
    .option(
      '--cause <cause>',
      `Only with this cause: ${LAUNCH_CAUSES.join(', ')}`,
      oneOf('--cause', LAUNCH_CAUSES),
    )
    .option('--job <glob>', "Only of these jobs, as in 'backup-*'")
    .option('--metadata <key=value>', 'Only of jobs with this metadata')
    .option(
      '--status <status>',
      `Only launches that ended so: ${LAUNCH_ENDS.join(', ')}`,
      oneOf('--status', LAUNCH_ENDS),
    )
    .option('--limit <n>', 'Maximum number of launches', whole('--limit'), LAUNCHES_SHOWN)
    .action(use(allLaunches))
}

/** Command below `belfry jobs`. */
export function addLaunchesCommand(jobs: Command, use: WithSession): void {
  jobs
    .command('launches <name>')
    .description('List the launches of a job, and why planned times did not run; newest first')
    .option(...DECISION)
    .option('--limit <n>', 'Maximum number of launches', whole('--limit'), LAUNCHES_SHOWN)
    .action(use(launches))
}

async function allLaunches(
  session: Session,
  {limit, since, until, endedSince, ...filters}: Range & {readonly limit: number},
): Promise<void> {
  const query = {...filters, ...rangeQuery(session, {since, until, endedSince})}
  const list = await pages<LaunchJson>(session, '/launches', 'launches', query, limit)
  const columns = [{title: 'JOB', text: jobOf, isName: true as const}]
  printLaunches(session, list.rows, columns, {launches: list.rows, next: list.next})
}

function jobOf({job_name: job}: LaunchJson): string {
  return job
}

async function launches(
  session: Session,
  name: string,
  options: {limit: number; decision?: string},
): Promise<void> {
  const {value} = await session.client.call<LaunchJson[]>('GET', path('jobs', name, 'launches'), {
    query: {_end: options.limit, decision: options.decision},
  })
  printLaunches(session, value, [], value)
}

function printLaunches(
  session: Session,
  value: readonly LaunchJson[],
  more: readonly Column<LaunchJson>[],
  reply: unknown,
): void {
  const {terminal, zone} = session
  const columns: readonly Column<LaunchJson>[] = [
    {title: 'LAUNCH', text: ({group}) => String(group)},
    ...more,
    {title: 'PLANNED', text: ({scheduled_at: at}) => shownTime(at, zone), isName: true},
    ...shownIf(value, {title: 'LATE', text: lateness}),
    {title: 'CAUSE', text: ({cause}) => cause, isName: true},
    {
      title: 'DECISION',
      text: ({decision}) => decision,
      shown: (text) => status(terminal, text),
      isName: true,
    },
    ...shownIf(value, {title: 'TIMES', text: ({count}) => (count === 1 ? '' : `${count}`)}),
    {title: 'RESULT', text: (row) => resultOf(row, wordsIn(zone, session.clock.now()))},
  ]
  print(session, reply, table(terminal, columns, value, 'No launches.'))
}

/** The column, if any row has a text in it. */
function shownIf(
  rows: readonly LaunchJson[],
  column: Column<LaunchJson>,
): readonly Column<LaunchJson>[] {
  return rows.some((row) => column.text(row) !== '') ? [column] : []
}

/** How long after its planned time it was launched. */
function lateness({
  cause,
  decision,
  scheduled_at: planned,
  decided_at: decided,
}: LaunchJson): string {
  if (cause !== 'schedule' || decision !== 'launched' || decided === null) return ''
  return Date.parse(decided) - Date.parse(planned) < LATE_MIN_MS ? '' : duration(planned, decided)
}

/** The only execution with its end; the number of executions with each end; why the launch has none. */
export function resultOf(launch: LaunchJson, words: Words): string {
  const {executions} = launch
  const [one] = executions
  if (one === undefined && launch.decision === 'launched' && launch.reason === '')
    return launch.status
  if (one === undefined) return reasonTold(factsOf(launch), {}, words).sentences.join(' ')
  if (executions.length === 1) return `${one.id} ${one.status}${inBrackets(endReason(one))}`
  const counts = new Map<string, number>()
  for (const {status: end} of executions) counts.set(end, (counts.get(end) ?? 0) + 1)
  return [...counts].map(([end, count]) => `${count} ${end}`).join(', ')
}

/** A launch of the API as the catalogue of sentences takes it. */
export function factsOf<
  Launch extends Pick<LaunchJson, 'job_name' | 'scheduled_at' | 'scheduled_until'> & {
    readonly decided_at?: string | null
  },
>(launch: Launch) {
  const {job_name: jobName, scheduled_at: at, scheduled_until: until, decided_at: decided} = launch
  return {
    ...launch,
    jobName,
    scheduledAt: Date.parse(at),
    scheduledUntil: Date.parse(until),
    decidedAt: decided == null ? null : Date.parse(decided),
  }
}

function inBrackets(text: string): string {
  return text === '' ? '' : ` (${text})`
}

/** The exit code of a failure, or why it is lost; `''` = the status says all. Older servers send neither. */
export function endReason(
  end: Pick<ExecutionJson, 'status'> & Partial<Pick<ExecutionJson, 'exit_code' | 'reason'>>,
): string {
  const {status, reason = '', exit_code: exitCode = null} = end
  return endCause({status, reason, exitCode})
}
