/**
 * The service log: one line per event on standard error, as text on a terminal and as JSON elsewhere.
 * Standard output is reserved for the ready line. The log subscribes to the catalogue of events; no other
 * code logs events.
 */
import {createRequire} from 'node:module'
import {pino, type DestinationStream, type Logger} from 'pino'
import type {LogLevel} from '../config/values.ts'
import {formatDuration} from '../lib/duration.ts'
import type {BelfryEvent, EventName, EventPayloads, Events} from '../ports/events.ts'
import {formatTime} from '../wire/time.ts'
import {LaunchLines} from './launch-lines.ts'

const STANDARD_ERROR = 2
/** If the reader of standard error stalls, lines beyond this are dropped: a minute of a very busy server. */
const BUFFERED_MAX_BYTES = 8 * 2 ** 20

/** Paths of possible secrets in logged objects. The value is replaced, so the line shows that it was set. */
const SECRET_PATHS = ['token', 'authorization', '["x-service-token"]', '["x-dkron-token"]'].flatMap(
  (key) => {
    const under = (path: string) => (key.startsWith('[') ? path + key : `${path}.${key}`)
    return [key, under('*'), under('req.headers'), under('headers')]
  },
)

export interface LogOptions {
  readonly level: LogLevel
  /** Text for people instead of one JSON object per line. */
  readonly pretty: boolean
  readonly colours: boolean
  /** Part of every line, to distinguish the logs of several nodes. */
  readonly node: string
  /** Default: standard error. */
  readonly destination?: DestinationStream
}

export interface Log {
  readonly logger: Logger
  /** Writes buffered lines; call last. */
  flush(): void
}

/** Lines have `level`, `time` (RFC 3339), `on` (this node), `msg` and the fields of the event. */
export function openLog(options: LogOptions): Log {
  const buffered =
    options.destination === undefined
      ? pino.destination({
          fd: STANDARD_ERROR,
          sync: options.pretty,
          maxLength: BUFFERED_MAX_BYTES,
        })
      : null
  const target = buffered ?? options.destination!
  const destination = options.pretty ? prettyOver(target, options.colours) : target
  const logger = pino(
    {
      level: options.level,
      base: {on: options.node},
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {level: (label) => ({level: label})},
      redact: {paths: SECRET_PATHS, censor: '[secret]'},
    },
    destination,
  )
  return {logger, flush: () => buffered?.flushSync()}
}

function prettyOver(destination: DestinationStream, colorize: boolean): DestinationStream {
  // Loaded on terminals only: it takes as long to load as pino itself.
  const {prettyFactory} = createRequire(import.meta.url)(
    'pino-pretty',
  ) as typeof import('pino-pretty')
  const pretty = prettyFactory({
    colorize,
    ignore: 'on',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
  })
  return {write: (line) => destination.write(pretty(line))}
}

export type Level = Exclude<LogLevel, 'silent' | 'trace'>

/** debug: normal operation. info: events that an operator may look for later. warn: may need intervention. */
const LEVELS: Readonly<Record<EventName, (event: BelfryEvent) => Level | null>> = {
  job_stored: () => 'info',
  job_deleted: () => 'info',
  job_disabled: () => 'warn',
  job_undecided: () => 'error',
  // `LaunchLines` raises some to info.
  launch_decided: () => 'debug',
  execution_started: () => 'debug',
  execution_output: () => null,
  execution_finished: (event) =>
    event.name === 'execution_finished' && event.data.status === 'succeeded' ? 'debug' : 'info',
  execution_abandoned: () => 'warn',
  execution_changed: () => null,
  submissions_paused: () => 'info',
  timezone_changed: () => 'info',
  firing_paused: () => 'info',
  firing_resumed: () => 'info',
  term_began: () => 'info',
  term_ended: () => 'info',
  member_changed: () => 'info',
  scheduling_changed: () => 'info',
  clock_stepped: () => 'warn',
  clock_differs: () => 'warn',
  clock_held: () => 'warn',
  clock_was_wrong: () => 'warn',
  certificate_expires: () => 'warn',
  backup_made: () => 'info',
  backup_failed: () => 'error',
  launch_pass_done: () => null,
  store_committed: () => null,
  settings_reloaded: () => 'info',
  reload_failed: () => 'error',
  step_failed: () => 'error',
}

/** Rate limit: during an outage, every step fails several times per second. */
const STEP_FAILED_EVERY_MS = 10_000

/**
 * Logs the catalogue of events. A step that fails repeatedly is logged once per 10 s; `left_out` counts its
 * failures since the previous line. Returns the function that unsubscribes.
 */
export function logEvents(events: Events, logger: Logger): () => void {
  const rateLimit = stepRateLimit()
  const launches = new LaunchLines()
  return events.listen((event) => {
    const line = event.name === 'launch_decided' ? launches.lineOf(event.data) : null
    if (line !== null) return logger.info({...fieldsOf(event), ...line.fields}, line.message)
    const level = LEVELS[event.name](event)
    if (level === null || !logger.isLevelEnabled(level)) return
    if (event.name !== 'step_failed') return logger[level](fieldsOf(event), messageOf(event))
    const {due, leftOut} = rateLimit(event.data.step, event.at)
    if (!due) return
    const counted = leftOut === 0 ? event.data : {...event.data, left_out: leftOut}
    logger[level](counted, messageOf(event))
  })
}

/** Decides whether a failure is logged. Its memory is bounded, because steps are few and fixed. */
function stepRateLimit(): (step: string, at: number) => {due: boolean; leftOut: number} {
  const lines = new Map<string, {at: number; leftOut: number}>()
  return (step, at) => {
    const last = lines.get(step)
    // Absolute, so a clock that is set back does not extend the limit until it has caught up.
    if (last !== undefined && Math.abs(at - last.at) < STEP_FAILED_EVERY_MS) {
      last.leftOut += 1
      return {due: false, leftOut: last.leftOut}
    }
    lines.set(step, {at, leftOut: 0})
    return {due: true, leftOut: last?.leftOut ?? 0}
  }
}

/** Instants are RFC 3339, as in the stream of events. */
function fieldsOf(event: BelfryEvent): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(event.data).map(([key, value]: [string, unknown]) => {
      const isInstant = key.endsWith('_at') && typeof value === 'number'
      return [key, isInstant ? formatTime(value) : value]
    }),
  )
}

type Messages = {readonly [Name in EventName]?: (data: EventPayloads[Name]) => string}

/** Where the name of the event alone would not say what happened. */
const MESSAGES: Messages = {
  job_stored: ({created}) => (created ? 'job created' : 'job changed'),
  job_disabled: () => 'job disabled by Belfry',
  job_undecided: () => 'the planned times of a job cannot be decided',
  execution_finished: ({status}) => `execution ended: ${status}`,
  execution_abandoned: () => 'execution ended by its node without a request',
  submissions_paused: ({paused}) => (paused ? 'submissions paused' : 'submissions resumed'),
  term_began: () => 'this server leads now',
  term_ended: () => 'this server leads no longer',
  member_changed: ({node, status}) =>
    `node ${node} ${status === 'left' || status === 'failed' ? 'has' : 'is'} ${status}`,
  clock_stepped: () => 'the clock of this machine jumped',
  clock_differs: ({by_ms: byMs}) =>
    `the clock of this machine is ${formatDuration(Math.round(Math.abs(byMs) / 1_000) * 1_000)} ` +
    `${byMs > 0 ? 'ahead of' : 'behind'} that of the store. Set it by a time service`,
  clock_held: () => 'the clock of the store jumped ahead; later planned times wait',
  certificate_expires: ({setting, days_left: days}) =>
    days < 0
      ? `the certificate of ${setting} has expired`
      : `the certificate of ${setting} expires soon`,
  backup_made: () => 'scheduled backup made',
  backup_failed: () => 'scheduled backup failed; it is tried again in 10 minutes',
  clock_was_wrong: () => 'a wrong clock has decided planned times in the future; those jobs wait',
}

function messageOf(event: BelfryEvent): string {
  const message = MESSAGES[event.name] as ((data: BelfryEvent['data']) => string) | undefined
  return message?.(event.data) ?? event.name.replaceAll('_', ' ')
}
