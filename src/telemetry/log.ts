/**
 * The service log: one line per event on standard error, as text on a terminal and as JSON elsewhere.
 * Standard output is reserved for the ready line. The log subscribes to the catalogue of events; no other
 * code logs events.
 */
import {createRequire} from 'node:module'
import {pino, type DestinationStream, type Logger} from 'pino'
import type {LogLevel} from '../config/values.ts'
import {type BelfryEvent, type EventLevel, type EventRow, EVENTS} from '../core/events.ts'
import type {Events} from '../ports/events.ts'
import {formatTime} from '../lib/rfc3339.ts'
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
    const level = levelOf(event)
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

function levelOf(event: BelfryEvent): EventLevel | null {
  const {log} = rowOf(event)
  return typeof log === 'function' ? log(event.data) : log
}

function messageOf(event: BelfryEvent): string {
  const {message} = rowOf(event)
  if (typeof message === 'function') return message(event.data)
  return message ?? event.name.replaceAll('_', ' ')
}

/** The row of an event takes the payload of this event. */
function rowOf({name}: BelfryEvent): EventRow<BelfryEvent['data']> {
  return EVENTS[name] as EventRow<BelfryEvent['data']>
}
