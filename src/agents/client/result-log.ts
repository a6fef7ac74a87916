/**
 * Results that no server has acknowledged, on this agent's disk: each is there, synced, before it is first
 * offered, and goes when a server has it. One file of lines, written at its end only and emptied when nothing
 * waits, which is nearly always:
 *
 *   {"finish":{…}}           an end, to be delivered
 *   {"done":["12-a-1",…]}    a server has these
 *
 * A crash leaves at worst a torn last line, whose execution was not offered yet. A lost `done` only means
 * that an end is delivered twice, which changes nothing.
 */
import {open, readFile, rename, rm, type FileHandle} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import Type from 'typebox'
import {Compile} from 'typebox/compile'
import {executionId, type ExecutionKey} from '../../core/execution.ts'
import type {Clock} from '../../ports/runtime.ts'
import type {FinishItem} from '../../ports/node-store.ts'
import {Batcher} from '../../lib/batcher.ts'
import {Finish, type FinishJson} from '../protocol.ts'
import {finishItem, finishJson} from './store.ts'
import {syncDirectory} from '../../platform/durable-file.ts'

const FILE = 'results'
/** Beyond this results are kept without their output: what became of a run matters more than what it said. */
const FULL_BYTES = 64 * 2 ** 20
/** Beyond this and mostly of delivered results, the file is written anew. */
const COMPACT_BYTES = 16 * 2 ** 20
/** Ends that come together are synced together. */
const SYNC_WAIT_MS = 2
const SYNC_ITEMS_MAX = 256

const Line = Compile(
  Type.Object({finish: Type.Optional(Finish), done: Type.Optional(Type.Array(Type.String()))}),
)

export interface OpenedJournal {
  readonly journal: ResultJournal
  /** Results of earlier lives that no server has yet, oldest first. */
  readonly left: readonly FinishItem[]
  /** Lines that could not be read. */
  readonly unreadable: number
}

export class ResultJournal {
  readonly #path: string
  readonly #writes: Batcher<FinishItem, void>
  /** What waits for a server: bytes of its line, and the line itself for writing the file anew. */
  readonly #waiting = new Map<string, string>()
  #waitingBytes = 0
  #file: FileHandle
  #fileBytes = 0
  /** One change of the file at a time. */
  #turn: Promise<unknown> = Promise.resolve()

  private constructor(path: string, file: FileHandle, clock: Pick<Clock, 'after'>) {
    this.#path = path
    this.#file = file
    this.#writes = new Batcher({
      clock,
      waitMs: SYNC_WAIT_MS,
      itemsMax: SYNC_ITEMS_MAX,
      flush: (items) => this.#inTurn(() => this.#append(items)),
    })
  }

  /** Opens the journal in `directory`. Throws the error of the file system. */
  static async open(directory: string, clock: Pick<Clock, 'after'>): Promise<OpenedJournal> {
    const path = join(directory, FILE)
    const {waiting, unreadable} = await readJournal(path)
    const file = await open(path, 'a', 0o600)
    const journal = new ResultJournal(path, file, clock)
    for (const json of waiting.values()) journal.#remember(json)
    await journal.#tidy()
    return {journal, left: [...waiting.values()].map(finishItem), unreadable}
  }

  /** Resolves when the result is on disk. Throws the error of the file system. */
  async keep(item: FinishItem): Promise<void> {
    await this.#writes.add(item)
  }

  /** A server has these. Never rejects: at worst they are delivered once more. */
  async delivered(keys: readonly ExecutionKey[]): Promise<void> {
    await this.#inTurn(() => this.#forget(keys.map(executionId)))
  }

  /** Results that no server has. */
  get waitingCount(): number {
    return this.#waiting.size
  }

  async close(): Promise<void> {
    await this.#inTurn(() => this.#file.close())
  }

  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#turn.then(work)
    this.#turn = Promise.allSettled([result])
    return result
  }

  async #append(items: readonly FinishItem[]): Promise<readonly void[]> {
    const lines = items.map((item) => {
      const json = finishJson(item)
      return this.#remember(this.#waitingBytes < FULL_BYTES ? json : withoutOutput(json))
    })
    await this.#write(lines.join(''))
    await this.#file.datasync()
    return items.map(() => undefined)
  }

  #remember(json: FinishJson): string {
    const id = executionId(json.key)
    const line = `${JSON.stringify({finish: json})}\n`
    this.#release(id)
    this.#waiting.set(id, line)
    this.#waitingBytes += line.length
    return line
  }

  #release(id: string): void {
    this.#waitingBytes -= this.#waiting.get(id)?.length ?? 0
    this.#waiting.delete(id)
  }

  async #forget(ids: readonly string[]): Promise<void> {
    for (const id of ids) this.#release(id)
    try {
      if (this.#waiting.size === 0) return await this.#empty()
      await this.#write(`${JSON.stringify({done: ids})}\n`)
      const isMostlyOld = this.#fileBytes > 2 * this.#waitingBytes
      if (this.#fileBytes > COMPACT_BYTES && isMostlyOld) await this.#rewrite()
    } catch {
      // A full disk: the results stay there as not delivered, and are delivered once more by the next life.
    }
  }

  /** Begins a life with a file of nothing but what waits. */
  async #tidy(): Promise<void> {
    try {
      await this.#rewrite()
    } catch {
      // A full disk: the old file stays, says the same in more lines, and is written on.
      this.#fileBytes = (await this.#file.stat()).size
    }
  }

  async #write(text: string): Promise<void> {
    // Begins on a line of its own, also after one that a full disk has torn.
    const whole = `\n${text}`
    await this.#file.appendFile(whole)
    this.#fileBytes += whole.length
  }

  async #empty(): Promise<void> {
    if (this.#fileBytes === 0) return
    await this.#file.truncate(0)
    this.#fileBytes = 0
  }

  /** A crash here leaves the old file or the new one, whole: the rename is the switch. */
  async #rewrite(): Promise<void> {
    const fresh = `${this.#path}.new`
    await rm(fresh, {force: true})
    const file = await open(fresh, 'a', 0o600)
    let bytes = 0
    try {
      for (const line of this.#waiting.values()) {
        await file.appendFile(line)
        bytes += line.length
      }
      await file.sync()
      await rename(fresh, this.#path)
    } catch (error) {
      await file.close()
      throw error
    }
    const old = this.#file
    this.#file = file
    this.#fileBytes = bytes
    await old.close()
    await syncDirectory(dirname(this.#path))
  }
}

function withoutOutput(json: FinishJson): FinishJson {
  const {totalBytes} = json.output
  return {...json, output: {offset: totalBytes, bytes: '', totalBytes}}
}

/** What cannot be read is most likely a torn line, whose result was never offered. */
async function readJournal(
  path: string,
): Promise<{readonly waiting: ReadonlyMap<string, FinishJson>; readonly unreadable: number}> {
  const waiting = new Map<string, FinishJson>()
  let unreadable = 0
  for (const text of (await readText(path)).split('\n')) {
    if (text === '') continue
    const line = parse(text)
    if (!Line.Check(line)) {
      unreadable += 1
      continue
    }
    if (line.finish !== undefined) waiting.set(executionId(line.finish.key), line.finish)
    for (const id of line.done ?? []) waiting.delete(id)
  }
  return {waiting, unreadable}
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return ''
    throw error
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null // torn by a crash
  }
}
