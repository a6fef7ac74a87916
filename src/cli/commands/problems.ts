/** `belfry problems`: what went wrong over all jobs, whether it is over, and the next command to try. */
import type {Command} from 'commander'
import {counted, listed, type Words, wordsIn} from '../../core/explain/words.ts'
import type {ProblemJson, ProblemsJson} from '../../wire/problems.ts'
import {parseLength} from '../../lib/duration.ts'
import {NegativeResult} from '../errors.ts'
import {shownTime} from '../format.ts'
import {pages} from '../pages.ts'
import {oneLine} from '../sanitize.ts'
import {printJson, type Session, type WithSession} from '../session.ts'
import {type Tone, toned} from '../terminal.ts'
import {pastTimeOf, whole} from '../values.ts'

const SHOWN = 100

interface Options {
  readonly since?: string
  readonly until?: string
  readonly job?: string
  readonly metadata?: string
  readonly open?: true
  readonly limit: number
}

export function addProblemsCommand(program: Command, use: WithSession): void {
  program
    .command('problems')
    .description(
      'Show what failed, did not run, waits or was late, by cause; exit code 1 while something is not over',
    )
    .option('--since <when>', 'Since this time, or duration before the end (default: 8h)')
    .option('--until <when>', 'Until this time, or duration before now (default: now)')
    .option('--job <glob>', "Only of these jobs, as in 'backup-*'")
    .option('--metadata <key=value>', 'Only of jobs with this metadata')
    .option('--open', 'Only what is not over')
    .option('--limit <n>', 'Maximum number of problems', whole('--limit'), SHOWN)
    .action(use(problems))
}

async function problems(session: Session, {limit, ...options}: Options): Promise<void> {
  const now = session.clock.now()
  const {since, until, job, metadata, open} = options
  const query = {
    job,
    metadata,
    open: open === undefined ? undefined : 'true',
    // The server counts a duration from the end of the range.
    since: parseLength(since ?? '') === null ? pastTimeOf('--since', since, now) : since,
    until: pastTimeOf('--until', until, now),
  }
  const {rows, first, next} = await pages<ProblemJson, ProblemsJson>(
    session,
    '/problems',
    'problems',
    query,
    limit,
  )
  const reply = {...first, problems: [...rows], next}
  if (session.json) printJson(session, reply)
  else printAll(session, reply)
  if (reply.not_over > 0) throw new NegativeResult('problems that are not over')
}

function printAll(session: Session, reply: ProblemsJson): void {
  const {terminal, zone} = session
  const {problems: rows, on_purpose: onPurpose, not_over: notOver} = reply
  const words = wordsIn(zone, session.clock.now())
  const line = (text: string) => terminal.out(`${oneLine(text)}\n`)
  const since = `since ${shownTime(reply.from, zone)}`
  const until = Date.parse(reply.to) < session.clock.now() - A_MOMENT_MS
  const range = until ? `${since} until ${shownTime(reply.to, zone)}` : since
  if (rows.length === 0) line(`No problems ${range}.`)
  else {
    const more = reply.next === null ? '' : ' or more'
    const title = `${counted(rows.length, 'problem')}${more} ${range}, ${notOver} not over`
    terminal.out(`${toned(terminal, notOver > 0 ? 'bad' : 'good', oneLine(title))}\n`)
  }
  const sections: readonly (readonly [string, Tone, readonly ProblemJson[]])[] = [
    ['NOT OVER', 'bad', rows.filter(({over}) => !over)],
    ['OVER', 'good', rows.filter(({over}) => over)],
    ['ON PURPOSE', 'faint', onPurpose],
  ]
  for (const [title, tone, shown] of sections) {
    if (shown.length === 0) continue
    terminal.out(`\n${toned(terminal, tone, title)}\n`)
    for (const problem of shown) printProblem(session, problem, words)
  }
  if (rows.length + onPurpose.length > 0) terminal.out('\n')
  if (reply.partial)
    line(
      'Not complete: there are more rows than one request reads. Use a shorter --since, or --job.',
    )
  if (Date.parse(reply.oldest) > Date.parse(reply.from))
    line(
      `Older rows of some of these jobs are not kept: complete since ${shownTime(reply.oldest, zone)}.`,
    )
  if (reply.next !== null) line('There are more problems: use --limit, or --job.')
}

/** The reply was on its way for less. */
const A_MOMENT_MS = 60_000
const KIND_WIDTH = 'disabled'.length

function printProblem({terminal}: Session, problem: ProblemJson, words: Words): void {
  const {kind, over, sentence, advice} = problem
  const word = kind === 'on_purpose' ? (PURPOSES[problem.code] ?? 'skipped') : kind
  const tone = kind === 'on_purpose' || over ? 'faint' : 'strong'
  const lines = [
    sentence,
    detailOf(problem, words),
    textIn(problem, 'last_line', 'Last line of its output: '),
    advice,
    over ? '' : commandOf(problem),
  ].filter((text) => text !== '')
  lines.forEach((text, index) => {
    const start =
      index === 0 ? toned(terminal, tone, word.padEnd(KIND_WIDTH)) : ' '.repeat(KIND_WIDTH)
    terminal.out(`  ${start}  ${oneLine(text)}\n`)
  })
}

const PURPOSES: Readonly<Record<string, string>> = {
  disabled: 'disabled',
  firing_paused: 'paused',
  outside_window: 'window',
  edited: 'edited',
}

/** Jobs, counts and times. */
function detailOf(problem: ProblemJson, words: Words): string {
  const {kind, jobs, jobs_total: total, planned_times: times, since, until, over, cause} = problem
  const at = (time: string) => words.time(Date.parse(time))
  const noun = kind === 'failed' || kind === 'lost' ? 'launch' : 'planned time'
  const number = kind === 'failed' ? launchOf(problem) : null
  const dependents = Number(cause['dependents'] ?? 0)
  const end = !over && typeof cause['until_at'] === 'string' ? `until ${at(cause['until_at'])}` : ''
  return [
    ...(total === 0
      ? []
      : [total === 1 ? jobs[0]! : `${counted(total, 'job')} (${namesOf(problem)})`]),
    ...(times === 0
      ? []
      : times === 1 && number !== null
        ? [`launch ${number}`]
        : [plural(times, noun)]),
    over && until !== null
      ? timesOf(at(since), at(until))
      : kind === 'failed' && times === 1
        ? `at ${at(since)}`
        : `since ${at(since)}`,
    ...(end === '' ? [] : [end]),
    ...(dependents === 0 ? [] : [`${counted(dependents, 'dependent')} did not run`]),
  ].join(', ')
}

function timesOf(since: string, until: string): string {
  return since === until ? `at ${since}` : `${since} to ${until}`
}

function namesOf({jobs, jobs_total: total}: ProblemJson): string {
  const names = listed(jobs)
  return total > jobs.length ? `${jobs.slice(0, 5).join(', ')} and ${total - 5} more` : names
}

function plural(count: number, noun: string): string {
  return noun === 'launch' && count !== 1 ? counted(count, 'launche') : counted(count, noun)
}

function textIn({cause}: ProblemJson, field: string, before: string): string {
  const text = cause[field]
  return typeof text === 'string' && text !== '' ? `${before}${text}` : ''
}

function launchOf({cause, launches}: ProblemJson): number | null {
  const launch = cause['launch'] ?? launches[0]
  return typeof launch === 'number' ? launch : null
}

/** The command that says more. */
function commandOf(problem: ProblemJson): string {
  const {kind, code, cause, jobs} = problem
  const [job] = jobs
  const launch = launchOf(problem)
  if (kind === 'on_purpose') return ''
  if (code === 'notices_failing') return `belfry notice test ${String(cause['channel'])}`
  if (kind === 'failed' && launch !== null && cause['dependents'] !== undefined)
    return `belfry trace ${launch}`
  if (job === undefined || kind === 'cluster') return 'belfry status'
  const isOfLaunch = (kind === 'failed' || kind === 'lost') && launch !== null
  return `belfry explain ${job}${isOfLaunch ? ` --launch ${launch}` : ''}`
}
