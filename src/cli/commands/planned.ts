/** `belfry jobs next` and `belfry schedule preview`: planned times, as the clock of their zone shows them. */
import type {Command} from 'commander'
import type {PlannedTimesJson} from '../../wire/planned.ts'
import {PLANNED_COUNT} from '../../wire/query.ts'
import {path} from '../client.ts'
import {formatDuration} from '../../lib/duration.ts'
import {relative, timeAndAge} from '../format.ts'
import {printJson, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'
import {plannedBound, plannedCount} from '../values.ts'

interface RangeOptions {
  readonly count?: number
  readonly from?: string
  readonly to?: string
}

/** Command below `belfry jobs`. */
export function addNextCommand(jobs: Command, use: WithSession): void {
  const command = jobs.command('next <name>').description('Show the next planned times of a job')
  ranged(command).action(use(next))
}

export function addScheduleCommand(program: Command, use: WithSession): void {
  const command = program
    .command('schedule')
    .description('Preview schedules')
    .command('preview <expression>')
    .description('Show the next planned times of a schedule')
    .option('--timezone <zone>', 'IANA time zone of the schedule')
    .option('--name <job>', 'Name of the job, which determines the values of "~"')
  ranged(command).action(use(preview))
}

function ranged(command: Command): Command {
  return command
    .option('--count <n>', 'Number of times (default: 10; with --to 100)', plannedCount)
    .option(
      '--from <when>',
      'From then on: a date, a time, or a duration from now, such as 30d. Without offset, in the time zone ' +
        'of the schedule',
    )
    .option('--to <when>', 'Before then')
}

function rangeOf({count, from, to}: RangeOptions, {clock}: Session) {
  const now = clock.now()
  return {count, from: plannedBound('--from', from, now), to: plannedBound('--to', to, now)}
}

async function next(session: Session, name: string, options: RangeOptions): Promise<void> {
  const {value} = await session.client.call<PlannedTimesJson>('GET', path('jobs', name, 'next'), {
    query: rangeOf(options, session),
  })
  // A server of an earlier release does not say it.
  const {reason = '', paused = false, paused_until: until} = value as Partial<PlannedTimesJson>
  printPlanned(session, value, whyNone(name, reason))
  if (session.json || !paused) return
  const end = until == null ? '' : ` until ${timeAndAge(until, session.zone, session.clock.now())}`
  const times = until == null ? 'its planned times' : 'planned times before then'
  session.terminal.err(`Firing of this job is paused${end}: ${times} are skipped.\n`)
}

/** Why a job has no planned times, as the end of a sentence; `''` = it has some. */
function whyNone(name: string, reason: PlannedTimesJson['reason']): string {
  switch (reason) {
    case '':
      return ''
    case 'disabled':
      return `: ${name} is disabled. See belfry jobs enable`
    case 'dependent':
      return `: ${name} runs after its parent job, and has no schedule of its own`
    case 'no_schedule':
      return `: ${name} has no schedule, and runs by hand only`
    case 'expired':
      return `: ${name} has expired`
    case 'ended':
      return `: the schedule of ${name} has no more times`
  }
}

async function preview(
  session: Session,
  expression: string,
  {timezone, name, ...range}: RangeOptions & {timezone?: string; name?: string},
): Promise<void> {
  const {value} = await session.client.call<PlannedTimesJson>('GET', '/schedules/preview', {
    query: {schedule: expression, timezone, name, ...rangeOf(range, session)},
  })
  printPlanned(session, value)
}

type Planned = PlannedTimesJson['planned'][number]
type Change = PlannedTimesJson['clock_changes'][number]

/** Prints a planned time per line, with the changes of the clock between them. */
function printPlanned(session: Session, value: PlannedTimesJson, why = ''): void {
  if (session.json) return printJson(session, value)
  const {terminal, utc} = session
  if (value.next.length === 0) return terminal.out(`Nothing is planned${why}.\n`)
  const now = session.clock.now()
  // A server of an earlier release sends times in UTC only.
  const {planned: sent = value.next.map(plainly), clock_changes: changes = []} =
    value as Partial<PlannedTimesJson>
  const planned = utc || value.timezone === 'UTC' ? value.next.map(plainly) : sent
  for (const [index, time] of planned.entries()) {
    const change = utc ? undefined : changeBefore(planned, index, changes)
    if (change !== undefined) terminal.out(`${toned(terminal, 'busy', changeLine(change))}\n`)
    const parts = [shownLocal(time.local), relative(time.at, now), noteOf(time)]
    terminal.out(`${parts.filter((part) => part !== '').join('  ')}\n`)
  }
  const isCut = value.more && planned.length === PLANNED_COUNT.maximum
  const more = isCut ? ' There are more: set --from.' : ''
  terminal.err(`Times are in ${utc ? 'UTC' : value.timezone}.${more}\n`)
}

function plainly(at: string): Planned {
  return {at, local: `${at.slice(0, 19)}Z`, shift: '', moved_from: ''}
}

/** The last change since the time before; none if the clock is as it was. */
function changeBefore(
  planned: readonly Planned[],
  index: number,
  changes: readonly Change[],
): Change | undefined {
  const [before, time] = [planned[index - 1], planned[index]!]
  const isSame = before === undefined ? time.shift === '' : offsetOf(before) === offsetOf(time)
  if (isSame) return undefined
  return changes.findLast(({at}) => at <= time.at && (before === undefined || at > before.at))
}

const LOCAL_LENGTH = '2027-03-28T02:00:00'.length

function offsetOf({local}: Planned): string {
  return local.slice(LOCAL_LENGTH)
}

function changeLine({at, before, after}: Change): string {
  const ms = minutesOf(after) * 60_000 - minutesOf(before) * 60_000
  const wall = new Date(Date.parse(at) + minutesOf(before) * 60_000).toISOString()
  const day = `${wall.slice(0, 10)} at ${wall.slice(11, 16)}`
  const way = ms > 0 ? 'forward' : 'back'
  return `-- clocks go ${way} ${formatDuration(Math.abs(ms))} on ${day} (${before} to ${after})`
}

function minutesOf(offset: string): number {
  const [hours = 0, minutes = 0] = offset.slice(1).split(':').map(Number)
  return (offset.startsWith('-') ? -1 : 1) * (hours * 60 + minutes)
}

const WEEKDAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat']

/** `Sun 2027-03-28 03:00:00 +02:00` */
function shownLocal(local: string): string {
  const wall = local.slice(0, LOCAL_LENGTH)
  const offset = local.slice(LOCAL_LENGTH)
  const weekday = WEEKDAYS[new Date(`${wall}Z`).getUTCDay()]!
  return `${weekday} ${wall.replace('T', ' ')}${offset === 'Z' ? '' : ' '}${offset}`
}

function noteOf({shift, local, moved_from: from}: Planned): string {
  const clock = local.slice(11, LOCAL_LENGTH)
  switch (shift) {
    case 'moved':
      return `moved: ${from.slice(11)} does not exist on this day`
    case 'first_pass':
      return `the first of two ${clock}`
    case 'second_pass':
      return `the second of two ${clock}`
    case '':
      return ''
  }
}
