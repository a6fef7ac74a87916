/**
 * Append-only log of text lines: a header, then one line a record. The start log of a node and the process
 * journal of its helper use it. Writes are synchronous and without fsync: they survive the death of the
 * process, but not a power cut. It imports only `node:fs`, because the helper must start fast.
 *
 * The result log of an agent shares only `parseRecord`: its records must survive a power cut and carry
 * output, so it writes asynchronously, syncs in batches, and counts bytes.
 *
 * Crash points: a crash during an append leaves a torn last line, which readers skip. A crash during a
 * rewrite leaves the complete old file or the complete new one: the rename is atomic.
 */
import {closeSync, fstatSync, ftruncateSync, openSync, renameSync, rmSync, writeSync} from 'node:fs'

/** Lines before a rewrite with only the live records: some 80 to 200 KiB. */
const LINES_MAX = 4096

export interface AppendLogOptions<Entry> {
  readonly path: string
  /** First line. Made anew for each file, and may name the file itself. */
  readonly header: (descriptor: number) => string
  /** Entries that a rewrite keeps. Read at each rewrite. */
  readonly live: ReadonlyMap<string, Entry>
  readonly lineOf: (id: string, entry: Entry) => string
}

export class AppendLog<Entry> {
  readonly #options: AppendLogOptions<Entry>
  #file: number
  #lines = 0
  /** The last write may have left half a line. */
  #isTorn = false

  /** Creates the file, for the owner only. Throws the error of the file system. */
  constructor(options: AppendLogOptions<Entry>) {
    this.#options = options
    this.#file = this.#create(options.path, [])
  }

  /**
   * Appends the lines in one write. Throws when the write fails; the next append then starts on a new line.
   */
  append(lines: readonly string[]): void {
    if (this.#lines >= LINES_MAX + 2 * this.#options.live.size) this.#rewrite()
    const text = textOf(lines)
    const whole = this.#isTorn ? `\n${text}` : text
    this.#isTorn = true
    writeWhole(this.#file, whole)
    this.#isTorn = false
    this.#lines += lines.length
  }

  /**
   * Empties the file for good, or removes it where that fails, and closes it. Throws when neither is
   * possible; the log then stays open.
   */
  discard(): void {
    try {
      ftruncateSync(this.#file, 0)
    } catch {
      rmSync(this.#options.path, {force: true})
    }
    closeSync(this.#file)
  }

  #create(path: string, lines: Iterable<string>): number {
    const file = openSync(path, 'w', 0o600)
    try {
      writeWhole(file, textOf([this.#options.header(file), ...lines]))
      return file
    } catch (error) {
      closeSync(file)
      throw error
    }
  }

  /** Keeps the live records only. On failure the old file grows; retried after as many lines again. */
  #rewrite(): void {
    const {path, live, lineOf} = this.#options
    this.#lines = live.size
    const draft = `${path}.new`
    const lines = [...live].map(([id, entry]) => lineOf(id, entry))
    let file: number | null = null
    try {
      file = this.#create(draft, lines)
      renameSync(draft, path)
    } catch {
      if (file !== null) closeSync(file)
      return
    }
    closeSync(this.#file)
    this.#file = file
    this.#isTorn = false
  }
}

/**
 * Device and inode of an open file. A copy of the file has others, so what a file says about its own process
 * is not believed in a copy.
 */
export function fileIdentity(descriptor: number): string {
  const {dev, ino} = fstatSync(descriptor, {bigint: true})
  return `${dev}:${ino}`
}

/** A line as a JSON object; `null` when it is torn by a crash or anything else. */
export function parseRecord(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null
  } catch {
    return null // Torn by a crash; earlier lines are complete.
  }
}

function textOf(lines: Iterable<string>): string {
  let text = ''
  for (const line of lines) text += `${line}\n`
  return text
}

/** A full disk takes a part of the text and reports it only by the count. */
function writeWhole(file: number, text: string): void {
  const bytes = Buffer.from(text)
  if (writeSync(file, bytes) < bytes.length) throw new Error('the disk is full')
}
