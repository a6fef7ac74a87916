/** Commands that stop and continue work of the whole cluster: pause, unpause, resume. */
import type {Command} from 'commander'
import type {PauseStatusJson} from '../../wire/settings.ts'
import type {FiringStatusJson, PauseJson, ResumedJson} from '../../wire/firing.ts'
import {LONG_TIMEOUT_MS} from '../client.ts'
import {NegativeResult, CommandFailed, UsageError} from '../errors.ts'
import {type Column, relative, table, timeAndAge} from '../format.ts'
import {oneLine} from '../sanitize.ts'
import {print, printJson, type Session, type WithSession} from '../session.ts'

interface PauseOptions {
  readonly firing?: true
  readonly jobs?: string
  readonly until?: string
  readonly reason?: string
}

const JOBS_TEXT = 'With --firing: only these jobs; * in the name is any text'

export function addFiringCommands(program: Command, use: WithSession): void {
  program
    .command('pause')
    .description(
      'Pause submissions: no job can be created or replaced; jobs still run as planned. ' +
        'With --firing, pause planned times instead',
    )
    .option('--firing', 'Skip the planned times of all jobs, or of those of --jobs')
    .option('--jobs <glob>', JOBS_TEXT)
    .option('--until <time>', 'With --firing: the end, as a time or a duration such as 2h')
    .option('--reason <text>', 'With --firing: why, for others to read')
    .action(use(pause))
  program
    .command('unpause')
    .description('Resume submissions. With --firing, end a pause of planned times instead')
    .option('--firing', 'End the pause of firing of all jobs, or that of --jobs')
    .option('--jobs <glob>', 'With --firing: the pause of these jobs, as it was set')
    .action(use(unpause))
  program
    .command('resume')
    .description('Resume firing after a restored backup; other pauses are ended by unpause')
    .action(use(resume))
}

const PAUSED = `submissions are paused: no job can be created, replaced, restored or reverted
Jobs still run as planned, and can be run, enabled, disabled and deleted.
To stop planned times, use belfry pause --firing.
`

const FIRING_PAUSED = `Their planned times are skipped, and not caught up later.
Manual runs, retries and what is running continue.
`

async function pause(session: Session, options: PauseOptions): Promise<void> {
  if (isOfFiring(options)) return pauseFiring(session, options)
  const {value} = await session.client.call<PauseStatusJson>('POST', '/pause')
  print(session, value, value.paused ? PAUSED : 'submissions are not paused\n')
}

async function unpause(session: Session, options: PauseOptions): Promise<void> {
  if (isOfFiring(options)) return endPause(session, options)
  const {value} = await session.client.call<PauseStatusJson>('POST', '/unpause')
  print(session, value, `submissions are ${value.paused ? 'paused' : 'not paused'}\n`)
}

/** Throws `UsageError` for options that need `--firing`. */
function isOfFiring({firing, ...others}: PauseOptions): boolean {
  const [option] = Object.keys(others)
  if (firing === undefined && option !== undefined)
    throw new UsageError(`--${option} needs --firing: without it, submissions are paused.`)
  return firing === true
}

async function pauseFiring(
  session: Session,
  {jobs, until: end, reason}: PauseOptions,
): Promise<void> {
  const body = {jobs, until: end, reason}
  const {value} = await session.client.call<FiringStatusJson>('POST', '/firing/pause', {
    body,
  })
  const set = value.pauses.find((pause) => pause.jobs === normal(jobs))
  const until = set === undefined ? null : set.until
  const ends =
    until === null ? '' : ` until ${timeAndAge(until, session.zone, session.clock.now())}`
  print(session, value, `firing of ${named(jobs)} is paused${ends}\n${FIRING_PAUSED}`)
}

async function endPause(session: Session, {jobs}: PauseOptions): Promise<void> {
  const {value} = await session.client.call<{ended: boolean; firing: FiringStatusJson}>(
    'POST',
    '/firing/resume',
    {body: {jobs}},
  )
  if (session.json) printJson(session, value)
  else printEnd(session, jobs, value)
  if (!value.ended) throw new NegativeResult(`There is no pause of ${named(jobs)}.`)
}

function printEnd(
  session: Session,
  jobs: string | undefined,
  value: {readonly ended: boolean; readonly firing: FiringStatusJson},
): void {
  const state = value.ended
    ? `firing of ${named(jobs)} continues with the next planned times`
    : `there is no pause of ${named(jobs)}: nothing was changed`
  session.terminal.out(`${state}\n`)
  if (value.firing.store !== '')
    session.terminal.out('No job fires: the store was put back from a backup. See belfry resume.\n')
  if (value.firing.pauses.length > 0) {
    session.terminal.out(
      `${value.ended ? 'Other pauses are still' : 'These pauses are'} in force:\n`,
    )
    printPauses(session, value.firing.pauses)
  }
}

/** Glob in the spelling of the server. */
function normal(jobs = '*'): string {
  return jobs.replaceAll(/\*+/g, '*')
}

function named(jobs?: string): string {
  return normal(jobs) === '*' ? 'all jobs' : normal(jobs)
}

export function printPauses({terminal, clock}: Session, pauses: readonly PauseJson[]): void {
  const now = clock.now()
  const columns: readonly Column<PauseJson>[] = [
    {title: 'PAUSED JOBS', text: ({jobs}) => jobs},
    {title: 'ENDS', text: ({until}) => (until === null ? 'when ended' : relative(until, now))},
    {title: 'SINCE', text: ({paused_at: at}) => relative(at, now)},
    {title: 'BY', text: ({paused_by: by}) => oneLine(by)},
    {title: 'REASON', text: ({reason}) => oneLine(reason)},
  ]
  terminal.out(table(terminal, columns, pauses, 'Firing is not paused.'))
}

async function resume(session: Session): Promise<void> {
  const {value} = await session.client.call<ResumedJson>('POST', '/resume', {
    timeoutMs: LONG_TIMEOUT_MS,
  })
  if (session.json) printJson(session, value)
  else if (value.resumed)
    session.terminal.out('firing is resumed: all jobs are planned from now on\n')
  if (value.resumed) return
  // A pause that was set by a command is ended by its own command.
  const {value: status} = await session.client.call<Partial<FiringStatusJson>>('GET', '/firing')
  if ((status.pauses ?? []).length > 0)
    throw new CommandFailed(
      'Nothing was resumed: firing is paused by belfry pause --firing. End it with belfry unpause --firing.',
    )
  if (!session.json) session.terminal.out('firing was not paused by a restore, and is active\n')
}
