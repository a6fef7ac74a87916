/**
 * The node's end of the process helper: starts it, hands it commands, gives their output to the sinks and
 * passes the sinks' pressure back, so that the node itself never forks and never holds more than a window
 * of each output. A helper that dies takes its executions with it: they end failed, what they left running
 * is ended, and another is started.
 */
import {type ChildProcess, spawn} from 'node:child_process'
import type {Duplex} from 'node:stream'
import {fileURLToPath} from 'node:url'
import {assert} from '../../lib/assert.ts'
import type {OutputSink} from '../../ports/executor.ts'
import type {Clock} from '../../ports/runtime.ts'
import {endOrphans} from './orphans.ts'
import {
  type CommandEnd,
  CREDIT_LUMP_BYTES,
  decodeJson,
  encodeCredit,
  encodeFrame,
  encodeJson,
  FRAME,
  FrameReader,
  type HelperReady,
  type HelperSetup,
  type StartRequest,
} from './protocol.ts'

/** Between two starts of a helper that dies: doubled up to the second number. */
const RESTART_MS = 100
const RESTART_MS_MAX = 10_000

/** A helper that has not answered by then is taken for broken. */
const READY_MS = 15_000

/** What an orderly end may take beyond the grace of the commands, before the helper is killed. */
const STOP_MARGIN_MS = 5_000

const NOTHING = new Uint8Array(0)

export interface HelperOptions extends HelperSetup {
  readonly clock: Clock
  /** Told, in a sentence, what went wrong and could not be told to an execution. */
  readonly report: (sentence: string) => void
}

/** One command in the hands of the helper. */
export interface CommandHandle {
  cancel(): void
  kill(): void
  /** Settles exactly once; never rejects. */
  readonly ended: Promise<CommandEnd>
}

interface Held {
  readonly request: StartRequest
  readonly feed: CreditedSink
  readonly settle: (end: CommandEnd) => void
  sent: boolean
}

type State = 'idle' | 'starting' | 'ready' | 'stopping' | 'stopped'

export class ProcessHelper {
  readonly #options: HelperOptions
  readonly #held = new Map<number, Held>()
  #state: State = 'idle'
  #child: ChildProcess | null = null
  #link: Duplex | null = null
  #next = 1
  #corked = false
  #restartMs = RESTART_MS
  #ready: HelperReady | null = null
  #whenReady: ((error: Error | null) => void)[] = []

  constructor(options: HelperOptions) {
    this.#options = options
  }

  /** How commands are started; `null` before the first helper was ready. */
  get spawnUsed(): HelperReady | null {
    return this.#ready
  }

  /** The helper's pid; `null` while there is none. */
  get pid(): number | null {
    return this.#child?.pid ?? null
  }

  /** Starts the helper. Rejects when it cannot be started; later deaths are mended silently. */
  start(): Promise<void> {
    assert(this.#state === 'idle', 'a process helper is started once')
    const first = this.#untilReady()
    this.#launch()
    return first
  }

  #untilReady(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#whenReady.push((error) => (error === null ? resolve() : reject(error)))
    })
  }

  run(request: StartRequest, output: OutputSink): CommandHandle {
    const execution = this.#next++
    let settle: (end: CommandEnd) => void = () => undefined
    const ended = new Promise<CommandEnd>((resolve) => {
      settle = resolve
    })
    const feed = new CreditedSink(output, (bytes) => {
      if (this.#held.has(execution)) this.#send(encodeCredit(execution, bytes))
    })
    const held: Held = {request, feed, settle, sent: false}
    this.#held.set(execution, held)
    if (this.#state === 'ready') this.#sendStart(execution, held)
    else if (this.#state === 'stopping' || this.#state === 'stopped') {
      this.#settle(execution, failure('this node is stopping'))
    }
    return {
      cancel: () => this.#end(execution, FRAME.cancel),
      kill: () => this.#end(execution, FRAME.kill),
      ended,
    }
  }

  #end(execution: number, kind: number): void {
    const held = this.#held.get(execution)
    if (held === undefined) return
    if (held.sent) this.#send(encodeFrame(kind, execution, NOTHING))
    else this.#settle(execution, {...failure(''), ending: kind === FRAME.kill ? 'kill' : 'cancel'})
  }

  #sendStart(execution: number, held: Held): void {
    held.sent = true
    this.#send(encodeJson(FRAME.start, execution, held.request))
  }

  /** Ends every command, then the helper. Idempotent; resolves when the helper is gone. */
  stop(): Promise<void> {
    const child = this.#child
    if (child === null) {
      this.#state = 'stopped'
      this.#failAll('this node is stopping', () => true)
      return Promise.resolve()
    }
    if (this.#state !== 'stopping') {
      this.#state = 'stopping'
      this.#send(encodeFrame(FRAME.stop, 0, NOTHING))
      this.#failAll('this node is stopping', (held) => !held.sent)
    }
    const {clock, killAfterMs} = this.#options
    const timer = clock.after(killAfterMs + STOP_MARGIN_MS, () => child.kill('SIGKILL'))
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel()
        resolve()
      }
      if (child.exitCode !== null || child.signalCode !== null) done()
      else child.once('exit', done)
    })
  }

  #launch(): void {
    this.#state = 'starting'
    const {clock, report: _, ...setup} = this.#options
    // A packed Belfry has the same file with its types stripped.
    const extension = import.meta.filename.endsWith('.ts') ? 'ts' : 'js'
    const entry = fileURLToPath(new URL(`./helper/main.${extension}`, import.meta.url))
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', entry], {
      // A session of its own: a Ctrl-C in the node's terminal is the node's to answer.
      detached: true,
      env: {...setup.environment},
      stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
    })
    const link = child.stdio[3] as Duplex
    this.#child = child
    this.#link = link
    const reader = new FrameReader((kind, execution, payload) =>
      this.#onFrame(kind, execution, payload),
    )
    link.on('data', (chunk: Buffer) => reader.push(chunk))
    link.on('error', () => undefined) // the exit of the helper tells all there is to tell
    const late = clock.after(READY_MS, () => {
      if (this.#state === 'starting') child.kill('SIGKILL')
    })
    let gone = false
    const onGone = (why: string): void => {
      late.cancel()
      if (!gone) this.#onGone(why)
      gone = true
    }
    child.once('error', (error) => onGone(error.message))
    // `close` comes after the last frame was read.
    child.once('close', (code, signal) => onGone(signal ?? `exit status ${code}`))
    this.#send(encodeJson(FRAME.setup, 0, setup))
  }

  #send(frame: Uint8Array): void {
    const link = this.#link
    if (link === null || link.destroyed) return
    if (!this.#corked) {
      this.#corked = true
      link.cork()
      process.nextTick(() => {
        this.#corked = false
        link.uncork()
      })
    }
    link.write(frame)
  }

  #onFrame(kind: number, execution: number, payload: Buffer): void {
    if (kind === FRAME.output) this.#onOutput(execution, payload)
    else if (kind === FRAME.ended) this.#settle(execution, decodeJson<CommandEnd>(payload))
    else if (kind === FRAME.ready) this.#onReady(decodeJson<HelperReady>(payload))
  }

  #onReady(ready: HelperReady): void {
    this.#ready = ready
    this.#restartMs = RESTART_MS
    for (const tell of this.#whenReady.splice(0)) tell(null)
    if (this.#state !== 'starting') return
    this.#state = 'ready'
    for (const [execution, held] of this.#held) {
      if (!held.sent) this.#sendStart(execution, held)
    }
  }

  #onOutput(execution: number, payload: Buffer): void {
    const held = this.#held.get(execution)
    // A small piece is copied: the sink may keep it, and would keep all of the chunk it lies in.
    const fillsItsChunk = 2 * payload.length >= payload.buffer.byteLength
    held?.feed.push(fillsItsChunk ? payload : new Uint8Array(payload))
  }

  #settle(execution: number, end: CommandEnd): void {
    const held = this.#held.get(execution)
    if (held === undefined) return
    this.#held.delete(execution)
    held.settle(end)
  }

  #failAll(why: string, which: (held: Held) => boolean): void {
    for (const [execution, held] of this.#held) {
      if (which(held)) this.#settle(execution, failure(why))
    }
  }

  /**
   * The helper died. What it ran is ended by its journal before the ends are told: a retry must find the
   * field clear.
   */
  #onGone(why: string): void {
    const wasReady = this.#state === 'ready' || this.#state === 'stopping'
    const isStopping = this.#state === 'stopping'
    this.#child = null
    this.#link = null
    if (this.#state !== 'stopped') this.#state = isStopping ? 'stopped' : 'starting'
    const {clock, directory, nodeId, report} = this.#options
    if (!isStopping) report(`the process helper ended unexpectedly (${why})`)
    endOrphans({directory, nodeId, clock})
      .catch((error: unknown) => {
        report(`what the process helper left running could not be ended: ${String(error)}`)
      })
      .finally(() => {
        const sentence =
          `the process helper of this node ended unexpectedly (${why}) ` +
          'and the command was ended with it'
        this.#failAll(isStopping ? 'this node is stopping' : sentence, (held) => held.sent)
        if (!wasReady && this.#whenReady.length > 0) {
          const error = new Error(`the process helper could not be started (${why})`)
          for (const tell of this.#whenReady.splice(0)) tell(error)
          this.#state = 'stopped'
          this.#failAll(error.message, () => true)
        }
        if (this.#state === 'starting') this.#restart()
      })
      .catch((error: unknown) => report(`the process helper could not be mended: ${String(error)}`))
  }

  #restart(): void {
    const delayMs = this.#restartMs
    this.#restartMs = Math.min(2 * delayMs, RESTART_MS_MAX)
    this.#options.clock.after(delayMs, () => {
      if (this.#state === 'starting') this.#launch()
    })
  }
}

/** The end of a command that Belfry could not run, or not to its end. */
function failure(why: string): CommandEnd {
  return {failure: why, exitCode: null, signal: '', ending: null, memoryBytes: 0, cut: false}
}

/*
 * Gives one execution's output to its sink and says how much the sink has taken, so that the helper sends
 * no more than a window ahead. Knows no frames and no process.
 */

export class CreditedSink {
  readonly #sink: OutputSink
  readonly #acknowledge: (bytes: number) => void
  /** Taken by the sink and not yet told. */
  #credit = 0
  /** Written to a sink that said wait. */
  #waiting = 0

  /** `acknowledge` is called with lumps of what the sink has taken. */
  constructor(sink: OutputSink, acknowledge: (bytes: number) => void) {
    this.#sink = sink
    this.#acknowledge = acknowledge
  }

  push(bytes: Uint8Array): void {
    if (this.#waiting > 0) {
      // The sink said wait; what was under way by then arrives all the same, a window of it at most.
      this.#waiting += bytes.length
      this.#sink.write(bytes)
    } else if (this.#sink.write(bytes)) this.#taken(bytes.length)
    else {
      this.#waiting = bytes.length
      this.#sink.drained(() => {
        const taken = this.#waiting
        this.#waiting = 0
        this.#taken(taken)
      })
    }
  }

  #taken(bytes: number): void {
    this.#credit += bytes
    if (this.#credit < CREDIT_LUMP_BYTES) return
    const lump = this.#credit
    this.#credit = 0
    this.#acknowledge(lump)
  }
}
