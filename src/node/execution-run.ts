/**
 * Claimed execution from its start to its end: a chain of small steps over one record. A failure is a value
 * that flows to the end. Nothing throws out of it, because every claim must end in a finish.
 */
import {
  type ExecutionClaim,
  executionId,
  type ExecutionKey,
  type FinalStatus,
  lostLine,
} from '../core/execution.ts'
import {endsWhenDisconnected, type StringMap} from '../core/job.ts'
import {secretsOf} from '../core/secret.ts'
import type {Events} from '../ports/events.ts'
import type {Executor, OutputSink, Run, RunEnd, RunHandle} from '../ports/executor.ts'
import type {ClaimedExecution, FinishItem} from '../ports/node-store.ts'
import type {Processor} from '../ports/processor.ts'
import type {Clock, Random} from '../ports/runtime.ts'
import {type Appends, OutputBuffer, type OutputLimits} from './output-buffer.ts'
import {type ChainEnd, openChain} from './output-chain.ts'
import {Redaction} from './redaction.ts'

/** Records each start before the executor gets it. `StartLog` is the one on disk. */
export interface StartRecorder {
  /** Rejects if the execution must not start: the next incarnation would take it for never started. */
  begin(execution: ExecutionKey): Promise<void>
  /** The store has its end. */
  ended(execution: ExecutionKey): void
}

export interface ExecutionRunOptions {
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly executors: {get(name: string): Executor | null}
  readonly processors: {get(name: string): Processor | null}
  /** Absent = the next incarnation cannot tell which claims never started. */
  readonly startLog?: StartRecorder
  readonly finisher: {finish(item: FinishItem, job: string): Promise<unknown>}
  readonly appends: Appends
  readonly limits: OutputLimits
}

/** Why this execution is to end before its own end. */
type StopReason = 'cancel' | 'term' | 'kill' | 'disconnected'

const EMPTY_CHAIN_END: ChainEnd = {line: null, foot: ''}

export class ExecutionRun {
  /** `executionId` of its key. */
  readonly id: string
  readonly claim: ExecutionClaim
  readonly claimedAt: number
  /**
   * Set when its claim may have been released, also by a request that is still under way: it never starts,
   * and is released again. A claim that the store did not release is verified before its end.
   */
  isDoubtful = false
  readonly #claimed: ClaimedExecution
  readonly #options: ExecutionRunOptions
  /** Secrets that its definition names. */
  readonly #secrets: StringMap
  /** Set before the start; `null` = it has no secrets. */
  #redaction: Redaction | null = null
  readonly #output: OutputBuffer
  #handle: RunHandle | null = null
  /** A stop requested before the start takes effect right after it. */
  #stopReason: StopReason | null = null
  #end: {end: RunEnd; chain: ChainEnd; durationMs: number} | null = null
  /** Time from the claim to the start; `null` = it was not started. */
  #startedAfterMs: number | null = null

  /**
   * `claimedAt`: monotonic instant of this node before it sent the claim. `secrets`: those of the whole
   * claim.
   */
  constructor(
    claimed: ClaimedExecution,
    claimedAt: number,
    options: ExecutionRunOptions,
    secrets: StringMap = {},
  ) {
    const {execution, token} = claimed
    const {group, node, attempt} = execution
    this.id = executionId(execution)
    this.claim = {key: {group, node, attempt}, token}
    this.#claimed = claimed
    this.claimedAt = claimedAt
    this.#options = options
    const named = secretsOf(claimed.spec).filter((name) => Object.hasOwn(secrets, name))
    this.#secrets = Object.fromEntries(named.map((name) => [name, secrets[name]!]))
    this.#output = new OutputBuffer({...options, ...this.claim, jobName: execution.jobName})
  }

  /** True if it is to stop before its own end. */
  get isStopping(): boolean {
    return this.#stopReason !== null
  }

  /** Starts the executor and waits for its end. Never rejects. */
  async run(): Promise<void> {
    const {clock, events} = this.#options
    const {execution, spec} = this.#claimed
    events.emit('execution_started', {
      job: spec.name,
      execution: this.id,
      node: execution.node,
      attempt: execution.attempt,
    })
    const {end, chain} = await this.#execute()
    const shown = (text: string) => this.#redaction?.text(text) ?? text
    this.#end = {
      end: {...end, head: shown(end.head), foot: shown(end.foot)},
      chain: {line: chain.line === null ? null : shown(chain.line), foot: shown(chain.foot)},
      durationMs: Math.max(0, Math.round(clock.monotonicMs() - this.claimedAt)),
    }
  }

  /** Stores the result. Call after `run`; never rejects. */
  async finish(): Promise<void> {
    const {end, chain, durationMs} = this.#end!
    const output = this.#output.close()
    const {status, reason} = this.#outcome(end)
    const lost = status === 'lost' ? lostLine(reason) : ''
    const item: FinishItem = {
      ...this.claim,
      status,
      reason,
      durationMs,
      startedAfterMs: Math.min(durationMs, Math.round(this.#startedAfterMs ?? durationMs)),
      exitCode: end.exitCode,
      outputHead: end.head,
      outputFoot: this.#foot(chain, `${end.foot}${lost}${chain.foot}`),
      output,
      dropOutput: chain.line !== null,
      jitter: this.#options.random.fraction(),
    }
    await this.#options.finisher.finish(item, this.#claimed.spec.name)
    this.#options.startLog?.ended(this.claim.key)
  }

  /** Puts the lines added by Belfry on lines of their own, also after output without a final newline. */
  #foot({line}: ChainEnd, lines: string): string {
    if (line !== null) return `${line}\n${lines}`
    return lines === '' || this.#output.endsLine ? lines : `\n${lines}`
  }

  /** Cancels on a user's request; the outcome is `cancelled`. */
  cancel(): void {
    this.#stopReason ??= 'cancel'
    this.#handle?.cancel()
  }

  /** Stops because the node stops; the outcome is `lost`, reason `node_stopped`. */
  stop(how: 'term' | 'kill'): void {
    if (this.#stopReason !== 'cancel' && this.#stopReason !== 'disconnected') this.#stopReason = how
    if (how === 'kill') this.#handle?.kill()
    else this.#handle?.cancel()
  }

  get endsWhenDisconnected(): boolean {
    return endsWhenDisconnected(this.#claimed.spec)
  }

  /** Stops because the cluster gets no heartbeats of this node; the outcome is `lost`, reason `cut_off`. */
  disconnect(): void {
    this.#abandon('disconnected', 'disconnected')
  }

  /**
   * Stops because the claim is no longer active: another attempt may run. The store keeps the result at most
   * as `late_result`.
   */
  revoke(): void {
    this.#abandon('cancel', 'claim_revoked')
  }

  /** Emits an event, because no user requested this stop. */
  #abandon(stopReason: 'cancel' | 'disconnected', reason: 'disconnected' | 'claim_revoked'): void {
    if (this.#stopReason === null && this.#end === null) {
      const abandoned = {job: this.#claimed.spec.name, execution: this.id, reason}
      this.#options.events.emit('execution_abandoned', abandoned)
    }
    this.#stopReason ??= stopReason
    this.#handle?.cancel()
  }

  async #execute(): Promise<{end: RunEnd; chain: ChainEnd}> {
    const {execution, spec, scheduledAt} = this.#claimed
    const executor = this.#options.executors.get(spec.executor)
    if (executor === null)
      return {end: failure(missingExecutor(spec.executor)), chain: EMPTY_CHAIN_END}
    const missing = this.#missingSecret
    if (missing !== null) return {end: failure(missing), chain: EMPTY_CHAIN_END}
    const values = Object.values(this.#secrets)
    if (values.length > 0) this.#redaction = await Redaction.of(values, this.#options.clock)
    // Checked again after the write: a stop may have been requested meanwhile.
    const notStarted = this.#stopped() ?? (await this.#recordStart()) ?? this.#stopped()
    if (notStarted !== null) return {end: notStarted, chain: EMPTY_CHAIN_END}
    const run: Run = {
      executionId: this.id,
      jobName: spec.name,
      nodeName: execution.node,
      attempt: execution.attempt,
      scheduledAt,
      config: spec.executorConfig,
    }
    // The output buffer drops old bytes, so it never applies backpressure.
    const sink: OutputSink = {
      write: (bytes) => {
        this.#output.write(bytes)
        return true
      },
      drained: (callback) => callback(),
    }
    const {clock, processors: registry} = this.#options
    const chain = openChain({processors: spec.processors, registry, run, keep: sink, clock})
    const handedOverAt = clock.monotonicMs()
    const redacted = this.#redaction?.sink(chain) ?? null
    // Processors get the run without values.
    this.#handle =
      redacted === null
        ? executor.start(run, chain)
        : executor.start({...run, secrets: this.#secrets}, redacted)
    const end = await this.#handle.ended
    redacted?.flush()
    const startedAt = end.ranMs === undefined ? handedOverAt : clock.monotonicMs() - end.ranMs
    this.#startedAfterMs = Math.max(0, startedAt - this.claimedAt)
    return {end, chain: await chain.end({outcome: end.outcome, exitCode: end.exitCode})}
  }

  /** Why it cannot start: a secret was deleted after the submit. `null` = it has all of them. */
  get #missingSecret(): string | null {
    const has = (name: string) => Object.hasOwn(this.#secrets, name)
    const missing = secretsOf(this.#claimed.spec).find((name) => !has(name))
    if (missing === undefined) return null
    return `not started: there is no secret "${missing}", or it cannot be decrypted; set it again\n`
  }

  /** The end of an execution stopped before its start; `null` = it may start. */
  #stopped(): RunEnd | null {
    if (this.#stopReason === null) return null
    return {outcome: 'cancelled', exitCode: null, head: '', foot: 'ended before it was started\n'}
  }

  /** Crash point: after this the execution becomes `lost`; before it, its claim is released. */
  async #recordStart(): Promise<RunEnd | null> {
    try {
      await this.#options.startLog?.begin(this.claim.key)
      return null
    } catch (error) {
      return failure(`not started: the start cannot be recorded on disk (${String(error)})\n`)
    }
  }

  #outcome(end: RunEnd): {status: FinalStatus; reason: string} {
    const stopReason = this.#stopReason
    if (end.outcome === 'cancelled' && stopReason !== 'cancel' && stopReason !== null)
      return {status: 'lost', reason: stopReason === 'disconnected' ? 'cut_off' : 'node_stopped'}
    const hasExecutor = this.#options.executors.get(this.#claimed.spec.executor) !== null
    if (!hasExecutor) return {status: end.outcome, reason: 'no_executor'}
    return {
      status: end.outcome,
      reason: this.#missingSecret === null ? (end.reason ?? '') : 'no_secret',
    }
  }
}

function failure(foot: string): RunEnd {
  return {outcome: 'failed', exitCode: null, head: '', foot}
}

function missingExecutor(name: string): string {
  return name === ''
    ? 'not started: the job has no executor; set "executor", for example to "shell"\n'
    : `not started: this node has no executor called "${name}"\n`
}
