/** `belfry jobs run`: requests a run, and with `--wait` waits for the end of its launch. */
import type {LaunchJson} from '../../wire/execution.ts'
import type {JobJson} from '../../wire/job.ts'
import {path, STREAM_TIMEOUT_MS} from '../client.ts'
import {CallFailed, CommandFailed} from '../errors.ts'
import {poll} from '../poll.ts'
import {readEvents} from '../server-events.ts'
import {printJson, type Session} from '../session.ts'
import {status} from '../terminal.ts'
import {endReason} from './launches.ts'

/** Interval between two requests for the launch: a part of the time waited so far, within these bounds. */
const POLL_PART = 0.05
const POLL_MIN_MS = 100
const POLL_MAX_MS = 1_000

export async function run(
  session: Session,
  name: string,
  options: {force?: true; wait?: true},
): Promise<void> {
  const query = {force: options.force === undefined ? undefined : 'true'}
  const at = path('jobs', name, 'run')
  const {value, headers} = await session.client.call<JobJson>('POST', at, {
    query,
    once: true,
  })
  const group = headers.get('x-launch-id') ?? '?'
  const isQuiet = session.json
  if (isQuiet && options.wait === undefined)
    return printJson(session, {...value, group: Number(group)})
  if (!isQuiet) session.terminal.out(`${value.name} will run as launch ${group}\n`)
  if (options.wait === undefined) return
  const launch = await endOf(session, name, group)
  if (launch === null) {
    // An ephemeral job is deleted with its history when it succeeds, and at no other end.
    if (value.ephemeral) return session.terminal.err(`${name} succeeded and was deleted\n`)
    throw new CommandFailed(`The result of ${name} is not known: the job was deleted meanwhile.`)
  }
  if (isQuiet) printJson(session, launch)
  else
    for (const {id, status: end} of launch.executions)
      session.terminal.out(`${id} ${status(session.terminal, end)}\n`)
  if (launch.decision !== 'launched')
    throw new CommandFailed(`${name} did not run: ${launch.decision} (${launch.reason}).`)
  if (launch.status !== 'success') throw new CommandFailed(failureOf(name, launch))
}

/** Names the first execution that did not succeed, why, and the command that shows its output. */
function failureOf(name: string, {status: end, group, executions}: LaunchJson): string {
  const sentence = `${name} ${end.replaceAll('_', ' ')} in launch ${group}`
  const failed = executions.find((execution) => !execution.success)
  if (failed === undefined) return `${sentence}.`
  const why = endReason(failed)
  const output = `For its output: belfry runs output ${name} ${failed.id}`
  return `${sentence}${why === '' ? '' : ` (${why})`}. ${output}`
}

/** The launch when it has ended; `null` = the job is gone. Throws `CallFailed`. */
async function endOf(session: Session, name: string, group: string): Promise<LaunchJson | null> {
  const stop = new AbortController()
  const look = {again: () => {}}
  // A server sends the events of its own nodes and agents, and not to each token: polls find the other ends.
  void Promise.allSettled([listen(session, name, () => look.again(), stop.signal)])
  try {
    return await pollEnd(session, path('jobs', name, 'launches', group), look)
  } catch (error) {
    if (error instanceof CallFailed && error.status === 404) return null
    throw error
  } finally {
    stop.abort()
  }
}

/** Events after which a launch of the job may have ended. */
const ENDS: ReadonlySet<string> = new Set(['execution_finished', 'launch_decided', 'job_deleted'])

/** Calls `notify` when the stream is open, and for each event that may be the end. Throws `CallFailed`. */
async function listen(
  {client}: Session,
  name: string,
  notify: () => void,
  signal: AbortSignal,
): Promise<void> {
  const {body} = await client.open('GET', '/events', {
    sameServer: true,
    timeoutMs: STREAM_TIMEOUT_MS,
  })
  const bytes = body!.pipeThrough(new TransformStream<Uint8Array, Uint8Array>(), {signal})
  notify()
  for await (const {name: event, data} of readEvents(bytes))
    if (ENDS.has(event) && (JSON.parse(data) as {job?: unknown}).job === name) notify()
}

/** `look.again` ends a wait between two polls. */
async function pollEnd(
  {client, clock}: Session,
  at: string,
  look: {again: () => void},
): Promise<LaunchJson> {
  const since = clock.monotonicMs()
  let isNotified = false
  const getEnded = async () => {
    isNotified = false
    look.again = () => (isNotified = true)
    const {value} = await client.call<LaunchJson>('GET', at)
    return hasEnded(value) ? value : null
  }
  return poll(getEnded, async (failures) => {
    if (isNotified && failures === 0) return
    const partMs = failures === 0 ? (clock.monotonicMs() - since) * POLL_PART : POLL_MAX_MS
    await new Promise<void>((resolve) => {
      const timer = clock.after(Math.min(POLL_MAX_MS, Math.max(POLL_MIN_MS, partMs)), resolve)
      look.again = () => {
        timer.cancel()
        resolve()
      }
    })
  })
}

/** Throws `CommandFailed` if the server does not say. */
function hasEnded({decision, status: end}: LaunchJson): boolean {
  if (decision !== 'launched') return decision !== 'pending'
  if (end === undefined) throw new CommandFailed('--wait needs a server of this release.')
  return end !== ''
}
