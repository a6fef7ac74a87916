/**
 * One claimed execution from its start to its end: a chain of small steps over one record, where a
 * failure is a value that flows to the end. Nothing here throws past it, because every claim must end
 * in a finish.
 */
import {executionId, type ExecutionKey, type FinalStatus, lostLine} from '../core/execution.ts'
import {endsWhenDisconnected} from '../core/job.ts'
import type {Events} from '../ports/events.ts'
import type {Executor, OutputSink, Run, RunEnd, RunHandle} from '../ports/executor.ts'
import type {ClaimedExecution, FinishItem, OutputAppend} from '../ports/node-store.ts'
import type {ChainEnd, OpenChain} from '../ports/processor.ts'
import type {Clock, Random} from '../ports/runtime.ts'
import {OutputBuffer} from './output-buffer.ts'

/** Where it is written down what is handed to an executor, before it is. */
export interface StartRecorder {
  /** Rejects when it must not be started: a later life would take it for never started. */
  begin(execution: ExecutionKey): Promise<void>
  /** Its end is stored. */
  ended(execution: ExecutionKey): void
}

export interface ExecutionRunOptions {
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly executors: {get(name: string): Executor | null}
  readonly openChain: OpenChain
  /** Absent = a later life cannot tell what this one had not started. */
  readonly begun?: StartRecorder
  readonly finish: (item: FinishItem) => Promise<unknown>
  readonly append: (item: OutputAppend) => Promise<boolean>
  readonly keepOutputBytes: number
  readonly flushBytes: number
  readonly flushMs: number
  readonly flushPauseMs: number
}

const UNTOUCHED: ChainEnd = {line: null, foot: ''}

export class ExecutionRun {
  readonly claimedAt: number
  readonly #claimed: ClaimedExecution
  readonly #options: ExecutionRunOptions
  readonly #keeper: OutputBuffer
  #handle: RunHandle | null = null
  /** Asked for before the start, it is carried out right after it. */
  #wanted: 'cancel' | 'term' | 'kill' | 'cut_off' | null = null
  #end: {end: RunEnd; chain: ChainEnd; durationMs: number} | null = null

  /** `claimedAt` is the node's monotonic instant before the claim was asked for. */
  constructor(claimed: ClaimedExecution, claimedAt: number, options: ExecutionRunOptions) {
    const {execution, token} = claimed
    this.#claimed = claimed
    this.claimedAt = claimedAt
    this.#options = options
    this.#keeper = new OutputBuffer({
      clock: options.clock,
      events: options.events,
      jobName: execution.jobName,
      key: keyOf(execution),
      token,
      keepBytes: options.keepOutputBytes,
      flushBytes: options.flushBytes,
      flushMs: options.flushMs,
      pauseMs: options.flushPauseMs,
      append: options.append,
    })
  }

  get claim(): {readonly key: ExecutionKey; readonly token: string} {
    return {key: keyOf(this.#claimed.execution), token: this.#claimed.token}
  }

  /** Starts the executor and waits for its end. Never rejects. */
  async run(): Promise<void> {
    const {clock, events} = this.#options
    const {execution, spec} = this.#claimed
    events.emit('execution_started', {
      job: spec.name,
      execution: executionId(execution),
      node: execution.node,
      attempt: execution.attempt,
    })
    const ended = await this.#execute()
    this.#end = {
      ...ended,
      durationMs: Math.max(0, Math.round(clock.monotonicMs() - this.claimedAt)),
    }
  }

  /** Hands the end to finish; resolves when the store has it. Never rejects. */
  async settle(): Promise<void> {
    const {end, chain, durationMs} = this.#end!
    const output = this.#keeper.close()
    const {status, reason} = this.#outcome(end)
    const lost = status === 'lost' ? lostLine(reason) : ''
    await this.#options.finish({
      ...this.claim,
      status,
      reason,
      durationMs,
      exitCode: end.exitCode,
      outputHead: end.head,
      outputFoot: this.#foot(chain, `${end.foot}${lost}${chain.foot}`),
      output,
      dropOutput: chain.line !== null,
      jitter: this.#options.random.fraction(),
    })
    this.#options.begun?.ended(this.claim.key)
  }

  /** What Belfry adds stands on lines of its own, also after output that ends within a line. */
  #foot({line}: ChainEnd, said: string): string {
    if (line !== null) return `${line}\n${said}`
    return said === '' || this.#keeper.endsLine ? said : `\n${said}`
  }

  /** Somebody wants it ended; its outcome is `cancelled`. */
  cancel(): void {
    this.#wanted ??= 'cancel'
    this.#handle?.cancel()
  }

  /** The node stops; its outcome is `lost`, reason `node_stopped`. */
  stop(how: 'term' | 'kill'): void {
    if (this.#wanted !== 'cancel' && this.#wanted !== 'cut_off') this.#wanted = how
    if (how === 'kill') this.#handle?.kill()
    else this.#handle?.cancel()
  }

  get endsWhenCutOff(): boolean {
    return endsWhenDisconnected(this.#claimed.spec)
  }

  /** The cluster hears nothing of this node any more; the outcome is `lost`, reason `cut_off`. */
  cutOff(): void {
    this.#abandon('cut_off', 'cut_off')
  }

  /** Its result counts no more, and something may run in its place; what comes of it is at most a note. */
  revoke(): void {
    this.#abandon('cancel', 'not_ours')
  }

  /** Nobody asked for this end: it is told. */
  #abandon(wanted: 'cancel' | 'cut_off', reason: 'cut_off' | 'not_ours'): void {
    if (this.#wanted === null && this.#end === null) {
      const {execution, spec} = this.#claimed
      const told = {job: spec.name, execution: executionId(execution), reason}
      this.#options.events.emit('execution_abandoned', told)
    }
    this.#wanted ??= wanted
    this.#handle?.cancel()
  }

  async #execute(): Promise<{end: RunEnd; chain: ChainEnd}> {
    const {execution, spec, scheduledAt} = this.#claimed
    const executor = this.#options.executors.get(spec.executor)
    if (executor === null) return {end: failure(missingExecutor(spec.executor)), chain: UNTOUCHED}
    // Asked for again after the wait: a node told to stop meanwhile starts nothing more.
    const refused = this.#notWanted() ?? (await this.#record()) ?? this.#notWanted()
    if (refused !== null) return {end: refused, chain: UNTOUCHED}
    const run: Run = {
      executionId: executionId(execution),
      jobName: spec.name,
      nodeName: execution.node,
      attempt: execution.attempt,
      scheduledAt,
      config: spec.executorConfig,
    }
    // The keeper lets go of what no longer counts, so it never asks the command to wait.
    const keep: OutputSink = {
      write: (bytes) => {
        this.#keeper.write(bytes)
        return true
      },
      drained: (callback) => callback(),
    }
    const chain = this.#options.openChain(spec.processors, run, keep)
    this.#handle = executor.start(run, chain)
    const end = await this.#handle.ended
    return {end, chain: await chain.end({outcome: end.outcome, exitCode: end.exitCode})}
  }

  #notWanted(): RunEnd | null {
    return this.#wanted === null ? null : notStarted()
  }

  /** A crash after this leaves it for lost, a crash before it leaves it to be given back. */
  async #record(): Promise<RunEnd | null> {
    try {
      await this.#options.begun?.begin(this.claim.key)
      return null
    } catch (error) {
      return failure(`not started: it could not be recorded that it is (${String(error)})\n`)
    }
  }

  #outcome(end: RunEnd): {status: FinalStatus; reason: string} {
    const wanted = this.#wanted
    if (end.outcome === 'cancelled' && wanted !== 'cancel' && wanted !== null)
      return {status: 'lost', reason: wanted === 'cut_off' ? 'cut_off' : 'node_stopped'}
    return {status: end.outcome, reason: ''}
  }
}

function keyOf({group, node, attempt}: ExecutionKey): ExecutionKey {
  return {group, node, attempt}
}

function failure(foot: string): RunEnd {
  return {outcome: 'failed', exitCode: null, head: '', foot}
}

function notStarted(): RunEnd {
  return {outcome: 'cancelled', exitCode: null, head: '', foot: 'ended before it was started\n'}
}

function missingExecutor(name: string): string {
  return name === ''
    ? 'not started: the job has no executor; set "executor", for example to "shell"\n'
    : `not started: this node has no executor called "${name}"\n`
}
