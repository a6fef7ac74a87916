/**
 * Results that no server has acknowledged, on the agent's disk. Each is written and synced before it is first
 * sent, and removed when a server has it. One file of lines, append-only, emptied when no result waits, which
 * is nearly always:
 *
 *   {"finish":{…}}               a result to deliver
 *   {"done":["12-a-1 k3f…",…]}   a server has these, by execution and token of the claim
 *
 * Not on `AppendLog`, which neither syncs nor writes asynchronously: see there.
 *
 * Crash points: within a line, that result was not sent yet. A lost `done` means that a result is delivered
 * twice, which changes nothing. A crash during a rewrite leaves the complete old file or the complete new
 * one.
 */
import {open, type FileHandle} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {Type} from 'typebox'
import {claimId, type ExecutionClaim, executionId} from '../../core/execution.ts'
import {BatchQueue} from '../../lib/batch-queue.ts'
import {parseRecord} from '../../platform/append-log.ts'
import {openReplacement, readIfExists, syncDirectory} from '../../platform/durable-file.ts'
import type {Events} from '../../ports/events.ts'
import type {FinishItem} from '../../ports/node-store.ts'
import type {Clock} from '../../ports/runtime.ts'
import {checkOf} from '../../wire/check.ts'
import {encodeFinish} from '../codec.ts'
import {Finish, type FinishJson} from '../protocol.ts'

/** Value of `step` in `step_failed` when a result cannot be written to disk. */
export const KEEP_RESULT = 'keep_result'

const FILE = 'results'
/** Beyond this, results are kept without their output: the status of a run matters more than its output. */
const OUTPUT_BYTES_MAX = 64 * 2 ** 20
/** Beyond this and mostly of delivered results, the file is rewritten. */
const REWRITE_BYTES = 16 * 2 ** 20
/** Results that arrive together share one sync. */
const SYNC_WAIT_MS = 2
const SYNC_ITEMS_MAX = 256

const isLine = checkOf(
  Type.Object({finish: Type.Optional(Finish), done: Type.Optional(Type.Array(Type.String()))}),
)

export interface OpenedResultLog {
  readonly results: ResultLog
  /** Results of previous incarnations that no server has yet, oldest first. */
  readonly left: readonly FinishJson[]
  /** Number of lines that could not be read. */
  readonly unreadable: number
}

export class ResultLog {
  readonly #path: string
  readonly #writes: BatchQueue<FinishJson, void>
  /** Lines of the results that no server has, by claim. */
  readonly #waiting = new Map<string, string>()
  #waitingBytes = 0
  #file: FileHandle
  #fileBytes = 0
  /** Serializes changes of the file. */
  #queue: Promise<unknown> = Promise.resolve()

  private constructor(path: string, file: FileHandle, clock: Pick<Clock, 'after'>) {
    this.#path = path
    this.#file = file
    this.#writes = new BatchQueue({
      clock,
      waitMs: SYNC_WAIT_MS,
      itemsMax: SYNC_ITEMS_MAX,
      flush: (items) => this.#enqueue(() => this.#append(items)),
    })
  }

  /** Opens the log in `directory`. Throws the error of the file system. */
  static async open(directory: string, clock: Pick<Clock, 'after'>): Promise<OpenedResultLog> {
    const path = join(directory, FILE)
    const {waiting, unreadable} = await readLog(path)
    const file = await open(path, 'a', 0o600)
    const results = new ResultLog(path, file, clock)
    for (const json of waiting.values()) results.#add(json)
    await results.#compact()
    return {results, left: [...waiting.values()], unreadable}
  }

  /** Resolves when the result is on disk. Throws the error of the file system. */
  async keep(item: FinishJson): Promise<void> {
    await this.#writes.add(item)
  }

  /** A server has these. Never rejects: on failure they are delivered once more. */
  async delivered(claims: readonly ExecutionClaim[]): Promise<void> {
    await this.#enqueue(() => this.#removeAll(claims.map(claimId)))
  }

  /** Number of results that no server has. */
  get waitingCount(): number {
    return this.#waiting.size
  }

  async close(): Promise<void> {
    await this.#enqueue(() => this.#file.close())
  }

  #enqueue<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#queue.then(work)
    this.#queue = Promise.allSettled([result])
    return result
  }

  async #append(items: readonly FinishJson[]): Promise<readonly void[]> {
    const lines = items.map((item) =>
      this.#add(this.#waitingBytes < OUTPUT_BYTES_MAX ? item : withoutOutput(item)),
    )
    await this.#write(lines.join(''))
    await this.#file.datasync()
    return items.map(() => undefined)
  }

  #add(json: FinishJson): string {
    const id = claimId(json)
    const line = `${JSON.stringify({finish: json})}\n`
    this.#remove(id)
    this.#waiting.set(id, line)
    this.#waitingBytes += line.length
    return line
  }

  #remove(id: string): void {
    this.#waitingBytes -= this.#waiting.get(id)?.length ?? 0
    this.#waiting.delete(id)
  }

  async #removeAll(ids: readonly string[]): Promise<void> {
    for (const id of ids) this.#remove(id)
    try {
      if (this.#waiting.size === 0) return await this.#empty()
      await this.#write(`${JSON.stringify({done: ids})}\n`)
      const isMostlyDelivered = this.#fileBytes > 2 * this.#waitingBytes
      if (this.#fileBytes > REWRITE_BYTES && isMostlyDelivered) await this.#rewrite()
    } catch {
      // A full disk: the file still lists these results, and the next incarnation delivers them once more.
    }
  }

  /** Drops everything but the waiting results from the file, at the start. */
  async #compact(): Promise<void> {
    try {
      await this.#rewrite()
    } catch {
      // A full disk: the old file has the same results in more lines, and is appended to.
      this.#fileBytes = (await this.#file.stat()).size
    }
  }

  async #write(text: string): Promise<void> {
    // The entry gets a line of its own, even after a line that a full disk has torn.
    const whole = `\n${text}`
    await this.#file.appendFile(whole)
    this.#fileBytes += whole.length
  }

  async #empty(): Promise<void> {
    if (this.#fileBytes === 0) return
    await this.#file.truncate(0)
    this.#fileBytes = 0
  }

  async #rewrite(): Promise<void> {
    const file = await openReplacement(this.#path, this.#waiting.values())
    const old = this.#file
    this.#file = file
    this.#fileBytes = this.#waitingBytes
    await old.close()
    await syncDirectory(dirname(this.#path))
  }
}

/**
 * Finish step of an agent. A result is encoded once, for the disk and the server: it is written before it is
 * sent, and deleted when a server has it. A crash before the reply leaves the result for the next
 * incarnation; a crash after the reply delivers it twice, which changes nothing.
 */
export function loggedFinisher(
  results: Pick<ResultLog, 'keep' | 'delivered'>,
  events: Events,
  finisher: {finish(json: FinishJson): Promise<unknown>},
) {
  const finish = async (item: FinishItem, job: string) => {
    const json = encodeFinish(item)
    try {
      await results.keep(json)
    } catch (error) {
      // A full disk must not keep a result from a server that would take it.
      events.emit('step_failed', {step: KEEP_RESULT, message: String(error)})
    }
    emitEnd(events, item, job)
    await finisher.finish(json)
    await results.delivered([item])
  }
  return {finish}
}

/** The end of an execution in the log and the metrics of this agent. A server announces it to others. */
function emitEnd(events: Events, item: FinishItem, job: string): void {
  const {key, status, durationMs, startedAfterMs} = item
  events.emit('execution_finished', {
    job,
    execution: executionId(key),
    node: key.node,
    status,
    attempt: key.attempt,
    duration_ms: durationMs - startedAfterMs,
  })
}

function withoutOutput(json: FinishJson): FinishJson {
  const {totalBytes} = json.output
  return {...json, output: {offset: totalBytes, bytes: '', totalBytes}}
}

/** A line that cannot be read is most likely torn, so its result was never sent. */
async function readLog(
  path: string,
): Promise<{readonly waiting: ReadonlyMap<string, FinishJson>; readonly unreadable: number}> {
  const waiting = new Map<string, FinishJson>()
  let unreadable = 0
  for (const text of ((await readIfExists(path)) ?? '').split('\n')) {
    if (text === '') continue
    const line = withJitter(parseRecord(text))
    if (!isLine(line)) {
      unreadable += 1
      continue
    }
    if (line.finish !== undefined) waiting.set(claimId(line.finish), line.finish)
    for (const id of line.done ?? []) waiting.delete(id)
  }
  return {waiting, unreadable}
}

/** A line of release 0.1 has the jitter under another name. */
function withJitter(line: unknown): unknown {
  const finish = (line as {finish?: {dice?: unknown}} | null)?.finish
  return finish?.dice === undefined ? line : {finish: {...finish, jitter: finish.dice}}
}
