/**
 * What the helper started and what has ended, on disk, so that a later life can end what an earlier one
 * left running. Written without fsync: after a power cut nothing is running, and every lesser crash keeps
 * what the kernel was given. One file a helper life; the first line says whose. Never sends a signal.
 *
 *   {"helper":120,"started":8812,"boot":"…","node":"…"}
 *   {"i":"12-web-1"}                       about to start
 *   {"s":"12-web-1","p":4711,"t":8890}     started: pid, start time
 *   {"e":"12-web-1"}                       ended
 */
import {closeSync, openSync, readFileSync, renameSync, writeFileSync, writeSync} from 'node:fs'
import {join} from 'node:path'

export const JOURNAL_PREFIX = 'journal-'

/** Rewritten with only what runs once it has this many lines: some 200 KiB. */
const LINES_MAX = 4096

export interface JournalHead {
  readonly helper: number
  readonly started: number
  readonly boot: string
  readonly node: string
}

/**
 * An execution that was begun and not recorded as ended. `pid` is 0 when the crash came before it was
 * known.
 */
export interface JournalEntry {
  readonly executionId: string
  readonly pid: number
  /** As in `ProcessRow.started`. */
  readonly started: number
}

export class Journal {
  readonly #path: string
  readonly #head: JournalHead
  readonly #open = new Map<string, JournalEntry>()
  #file: number
  #lines = 1
  #torn = false

  /**
   * Begins the journal of a helper's life in `directory`, which is there. Throws the error of the file
   * system.
   */
  constructor(directory: string, head: JournalHead) {
    this.#path = join(directory, `${JOURNAL_PREFIX}${head.helper}-${head.started}`)
    this.#head = head
    this.#file = openSync(this.#path, 'w', 0o600)
    writeSync(this.#file, line(head))
  }

  /** Throws the error of the file system: what cannot be recorded is not started. */
  beginning(executionId: string): void {
    this.#append({i: executionId})
    this.#open.set(executionId, {executionId, pid: 0, started: 0})
  }

  /** On a full disk the record is missing, and the process is found by its environment only. */
  started(entry: JournalEntry): void {
    this.#open.set(entry.executionId, entry)
    this.#tryAppend({s: entry.executionId, p: entry.pid, t: entry.started})
  }

  /**
   * On a full disk the record is missing, which is harmless: the next life looks for a process that is not
   * there.
   */
  ended(executionId: string): void {
    if (!this.#open.delete(executionId)) return
    this.#tryAppend({e: executionId})
  }

  #tryAppend(record: object): void {
    try {
      this.#append(record)
    } catch {
      this.#torn = true
    }
  }

  #append(record: object): void {
    if (this.#lines >= LINES_MAX + 2 * this.#open.size) this.#compact()
    // A disk that filled up may have taken half a line: the next begins afresh.
    const text = this.#torn ? `\n${line(record)}` : line(record)
    this.#torn = true
    if (writeSync(this.#file, text) < Buffer.byteLength(text)) {
      throw new Error('the journal of what runs could not be written: the disk is full')
    }
    this.#torn = false
    this.#lines += 1
  }

  /** A crash here leaves either the old file or the new one, whole: the rename is the switch. */
  #compact(): void {
    // Tried again only after as many lines, should it fail.
    this.#lines = 1 + this.#open.size
    const fresh = `${this.#path}.new`
    let text = line(this.#head)
    for (const entry of this.#open.values()) text += lineOf(entry)
    writeFileSync(fresh, text, {mode: 0o600})
    const file = openSync(fresh, 'a')
    renameSync(fresh, this.#path)
    closeSync(this.#file)
    this.#file = file
    this.#torn = false
  }
}

function lineOf(entry: JournalEntry): string {
  if (entry.pid === 0) return line({i: entry.executionId})
  return line({s: entry.executionId, p: entry.pid, t: entry.started})
}

function line(record: object): string {
  return `${JSON.stringify(record)}\n`
}

/**
 * What a journal says was left; `null` when it has no readable head. A torn last line, as a crash leaves
 * it, is ignored.
 */
export function readJournal(path: string): {head: JournalHead; left: JournalEntry[]} | null {
  const lines = readFileSync(path, 'utf8').split('\n')
  const head = parse(lines[0]!)
  if (head === null || typeof head['helper'] !== 'number') return null
  const left = new Map<string, JournalEntry>()
  for (const text of lines.slice(1)) {
    const record = parse(text)
    if (record === null) continue
    const {i, s, e, p, t} = record
    if (typeof i === 'string') left.set(i, {executionId: i, pid: 0, started: 0})
    if (typeof s === 'string') left.set(s, {executionId: s, pid: Number(p), started: Number(t)})
    if (typeof e === 'string') left.delete(e)
  }
  // A first line with that field was written here, and whole: lines are cut at their end only.
  return {head: head as unknown as JournalHead, left: [...left.values()]}
}

function parse(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null
  } catch {
    return null // torn by a crash: the line before it stands
  }
}
