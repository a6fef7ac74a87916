/**
 * Process journal of the helper: which executions it started and which have ended. The next helper reads it
 * to end the processes that a crash left running. Written without fsync: after a power cut no process runs,
 * and every lesser crash keeps what the kernel was given. One file for each helper process; the first line
 * identifies it. In a copy of the data directory it names processes of the original, so it is void there.
 * Never sends a signal.
 *
 *   {"helper":120,"started":8812,"boot":"…","node":"…","file":"2049:1311"}
 *   {"i":"12-web-1"}                       about to start
 *   {"s":"12-web-1","p":4711,"t":8890}     started: pid, start time
 *   {"e":"12-web-1"}                       ended
 */
import {closeSync, openSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {AppendLog, fileIdentity, parseRecord} from '../../platform/append-log.ts'

export const JOURNAL_PREFIX = 'journal-'

export interface JournalHead {
  readonly helper: number
  readonly started: number
  readonly boot: string
  readonly node: string
}

/** An execution without a recorded end. `pid` is 0 when the crash came before the pid was known. */
export interface JournalEntry {
  readonly executionId: string
  readonly pid: number
  /** Start time as in `ProcessRow.started`. */
  readonly started: number
}

export class Journal {
  /** Executions that have not ended. The pid is 0 until it is written. */
  readonly #running = new Map<string, JournalEntry>()
  /** Started, and not written yet. */
  readonly #started = new Map<string, {readonly pid: number; readonly startTime: () => number}>()
  /** Wait for their start, and are not written yet. */
  readonly #announced = new Set<string>()
  /** Lines that wait for the next write. */
  #endedLines: string[] = []
  #willFlush = false
  readonly #flushLater: (flush: () => void) => void
  readonly #log: AppendLog<JournalEntry>

  /**
   * Creates the journal of this helper. `directory` must exist. Throws the error of the file system.
   * `flushLater` calls its argument after a while. Most commands end sooner; of those only the beginning and
   * the end are recorded, many in one write.
   */
  constructor(directory: string, head: JournalHead, flushLater: (flush: () => void) => void) {
    this.#flushLater = flushLater
    this.#log = new AppendLog({
      path: join(directory, `${JOURNAL_PREFIX}${head.helper}-${head.started}`),
      header: (descriptor) => JSON.stringify({...head, file: fileIdentity(descriptor)}),
      live: this.#running,
      lineOf: (_id, entry) => lineOf(entry),
    })
  }

  /** The execution is to start soon: it is recorded in one write with the next start. */
  announce(executionId: string): void {
    this.#announced.add(executionId)
  }

  /** Throws the error of the file system: an execution that cannot be recorded must not start. */
  beginning(executionId: string): void {
    if (this.#running.has(executionId)) return
    const entries = [...this.#announced.add(executionId)].map(entryOf)
    const ended = this.#endedLines
    this.#endedLines = []
    this.#log.append([...ended, ...entries.map(lineOf)])
    for (const entry of entries) this.#running.set(entry.executionId, entry)
    this.#announced.clear()
  }

  /**
   * Written soon. Until then, and on a full disk, the process can be found by its environment only.
   * `startTime` is as in `ProcessRow.started`; 0 = the process has ended.
   */
  started(executionId: string, pid: number, startTime: () => number): void {
    this.#started.set(executionId, {pid, startTime})
    this.#writeSoon()
  }

  /** A record that is missing after a crash is harmless: the next helper finds no such process. */
  ended(executionId: string): void {
    this.#announced.delete(executionId)
    if (!this.#running.delete(executionId)) return
    this.#started.delete(executionId)
    this.#endedLines.push(JSON.stringify({e: executionId}))
    this.#writeSoon()
  }

  /** Writes what waits to be written. */
  flush(): void {
    this.#willFlush = false
    const lines = this.#endedLines
    this.#endedLines = []
    for (const [executionId, {pid, startTime}] of this.#started) {
      const entry = {executionId, pid, started: startTime()}
      this.#running.set(executionId, entry)
      lines.push(lineOf(entry))
    }
    this.#started.clear()
    try {
      if (lines.length > 0) this.#log.append(lines)
    } catch {
      // `started` and `ended` say what a missing record costs.
    }
  }

  #writeSoon(): void {
    if (this.#willFlush) return
    this.#willFlush = true
    this.#flushLater(() => this.flush())
  }
}

function entryOf(executionId: string): JournalEntry {
  return {executionId, pid: 0, started: 0}
}

function lineOf({executionId, pid, started}: JournalEntry): string {
  return JSON.stringify(pid === 0 ? {i: executionId} : {s: executionId, p: pid, t: started})
}

/**
 * Entries without an end. `null` when the header cannot be read or the file is a copy; lines that cannot be
 * read are skipped.
 */
export function readJournal(path: string): {head: JournalHead; left: JournalEntry[]} | null {
  const {text, identity} = readIdentified(path)
  const lines = text.split('\n')
  const head = parseRecord(lines[0]!)
  if (head === null || typeof head['helper'] !== 'number') return null
  // The release before wrote no `file`.
  if (head['file'] !== undefined && head['file'] !== identity) return null
  const left = new Map<string, JournalEntry>()
  for (const line of lines.slice(1)) {
    const record = parseRecord(line)
    if (record === null) continue
    const {i, s, e, p, t} = record
    if (typeof i === 'string') left.set(i, {executionId: i, pid: 0, started: 0})
    if (typeof s === 'string') left.set(s, {executionId: s, pid: Number(p), started: Number(t)})
    if (typeof e === 'string') left.delete(e)
  }
  // A first line with that field was written here, and whole: lines are cut at their end only.
  return {head: head as unknown as JournalHead, left: [...left.values()]}
}

function readIdentified(path: string): {text: string; identity: string} {
  const file = openSync(path, 'r')
  try {
    return {text: readFileSync(file, 'utf8'), identity: fileIdentity(file)}
  } finally {
    closeSync(file)
  }
}
