/**
 * The way of a run's output through the processors of its job, in the order of the definition, beside the
 * place where it is kept. Everything is kept as it comes, so that a processor that fails at the last byte
 * loses nothing; only the end decides whether one line takes the output's place. Holds a bounded queue; a
 * processor that stalls is given up.
 */
import type {StringMap} from '../core/job.ts'
import type {Clock} from '../ports/runtime.ts'
import type {OutputSink, Run} from '../ports/executor.ts'
import type {Processor, ProcessorStream} from '../ports/processor.ts'

/** When this much waits for the processors the executor is asked to wait too. */
const QUEUE_BYTES_MAX = 64 * 1024

/** A disk or network that takes nothing for this long is given up: the run's result matters more. */
const STALL_MS = 30_000

export interface ChainOptions {
  /** In the order of the definition. */
  readonly processors: Readonly<Record<string, StringMap>>
  readonly registry: {get(name: string): Processor | null}
  readonly run: Run
  /** Where the output is kept. It and the processors see the same bytes and change none. */
  readonly keep: OutputSink
  readonly clock: Clock
  readonly stallMs?: number
}

export interface ChainEnd {
  /** Stored in place of the output, without a newline; `null` = the output stays as it was kept. */
  readonly line: string | null
  /** What went wrong on the way, whole lines; `''` = nothing. Belongs after the output. */
  readonly foot: string
}

export interface OutputChain extends OutputSink {
  /** Call once, after the last byte. Never rejects. */
  end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<ChainEnd>
}

/** Never throws: a processor that cannot be opened is noted at the end. */
export function openChain(options: ChainOptions): OutputChain {
  return new Chain(options)
}

/** One processor on the way. */
interface Stage {
  readonly name: string
  readonly forward: boolean
  stream: ProcessorStream | null
  /** `''` = well so far. */
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
    for (const [name, config] of Object.entries(this.#options.processors)) {
      const forward = (config['forward'] ?? '').toLowerCase() === 'true'
      stages.push({name, forward, stream: null, failure: ''})
      if (!forward) break
    }
    return stages
  }

  async #openAll(): Promise<void> {
    const {processors, registry, run} = this.#options
    for (const stage of this.#stages) {
      const processor = registry.get(stage.name)
      if (processor === null) {
        stage.failure = 'this node does not know it'
        continue
      }
      const config = processors[stage.name]!
      await this.#guard(stage, async () => {
        const problem = processor.check(config)[0]
        if (problem !== undefined) throw new Error(problem)
        const stream = await processor.open({run, config})
        stage.stream = stream
        // It came after it had been given up.
        if (stage.failure !== '') this.#letGo(stage)
      })
    }
    await this.#pump()
  }

  write(bytes: Uint8Array): boolean {
    if (!this.#options.keep.write(bytes) && !this.#keepIsFull) {
      this.#keepIsFull = true
      this.#options.keep.drained(() => {
        this.#keepIsFull = false
        this.#release()
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
    this.#release()
  }

  #release(): void {
    if (this.#keepIsFull || this.#queuedBytes >= QUEUE_BYTES_MAX) return
    const waiter = this.#waiter
    this.#waiter = null
    waiter?.()
  }

  /** Empties the queue into the processors, all of them at the pace of the slowest. Never rejects. */
  async #pump(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#queue
      this.#queue = []
      for (const bytes of batch) {
        const open = this.#stages.filter((stage) => stage.failure === '' && stage.stream !== null)
        await Promise.all(open.map((stage) => this.#guard(stage, () => stage.stream!.write(bytes))))
        this.#queuedBytes -= bytes.length
        this.#release()
      }
    }
  }

  async end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<ChainEnd> {
    await this.#pumping
    let line: string | null = null
    let foot = ''
    for (const stage of this.#stages) {
      let answer = ''
      await this.#guard(stage, async () => {
        if (stage.stream !== null) answer = await stage.stream.end(end)
      })
      if (stage.failure !== '')
        foot += `processor ${stage.name} failed: ${stage.failure}; the output is kept here\n`
      else if (!stage.forward) line = answer
    }
    return {line, foot}
  }

  /** Does one step of one processor. What goes wrong, or takes too long, becomes the processor's failure. */
  async #guard(stage: Stage, step: () => Promise<void>): Promise<void> {
    if (stage.failure !== '') return
    const {clock, stallMs = STALL_MS} = this.#options
    await new Promise<void>((resolve) => {
      const timer = clock.after(stallMs, () => fail(`it took nothing for ${stallMs / 1000}s`))
      const fail = (why: unknown): void => {
        if (stage.failure === '') stage.failure = String(why)
        this.#letGo(stage)
        resolve()
      }
      step()
        .catch((error: unknown) => fail(error instanceof Error ? error.message : String(error)))
        .finally(() => {
          timer.cancel()
          resolve()
        })
        .catch(fail)
    })
  }

  /**
   * A failed processor is still told the end, so that it closes what it holds; nobody waits for its answer.
   */
  #letGo(stage: Stage): void {
    const stream = stage.stream
    stage.stream = null
    stream?.end({outcome: 'failed', exitCode: null}).catch(() => {
      // It has failed already, and that is noted.
    })
  }
}
