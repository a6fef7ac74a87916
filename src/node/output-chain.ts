/**
 * Passes the output of a run to the processors of its job, in the order of the definition, and to the store.
 * All output is stored as it arrives, so a processor that fails at the last byte loses nothing. At the end,
 * one line of a processor may replace the stored output. The queue is bounded; a stalled processor times out.
 */
import type {StringMap} from '../core/job.ts'
import {messageOf} from '../lib/error.ts'
import type {Clock} from '../ports/runtime.ts'
import type {OutputSink, Run} from '../ports/executor.ts'
import type {Processor, ProcessorStream} from '../ports/processor.ts'

/** A longer queue causes backpressure to the executor. */
const QUEUE_BYTES_MAX = 64 * 1024

/** Timeout of one step of a processor: a stalled disk or network must not block the run's result. */
const STALL_MS = 30_000

export interface ChainOptions {
  /** Parameters by name, in the order of the definition. */
  readonly processors: Readonly<Record<string, StringMap>>
  readonly registry: {get(name: string): Processor | null}
  readonly run: Run
  /** Sink of the stored output. It and the processors share the bytes and must not modify them. */
  readonly keep: OutputSink
  readonly clock: Clock
  readonly stallMs?: number
}

/** The result of the chain after the command has ended. */
export interface ChainEnd {
  /** Replaces the stored output, without a newline; `null` = the output stays. */
  readonly line: string | null
  /** Errors of processors as whole lines, to append to the output; `''` = none. */
  readonly foot: string
}

export interface OutputChain extends OutputSink {
  /** Called once, after the last byte. Never rejects. */
  end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<ChainEnd>
}

/** Never throws: a processor that cannot be opened is reported at the end. */
export function openChain(options: ChainOptions): OutputChain {
  return new Chain(options)
}

/** A processor of the chain. */
interface Stage {
  readonly name: string
  /** True also without a processor: the next one gets the output. */
  readonly forward: boolean
  /** `null` = this node has none of this name. */
  readonly processor: Processor | null
  stream: ProcessorStream | null
  /** `''` = no failure. */
  failure: string
}

class Chain implements OutputChain {
  readonly #options: ChainOptions
  readonly #stages: readonly Stage[]
  #queue: Uint8Array[] = []
  #queuedBytes = 0
  #keepIsFull = false
  #waiter: (() => void) | null = null
  #pumping: Promise<void>

  constructor(options: ChainOptions) {
    this.#options = options
    this.#stages = this.#plan()
    this.#pumping = this.#openAll()
  }

  /** Up to and including the first processor that does not forward. */
  #plan(): Stage[] {
    const stages: Stage[] = []
    const {processors, registry} = this.#options
    for (const [name, config] of Object.entries(processors)) {
      const processor = registry.get(name)
      const forward = processor === null || (config['forward'] ?? '').toLowerCase() === 'true'
      const failure = processor === null ? 'this node has no such processor' : ''
      stages.push({name, forward, processor, stream: null, failure})
      if (!forward) break
    }
    return stages
  }

  async #openAll(): Promise<void> {
    const {processors, run} = this.#options
    for (const stage of this.#stages) {
      const {processor} = stage
      if (processor === null) continue
      const config = processors[stage.name]!
      await this.#guard(stage, async () => {
        const problem = processor.check(config)[0]
        if (problem !== undefined) throw new Error(problem)
        const stream = await processor.open({run, config})
        stage.stream = stream
        // The stage opened after its timeout.
        if (stage.failure !== '') this.#discard(stage)
      })
    }
    await this.#pump()
  }

  write(bytes: Uint8Array): boolean {
    if (!this.#options.keep.write(bytes) && !this.#keepIsFull) {
      this.#keepIsFull = true
      this.#options.keep.drained(() => {
        this.#keepIsFull = false
        this.#drain()
      })
    }
    if (this.#stages.some((stage) => stage.failure === '')) {
      this.#queue.push(bytes)
      this.#queuedBytes += bytes.length
      if (this.#queue.length === 1) this.#pumping = this.#pumping.then(() => this.#pump())
    }
    return !this.#keepIsFull && this.#queuedBytes < QUEUE_BYTES_MAX
  }

  drained(callback: () => void): void {
    this.#waiter = callback
    this.#drain()
  }

  #drain(): void {
    if (this.#keepIsFull || this.#queuedBytes >= QUEUE_BYTES_MAX) return
    const waiter = this.#waiter
    this.#waiter = null
    waiter?.()
  }

  /** Passes the queue to all processors, at the pace of the slowest. Never rejects. */
  async #pump(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue
      this.#queue = []
      for (const bytes of batch) {
        const open = this.#stages.filter((stage) => stage.failure === '' && stage.stream !== null)
        await Promise.all(open.map((stage) => this.#guard(stage, () => stage.stream!.write(bytes))))
        this.#queuedBytes -= bytes.length
        this.#drain()
      }
    }
  }

  async end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<ChainEnd> {
    await this.#pumping
    let line: string | null = null
    let foot = ''
    for (const stage of this.#stages) {
      let result = ''
      await this.#guard(stage, async () => {
        if (stage.stream !== null) result = await stage.stream.end(end)
      })
      if (stage.processor === null) foot += `processor ${stage.name} skipped: ${stage.failure}\n`
      else if (stage.failure !== '')
        foot += `processor ${stage.name} failed: ${stage.failure}; the output is kept here\n`
      else if (!stage.forward) line = result
    }
    return {line, foot}
  }

  /** Runs one step of a processor. An error or a timeout becomes the processor's failure. */
  async #guard(stage: Stage, step: () => Promise<void>): Promise<void> {
    if (stage.failure !== '') return
    const {clock, stallMs = STALL_MS} = this.#options
    await new Promise<void>((resolve) => {
      const timer = clock.after(stallMs, () => fail(`it stalled for ${stallMs / 1000}s`))
      const fail = (why: unknown): void => {
        if (stage.failure === '') stage.failure = String(why)
        this.#discard(stage)
        resolve()
      }
      step()
        .catch((error: unknown) => fail(messageOf(error)))
        .finally(() => {
          timer.cancel()
          resolve()
        })
        .catch(fail)
    })
  }

  /** Ends a failed processor so that it closes its resources, without waiting for it. */
  #discard(stage: Stage): void {
    const stream = stage.stream
    stage.stream = null
    stream?.end({outcome: 'failed', exitCode: null}).catch(() => {
      // The first failure of the stage is recorded already.
    })
  }
}
