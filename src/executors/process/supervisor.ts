/**
 * Supervisor of the process helper, in the node. It starts the helper, sends it commands, passes output to
 * the sinks and applies backpressure. So the node itself never forks and buffers at most one window per
 * output. If the helper dies, its executions fail, the processes it left running are ended, and a new helper
 * starts.
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
  CREDIT_MIN_BYTES,
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

/** Exponential backoff between starts of a helper that dies. */
const RESTART_MS = 100
const RESTART_MS_MAX = 10_000

/** A helper that is not ready by then is killed. */
const READY_MS = 15_000

/** Time for the helper to exit beyond the grace of the commands, before it is killed. */
const STOP_MARGIN_MS = 5_000

const EMPTY = new Uint8Array(0)

export interface HelperOptions extends HelperSetup {
  readonly clock: Clock
  /** Logs an error that belongs to no execution. */
  readonly report: (message: string) => void
}

export interface CommandHandle {
  cancel(): void
  kill(): void
  /** Settles exactly once; never rejects. */
  readonly ended: Promise<CommandEnd>
}

interface Command {
  readonly request: StartRequest
  readonly sink: CreditedSink
  readonly settle: (end: CommandEnd) => void
  /** When the start request was sent to the helper, in monotonic ms; `null` = it was not. */
  sentAt: number | null
}

type State = 'idle' | 'starting' | 'ready' | 'stopping' | 'stopped'

export class ProcessHelper {
  readonly #options: HelperOptions
  /** Commands that have not ended, by execution number. */
  readonly #commands = new Map<number, Command>()
  #state: State = 'idle'
  #child: ChildProcess | null = null
  #link: Duplex | null = null
  #next = 1
  #corked = false
  #restartMs = RESTART_MS
  #ready: HelperReady | null = null
  #readyCallbacks: ((error: Error | null) => void)[] = []

  constructor(options: HelperOptions) {
    this.#options = options
  }

  /** How commands are started; `null` before the first helper is ready. */
  get spawnUsed(): HelperReady | null {
    return this.#ready
  }

  /** The helper's pid; `null` while no helper runs. */
  get pid(): number | null {
    return this.#child?.pid ?? null
  }

  /** Rejects when the helper cannot be started. A helper that dies later is replaced. */
  start(): Promise<void> {
    assert(this.#state === 'idle', 'a process helper is started once')
    const first = this.#untilReady()
    this.#launch()
    return first
  }

  #untilReady(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#readyCallbacks.push((error) => (error === null ? resolve() : reject(error)))
    })
  }

  run(request: StartRequest, output: OutputSink): CommandHandle {
    const execution = this.#next++
    let settle: (end: CommandEnd) => void = () => undefined
    const ended = new Promise<CommandEnd>((resolve) => {
      settle = resolve
    })
    const sink = new CreditedSink(output, (bytes) => {
      if (this.#commands.has(execution)) this.#send(encodeCredit(execution, bytes))
    })
    const command: Command = {request, sink, settle, sentAt: null}
    this.#commands.set(execution, command)
    if (this.#state === 'ready') this.#sendStart(execution, command)
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
    const command = this.#commands.get(execution)
    if (command === undefined) return
    if (command.sentAt !== null) this.#send(encodeFrame(kind, execution, EMPTY))
    else this.#settle(execution, {...failure(''), ending: kind === FRAME.kill ? 'kill' : 'cancel'})
  }

  #sendStart(execution: number, command: Command): void {
    command.sentAt = this.#options.clock.monotonicMs()
    this.#send(encodeJson(FRAME.start, execution, command.request))
  }

  /** Ends all commands, then the helper. Idempotent; resolves when the helper has exited. */
  stop(): Promise<void> {
    const child = this.#child
    if (child === null) {
      this.#state = 'stopped'
      this.#failAll('this node is stopping', () => true)
      return Promise.resolve()
    }
    if (this.#state !== 'stopping') {
      this.#state = 'stopping'
      this.#send(encodeFrame(FRAME.stop, 0, EMPTY))
      this.#failAll('this node is stopping', ({sentAt}) => sentAt === null)
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
    // A packaged Belfry has the same file as JavaScript.
    const extension = import.meta.filename.endsWith('.ts') ? 'ts' : 'js'
    const entry = fileURLToPath(new URL(`./helper/main.${extension}`, import.meta.url))
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', entry], {
      // A session of its own, so a Ctrl-C in the terminal reaches the node only.
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
    link.on('error', () => undefined) // the exit of the helper is handled below
    const readyTimer = clock.after(READY_MS, () => {
      if (this.#state === 'starting') child.kill('SIGKILL')
    })
    let gone = false
    const onGone = (why: string): void => {
      readyTimer.cancel()
      if (!gone) this.#onGone(why)
      gone = true
    }
    child.once('error', (error) => onGone(error.message))
    // `close` follows the last frame.
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
    for (const callback of this.#readyCallbacks.splice(0)) callback(null)
    if (this.#state !== 'starting') return
    this.#state = 'ready'
    for (const [execution, command] of this.#commands) {
      if (command.sentAt === null) this.#sendStart(execution, command)
    }
  }

  #onOutput(execution: number, payload: Buffer): void {
    const command = this.#commands.get(execution)
    // A small piece is copied: a sink that keeps it would keep the whole chunk in memory.
    const fillsItsChunk = 2 * payload.length >= payload.buffer.byteLength
    command?.sink.push(fillsItsChunk ? payload : new Uint8Array(payload))
  }

  #settle(execution: number, end: CommandEnd): void {
    const command = this.#commands.get(execution)
    if (command === undefined) return
    this.#commands.delete(execution)
    command.settle(end)
  }

  /** A command that was sent may have started: its run is not one that failed to start. */
  #ranMs({sentAt}: Command): number {
    return sentAt === null ? 0 : Math.max(1, this.#options.clock.monotonicMs() - sentAt)
  }

  #failAll(why: string, which: (command: Command) => boolean): void {
    for (const [execution, command] of this.#commands) {
      if (which(command)) this.#settle(execution, {...failure(why), ranMs: this.#ranMs(command)})
    }
  }

  /**
   * The helper died. Its commands are ended by its journal before their ends are reported, so a retry never
   * runs beside them.
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
        report(`the processes of the process helper could not be ended: ${String(error)}`)
      })
      .finally(() => {
        const message =
          `the process helper of this node ended unexpectedly (${why}) ` +
          'and the command was ended with it'
        this.#failAll(isStopping ? 'this node is stopping' : message, ({sentAt}) => sentAt !== null)
        if (!wasReady && this.#readyCallbacks.length > 0) {
          const error = new Error(`the process helper could not be started (${why})`)
          for (const callback of this.#readyCallbacks.splice(0)) callback(error)
          this.#state = 'stopped'
          this.#failAll(error.message, () => true)
        }
        if (this.#state === 'starting') this.#restart()
      })
      .catch((error: unknown) =>
        report(`the process helper could not be restarted: ${String(error)}`),
      )
  }

  #restart(): void {
    const delayMs = this.#restartMs
    this.#restartMs = Math.min(2 * delayMs, RESTART_MS_MAX)
    this.#options.clock.after(delayMs, () => {
      if (this.#state === 'starting') this.#launch()
    })
  }
}

/** The end of a command that Belfry could not run to its end. */
function failure(why: string): CommandEnd {
  return {
    failure: why,
    exitCode: null,
    signal: '',
    ending: null,
    memoryBytes: 0,
    cut: false,
    ranMs: 0,
  }
}

/**
 * Flow control for one execution: writes output to the sink and acknowledges the bytes it has accepted, so
 * the helper sends at most one window ahead.
 */
export class CreditedSink {
  readonly #sink: OutputSink
  readonly #acknowledge: (bytes: number) => void
  /** Bytes accepted by the sink and not acknowledged yet. */
  #credit = 0
  /** Bytes written to a sink that signalled backpressure. */
  #waiting = 0

  constructor(sink: OutputSink, acknowledge: (bytes: number) => void) {
    this.#sink = sink
    this.#acknowledge = acknowledge
  }

  push(bytes: Uint8Array): void {
    if (this.#waiting > 0) {
      // Despite backpressure, bytes in transit still arrive: at most one window.
      this.#waiting += bytes.length
      this.#sink.write(bytes)
    } else if (this.#sink.write(bytes)) this.#accepted(bytes.length)
    else {
      this.#waiting = bytes.length
      this.#sink.drained(() => {
        const accepted = this.#waiting
        this.#waiting = 0
        this.#accepted(accepted)
      })
    }
  }

  #accepted(bytes: number): void {
    this.#credit += bytes
    if (this.#credit < CREDIT_MIN_BYTES) return
    const credit = this.#credit
    this.#credit = 0
    this.#acknowledge(credit)
  }
}
