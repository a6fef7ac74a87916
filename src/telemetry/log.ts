/**
 * The service log: one line an event, on standard error, for people on a terminal and as JSON everywhere
 * else. Standard output stays free for the ready line. It listens to the catalogue of events; nobody above
 * logs an event by hand.
 */
import {pino, type DestinationStream, type Logger} from 'pino'
import {prettyFactory} from 'pino-pretty'
import type {BelfryEvent, EventName, Events} from '../ports/events.ts'

const STANDARD_ERROR = 2
/** A reader that stalls costs log lines beyond this, never memory: about a minute of a very busy server. */
const BUFFERED_MAX_BYTES = 8 * 2 ** 20

/**
 * Where a secret could ride along in a logged object. Values are replaced, so that a line still shows one was
 * there.
 */
const SECRET_PATHS = ['token', 'authorization', '["x-service-token"]', '["x-dkron-token"]'].flatMap(
  (key) => {
    const under = (path: string) => (key.startsWith('[') ? path + key : `${path}.${key}`)
    return [key, under('*'), under('req.headers'), under('headers')]
  },
)

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent'

export interface LogOptions {
  readonly level: LogLevel
  /** For a person to read, rather than one JSON object a line. */
  readonly pretty: boolean
  readonly colours: boolean
  /** Stands on every line, so that the logs of several nodes can be told apart. */
  readonly node: string
  /** Standard error when not given. */
  readonly destination?: DestinationStream
}

export interface Log {
  readonly logger: Logger
  /** Writes out what is buffered; call last. */
  flush(): void
}

/**
 * Opens the service log. Lines hold `level`, `time` (RFC 3339), `on` (this node), `msg` and the event's own
 * fields.
 */
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
  const pretty = prettyFactory({
    colorize,
    ignore: 'on',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
  })
  return {write: (line) => destination.write(pretty(line))}
}

type Level = Exclude<LogLevel, 'silent' | 'trace'>

/**
 * How loud each event is: what runs well is debug, what an operator may look for later info, what may need a
 * hand warn.
 */
const LEVELS: Readonly<Record<EventName, (event: BelfryEvent) => Level | null>> = {
  job_stored: () => 'info',
  job_deleted: () => 'info',
  job_disabled: () => 'warn',
  launch_decided: (event) =>
    event.name === 'launch_decided' && event.data.decision === 'missed' ? 'info' : 'debug',
  execution_started: () => 'debug',
  execution_output: () => null,
  execution_finished: (event) =>
    event.name === 'execution_finished' && event.data.status === 'succeeded' ? 'debug' : 'info',
  execution_abandoned: () => 'warn',
  execution_changed: () => null,
  submissions_paused: () => 'info',
  term_began: () => 'info',
  term_ended: () => 'info',
  member_changed: () => 'info',
  clock_stepped: () => 'warn',
  launch_pass_done: () => null,
  store_committed: () => null,
  step_failed: () => 'error',
}

/** An outage fails every step several times a second; a line now and then says as much. */
const STEP_FAILED_EVERY_MS = 10_000

/**
 * Logs the catalogue of events. Of a step that fails again and again it writes a line every 10 s, with
 * `left_out`: how many failures of it came since the line before. Returns the function that stops it.
 */
export function logEvents(events: Events, logger: Logger): () => void {
  const isTime = stepLines()
  return events.listen((event) => {
    const level = LEVELS[event.name](event)
    if (level === null) return
    if (event.name !== 'step_failed') return logger[level](event.data, wordsOf(event))
    const {due, leftOut} = isTime(event.data.step, event.at)
    if (!due) return
    const counted = leftOut === 0 ? event.data : {...event.data, left_out: leftOut}
    logger[level](counted, wordsOf(event))
  })
}

/** Whether a failure of `step` at `at` gets a line. Steps are few and fixed, so what is kept is bounded. */
function stepLines(): (step: string, at: number) => {due: boolean; leftOut: number} {
  const lines = new Map<string, {at: number; leftOut: number}>()
  return (step, at) => {
    const last = lines.get(step)
    // A clock that was set back must not silence a step until it has caught up.
    if (last !== undefined && Math.abs(at - last.at) < STEP_FAILED_EVERY_MS) {
      last.leftOut += 1
      return {due: false, leftOut: last.leftOut}
    }
    lines.set(step, {at, leftOut: 0})
    return {due: true, leftOut: last?.leftOut ?? 0}
  }
}

function wordsOf(event: BelfryEvent): string {
  if (event.name === 'submissions_paused' && !event.data.paused) return 'submissions resumed'
  return event.name.replaceAll('_', ' ')
}
