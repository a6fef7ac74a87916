/** `belfry jobs …`: show jobs and change them. */
import type {Command} from 'commander'
import {LATER_FIELDS} from '../../core/job-fields.ts'
import {zoneOf} from '../../core/schedule/parse.ts'
import {findZone} from '../../core/schedule/zone.ts'
import type {JobJson} from '../../wire/job.ts'
import {JOB_STATUSES} from '../../wire/query.ts'
import {addApplyCommands} from './apply.ts'
import {addHistoryCommands} from './audit.ts'
import {addEditCommand} from './edit.ts'
import {addLaunchesCommand} from './launches.ts'
import {addNextCommand} from './planned.ts'
import {run} from './run.ts'
import {path} from '../client.ts'
import {CallFailed, CommandFailed, expectedMessage} from '../errors.ts'
import {type Column, fieldList, relative, timeAndAge} from '../format.ts'
import {confirm} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {
  print,
  printJson,
  printTable,
  printTotal,
  type Session,
  type WithSession,
} from '../session.ts'
import {status, type Terminal, toned} from '../terminal.ts'
import {oneOf, whole} from '../values.ts'

export function addJobCommands(program: Command, use: WithSession): void {
  const jobs = program
    .command('jobs')
    .description('Show jobs, their launches and their history, change and run them')
  jobs
    .command('list')
    .description('List jobs')
    .option('-q, --query <text>', 'Only jobs whose name or display name contains the text')
    .option(
      '--status <status>',
      'Only jobs that are success, failed, partially_failed or untriggered',
      oneOf('--status', JOB_STATUSES),
    )
    .option('--limit <n>', 'Maximum number of jobs', whole('--limit'))
    .action(use(list))
  jobs.command('show <name>').description('Show one job').action(use(show))
  addApplyCommands(jobs, use)
  jobs
    .command('run <name>')
    .description('Run a job now')
    .option('--force', 'Run even if concurrency is "forbid" and another launch is open')
    .option('--wait', 'Wait for the end; exit code 0 if all of its executions succeed, else 1')
    .action(use(run))
  jobs
    .command('enable <names...>')
    .description('Enable jobs; no change if they are')
    .action(use((session, names: string[]) => switchJobs(session, names, 'enable')))
  jobs
    .command('disable <names...>')
    .description('Disable jobs: they get no planned times, and can be run by hand')
    .action(use((session, names: string[]) => switchJobs(session, names, 'disable')))
  jobs
    .command('toggle <name>')
    .description('Enable a job that is disabled, disable one that is enabled')
    .action(use(toggle))
  jobs
    .command('delete <names...>')
    .description('Delete jobs and their history')
    .option('--yes', 'Do not ask')
    .action(use(remove))
  addEditCommand(jobs, use)
  addNextCommand(jobs, use)
  addLaunchesCommand(jobs, use)
  addHistoryCommands(jobs, use)
}

async function list(
  session: Session,
  options: {query?: string; status?: string; limit?: number},
): Promise<void> {
  const query = {q: options.query, status: options.status, _end: options.limit}
  const {value, headers} = await session.client.call<JobJson[]>('GET', '/jobs', {query})
  const {terminal} = session
  const now = session.clock.now()
  printTable(session, jobColumns(terminal, now), value, 'No jobs.')
  printTotal(session, headers, value.length, 'jobs')
}

function jobColumns(terminal: Terminal, now: number): readonly Column<JobJson>[] {
  return [
    {title: 'NAME', text: (job) => job.name, shown: (text) => toned(terminal, 'strong', text)},
    {title: 'SCHEDULE', text: scheduleOf},
    {title: 'NEXT', text: (job) => stateOf(job) || relative(job.next, now), isWhole: true},
    {
      title: 'STATUS',
      text: (job) => (job.waits_for_node === true ? 'waits for a node' : job.status),
      shown: (text) => status(terminal, text),
    },
    {title: 'OK', text: (job) => String(job.success_count)},
    {title: 'ERRORS', text: (job) => String(job.error_count)},
    {title: 'LAST OK', text: (job) => relative(job.last_success, now), isDispensable: true},
    {title: 'LAST ERROR', text: (job) => relative(job.last_error, now), isDispensable: true},
  ]
}

/** Why planned times do not run; `''` = they do. */
function stateOf(job: JobJson): string {
  if (job.disabled) return 'disabled'
  return job.firing_paused === true ? 'paused' : ''
}

function scheduleOf(job: JobJson): string {
  return job.parent_job === '' ? job.schedule : `after ${job.parent_job}`
}

async function show(session: Session, name: string): Promise<void> {
  const {value: job} = await session.client.call<JobJson>('GET', path('jobs', name))
  if (session.json) return printJson(session, job)
  const {terminal} = session
  const now = session.clock.now()
  const when = (time: string | null) => timeAndAge(time, session.zone, now)
  const map = (values: Readonly<Record<string, string>>) =>
    Object.entries(values).map(([key, value]) => oneLine(`${key}=${value}`))
  const optional: readonly (readonly [string, string])[] = [
    ['display name', oneLine(job.displayname)],
    ['time zone', job.timezone],
    ['owner', oneLine(`${job.owner} ${job.owner_email}`)],
    ['tags', map(job.tags).join(', ')],
    ['metadata', map(job.metadata).join(', ')],
    ['dependents', job.dependent_jobs.join(', ')],
    ['processors', Object.keys(job.processors).join(', ')],
    ['starts', job.starts_at === null ? '' : when(job.starts_at)],
    ['expires', job.expires_at === null ? '' : when(job.expires_at)],
  ]
  terminal.out(
    fieldList(terminal, [
      ['name', toned(terminal, 'strong', job.name)],
      ['schedule', oneLine(scheduleOf(job))],
      ['next', shownNext(job, session)],
      ['status', status(terminal, job.status === '' ? 'never finished' : job.status)],
      ...(job.waits_for_node === true ? [['waiting', WAITS] as const] : []),
      ['succeeded', `${job.success_count}, last ${when(job.last_success)}`],
      ['failed', `${job.error_count}, last ${when(job.last_error)}`],
      ['executor', job.executor],
      ...Object.entries(job.executor_config).map(
        ([parameter, text]) => [`  ${oneLine(parameter)}`, oneLine(text)] as const,
      ),
      ['concurrency', job.concurrency],
      ['retries', String(job.retries)],
      ['catch up', `${job.catch_up}, at most ${job.max_lateness} late`],
      ...optional.filter(([, text]) => text !== ''),
      ...laterFields(job),
    ]),
  )
}

/** Fields that are absent when unset, by their name in the API. */
function laterFields(job: JobJson): readonly (readonly [string, string])[] {
  const values: Readonly<Record<string, unknown>> = job
  return LATER_FIELDS.filter(({wire}) => values[wire] !== undefined).map(({wire}) => {
    const value = values[wire]
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return [wire.replaceAll('_', ' '), oneLine(text)]
  })
}

const WAITS = 'a launch waits for a node that matches the tags'

function shownNext(job: JobJson, session: Session): string {
  const state = stateOf(job)
  if (state !== 'paused') return state || nextOf(job, session)
  return `paused: ${nextOf(job, session)} will be skipped`
}

/** Next time in the zone of the schedule, with its name if that is not the zone of all other times. */
function nextOf(job: JobJson, {zone, utc, clock}: Session): string {
  const own = utc ? '' : zoneOf(job.schedule, job.timezone)
  const isOther = own !== '' && own !== zone && findZone(own) !== null
  const time = timeAndAge(job.next, isOther ? own : zone, clock.now())
  return isOther ? time.replace(' (', ` ${own} (`) : time
}

async function toggle(session: Session, name: string): Promise<void> {
  const {value} = await session.client.call<JobJson>('POST', path('jobs', name, 'toggle'))
  print(session, value, switchedText(value))
}

/** An error about one job does not keep the others from their change. */
async function switchJobs(
  session: Session,
  names: readonly string[],
  verb: 'enable' | 'disable',
): Promise<void> {
  await forEach(session, names, `${verb}d`, async (name) => {
    const {value} = await session.client.call<JobJson>('POST', path('jobs', name, verb))
    if (!session.json) session.terminal.out(switchedText(value))
    return value
  })
}

/** Changes one job after the other. `done` is the past tense of the change. */
async function forEach(
  session: Session,
  names: readonly string[],
  done: string,
  change: (name: string) => Promise<JobJson>,
): Promise<void> {
  const changed: JobJson[] = []
  const failures: string[] = []
  let first: CallFailed | null = null
  for (const name of names) {
    try {
      changed.push(await change(name))
    } catch (error) {
      const message = expectedMessage(error)
      if (message === null || names.length === 1) throw error
      if (error instanceof CallFailed) first ??= error
      failures.push(`${oneLine(name)} was not ${done}: ${message}`)
    }
  }
  if (session.json) printJson(session, changed)
  if (failures.length === 0) return
  const message = failures.join('\n')
  if (first === null) throw new CommandFailed(message)
  throw new CallFailed(message, first.status, {code: first.code, cause: first})
}

function switchedText({name, disabled}: JobJson): string {
  return `${name} is ${disabled ? 'disabled' : 'enabled'}\n`
}

async function remove(
  session: Session,
  names: readonly string[],
  options: {yes?: true},
): Promise<void> {
  const shown = names.map(oneLine).join(', ')
  const question =
    names.length === 1
      ? `Delete the job ${shown} and its history?`
      : `Delete the jobs ${shown} and their history?`
  await confirm(session.terminal, question, options)
  await forEach(session, names, 'deleted', async (name) => {
    const {value} = await session.client.call<JobJson>('DELETE', path('jobs', name))
    if (!session.json) session.terminal.out(`deleted ${value.name}\n`)
    return value
  })
}
