/**
 * Start log: the executions that this incarnation of the node passed to an executor. The next incarnation
 * uses it to prove which claims of an earlier one were never started. An execution is recorded before it is
 * passed on, hence:
 *
 *   absent from a complete file, its launch above `upTo`  =  never started by that incarnation
 *
 *   {"life":"…","boot":"…","file":"2049:1311","upTo":0}
 *   12-web-1
 *   13-web-1
 *
 * The file proves nothing, and is then missing or unreadable:
 * - after a reboot: it is written without fsync, so a power cut may take lines away;
 * - in a copy: executions started since the copy are missing;
 * - once a line could not be written.
 * The proof does not depend on the store, so it also holds after an older backup is restored.
 *
 * Crash points: within a line, that execution was not passed on yet. A crash during a rewrite leaves
 * the complete old file or the complete new one.
 */
import {closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {executionId, type ExecutionKey} from '../core/execution.ts'
import {messageOf} from '../lib/error.ts'
import {AppendLog, fileIdentity, parseRecord} from '../platform/append-log.ts'
import {bootId} from '../platform/boot-id.ts'
import type {PreviousIncarnation} from '../ports/node-store.ts'

/** File names and header fields are older than the names in the code; another release may read them. */
const PREFIX = 'begun-'

interface Header {
  /** The incarnation. */
  readonly life: string
  readonly boot: string
  /** Device and inode: a copy has others. */
  readonly file: string
  /** Launches up to this number may have started and left the file since. */
  readonly upTo: number
}

export interface StartLogOptions {
  /** `<data>/executions`. */
  readonly directory: string
  readonly incarnation: string
  /** Receives a sentence for the log: why this incarnation proves nothing. */
  readonly report: (sentence: string) => void
}

export class StartLog {
  readonly #options: StartLogOptions
  /** Started and not ended, with the number of the launch. */
  readonly #running = new Map<string, number>()
  #endedUpTo = 0
  /** `null` = nothing is recorded, and no file exists that would prove anything. */
  #log: AppendLog<number> | null = null
  /** Started in this turn of the event loop; one write for all of them. */
  #queued: ExecutionKey[] = []
  #writing: Promise<void> | null = null

  /** Creates the file of this incarnation. On failure the node still works, and proves nothing. */
  constructor(options: StartLogOptions) {
    this.#options = options
    // A boot id is required: otherwise a file from before a power cut would be trusted.
    if (bootId() === '') return
    try {
      mkdirSync(options.directory, {recursive: true, mode: 0o700})
      this.#log = new AppendLog({
        path: join(options.directory, `${PREFIX}${options.incarnation}`),
        header: (descriptor) => this.#header(descriptor),
        live: this.#running,
        lineOf: (id) => id,
      })
    } catch (error) {
      // A file that was left has no complete header.
      this.#reportNoProof(error)
    }
  }

  /**
   * Await this before the execution is passed to an executor. Executions of one turn share one write. Rejects
   * when the line cannot be written and the file cannot be discarded: an execution started now would count as
   * never started.
   */
  begin(execution: ExecutionKey): Promise<void> {
    this.#queued.push(execution)
    return (this.#writing ??= Promise.resolve().then(() => this.#write()))
  }

  /** The end of the execution is stored: a rewrite drops its line. */
  ended(execution: ExecutionKey): void {
    if (!this.#running.delete(executionId(execution))) return
    this.#endedUpTo = Math.max(this.#endedUpTo, execution.group)
  }

  #write(): void {
    const queued = this.#queued
    this.#queued = []
    this.#writing = null
    if (this.#log === null) return
    try {
      this.#log.append(queued.map(executionId))
    } catch (error) {
      return this.#discard(this.#log, error)
    }
    for (const key of queued) this.#running.set(executionId(key), key.group)
  }

  #header(descriptor: number): string {
    return JSON.stringify({
      life: this.#options.incarnation,
      boot: bootId(),
      file: fileIdentity(descriptor),
      upTo: this.#endedUpTo,
    } satisfies Header)
  }

  /** A line is missing: from here on the file must prove nothing. Throws when it still would. */
  #discard(log: AppendLog<number>, cause: unknown): void {
    log.discard()
    this.#log = null
    this.#reportNoProof(cause)
  }

  #reportNoProof(cause: unknown): void {
    this.#options.report(
      `started executions cannot be recorded (${messageOf(cause)}): if this node is killed, ` +
        'executions that it has claimed but not started become lost too',
    )
  }
}

/** Evidence that earlier incarnations of this node left. Files that prove nothing are left out. */
export function readPreviousIncarnations(directory: string): PreviousIncarnation[] {
  return namesIn(directory).flatMap((name) => {
    const previous = readIncarnation(join(directory, name))
    return previous !== null && name === `${PREFIX}${previous.incarnation}` ? [previous] : []
  })
}

/** Call when the store has the proof. After a crash before this it is sent again, which changes nothing. */
export function deletePreviousIncarnations(directory: string): void {
  for (const name of namesIn(directory)) {
    try {
      rmSync(join(directory, name), {force: true})
    } catch {
      // The evidence stays true, and the next incarnation sends it again.
    }
  }
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).filter((name) => name.startsWith(PREFIX))
  } catch {
    return [] // no directory: no incarnation before this one ran anything
  }
}

function readIncarnation(path: string): PreviousIncarnation | null {
  let lines: string[]
  let identity: string
  try {
    const file = openSync(path, 'r')
    try {
      identity = fileIdentity(file)
      lines = readFileSync(file, 'utf8').split('\n')
    } finally {
      closeSync(file)
    }
  } catch {
    return null // unreadable: proves nothing
  }
  const header = parseHeader(lines[0]!)
  if (header === null || header.boot === '' || header.boot !== bootId()) return null
  if (header.file !== identity) return null
  return {incarnation: header.life, upTo: header.upTo, started: new Set(lines.slice(1))}
}

/** `null` = torn, or discarded. */
function parseHeader(line: string): Header | null {
  const {life, boot, file, upTo} = parseRecord(line) ?? {}
  if (typeof life !== 'string' || typeof boot !== 'string') return null
  return typeof file === 'string' && typeof upTo === 'number' ? {life, boot, file, upTo} : null
}
