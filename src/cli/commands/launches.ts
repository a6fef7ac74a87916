/** `belfry jobs launches`: what became of planned times and requests. */
import type {Command} from 'commander'
import {endCause} from '../../core/explain/executions.ts'
import {reasonTold} from '../../core/explain/reasons.ts'
import {type Words, wordsIn} from '../../core/explain/words.ts'
import {type ExecutionJson, LAUNCH_DECISIONS, type LaunchJson} from '../../wire/execution.ts'
import {path} from '../client.ts'
import {type Column, duration, shownTime} from '../format.ts'
import {printTable, type Session, type WithSession} from '../session.ts'
import {status} from '../terminal.ts'
import {oneOf, whole} from '../values.ts'

const LAUNCHES_SHOWN = 20
/** A leader decides most times within it; later is worth a look. */
const LATE_MIN_MS = 1_000

/** Command below `belfry jobs`. */
export function addLaunchesCommand(jobs: Command, use: WithSession): void {
  jobs
    .command('launches <name>')
    .description('List the launches of a job, and why planned times did not run; newest first')
    .option(
      '--decision <decision>',
      `Only launches with this decision: ${LAUNCH_DECISIONS.join(', ')}`,
      oneOf('--decision', LAUNCH_DECISIONS),
    )
    .option('--limit <n>', 'Maximum number of launches', whole('--limit'), LAUNCHES_SHOWN)
    .action(use(launches))
}

async function launches(
  session: Session,
  name: string,
  options: {limit: number; decision?: string},
): Promise<void> {
  const {value} = await session.client.call<LaunchJson[]>('GET', path('jobs', name, 'launches'), {
    query: {_end: options.limit, decision: options.decision},
  })
  const {terminal, zone} = session
  const columns: readonly Column<LaunchJson>[] = [
    {title: 'LAUNCH', text: ({group}) => String(group)},
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
  printTable(session, columns, value, 'No launches.')
}

/** Only if it says something in a row. */
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

/** The execution, or how many ended how; why, if there is none. */
export function resultOf(launch: LaunchJson, words: Words): string {
  const {executions} = launch
  const [one] = executions
  if (one === undefined) return reasonTold(factsOf(launch), {}, words).sentences.join(' ')
  if (executions.length === 1) return `${one.id} ${one.status}${inBrackets(endReason(one))}`
  const counts = new Map<string, number>()
  for (const {status: end} of executions) counts.set(end, (counts.get(end) ?? 0) + 1)
  return [...counts].map(([end, count]) => `${count} ${end}`).join(', ')
}

function factsOf({
  scheduled_at: at,
  scheduled_until: until,
  decided_at: decided,
  ...rest
}: LaunchJson) {
  return {
    ...rest,
    jobName: rest.job_name,
    scheduledAt: Date.parse(at),
    scheduledUntil: Date.parse(until),
    decidedAt: decided === null ? null : Date.parse(decided),
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
