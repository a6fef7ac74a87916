/**
 * What this life of the node has handed to its executors, on disk, so that the next one can prove what an
 * earlier one had claimed and never started. Written before an execution is handed over, hence:
 *
 *   absent from the whole file of a life, its launch above `upTo`  =  never started by that life
 *
 *   {"life":"…","boot":"…","file":"2049:1311","upTo":0}
 *   12-web-1
 *   13-web-1
 *
 * It is no proof, and then says so by being gone or unreadable: after a reboot (written without fsync: a
 * power cut may take lines away), in a copy (what was begun since the copy is missing), and once a line could
 * not be written. It holds whatever the store says: also when that is an image of yesterday.
 *
 * Crash points: within a line, what it stands for was not handed over yet. While the file is rewritten, the
 * old one or the new one is there, whole: the rename is the switch.
 */
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import {join} from 'node:path'
import {executionId, type ExecutionKey} from '../core/execution.ts'
import {bootId} from '../platform/boot-id.ts'
import type {PreviousIncarnation} from '../ports/node-store.ts'

const PREFIX = 'begun-'

/** Rewritten once it has this many lines more than are in hand: some 80 KiB. */
const ENDED_LINES_MAX = 4096

interface Head {
  readonly life: string
  readonly boot: string
  /** Device and inode: a copy has others. */
  readonly file: string
  /** Launches up to this number may have begun and left the file since. */
  readonly upTo: number
}

export interface StartLogOptions {
  /** `<data>/executions`. */
  readonly directory: string
  readonly incarnation: string
  /** Told in one sentence why this life proves nothing. */
  readonly report: (sentence: string) => void
}

export class StartLog {
  readonly #options: StartLogOptions
  readonly #path: string
  /** `null` = nothing is recorded, and nothing stands on disk that would prove anything. */
  #file: number | null = null
  /** Begun and not ended, with the number of the launch. */
  readonly #inHand = new Map<string, number>()
  #endedUpTo = 0
  #lines = 0
  /** The last write may have left half a line. */
  #torn = false
  /** Begun in this turn, and the one write for all of them. */
  #due: ExecutionKey[] = []
  #writing: Promise<void> | null = null

  /** Begins the file of this life. Where that cannot be, the life goes on and proves nothing. */
  constructor(options: StartLogOptions) {
    this.#options = options
    this.#path = join(options.directory, `${PREFIX}${options.incarnation}`)
    // Where the system does not name the boot, a file from before a power cut would be taken for whole.
    if (bootId() === '') return
    try {
      mkdirSync(options.directory, {recursive: true, mode: 0o700})
      this.#file = this.#begin(this.#path)
    } catch (error) {
      // What may have been made of it has no whole head.
      this.#provesNothing(error)
    }
  }

  /**
   * To be waited for before the execution is handed to an executor. Those of one turn are one write. Rejects
   * when it could be neither written nor the file made void: what was started now would be taken for never
   * started.
   */
  begin(execution: ExecutionKey): Promise<void> {
    this.#due.push(execution)
    return (this.#writing ??= Promise.resolve().then(() => this.#write()))
  }

  /** Its end is stored: the line may go. */
  ended(execution: ExecutionKey): void {
    if (!this.#inHand.delete(executionId(execution))) return
    this.#endedUpTo = Math.max(this.#endedUpTo, execution.group)
  }

  #write(): void {
    const due = this.#due
    this.#due = []
    this.#writing = null
    if (this.#file === null) return
    if (this.#lines >= ENDED_LINES_MAX + 2 * this.#inHand.size) this.#rewrite()
    const text = due.map((key) => `${executionId(key)}\n`).join('')
    try {
      writeWhole(this.#file, this.#torn ? `\n${text}` : text)
    } catch (error) {
      this.#torn = true
      return this.#void(error)
    }
    this.#torn = false
    this.#lines += due.length
    for (const key of due) this.#inHand.set(executionId(key), key.group)
  }

  /** Answers the file of a life at its beginning. */
  #begin(path: string): number {
    const file = openSync(path, 'wx', 0o600)
    try {
      const head: Head = {
        life: this.#options.incarnation,
        boot: bootId(),
        file: identityOf(file),
        upTo: this.#endedUpTo,
      }
      writeWhole(file, `${JSON.stringify(head)}\n`)
      return file
    } catch (error) {
      closeSync(file)
      throw error
    }
  }

  /** With only what is in hand. Where it cannot be, the old file grows on; tried again later. */
  #rewrite(): void {
    this.#lines = this.#inHand.size
    const fresh = `${this.#path}.new`
    let file: number | null = null
    try {
      rmSync(fresh, {force: true})
      file = this.#begin(fresh)
      writeWhole(file, [...this.#inHand.keys()].map((id) => `${id}\n`).join(''))
      renameSync(fresh, this.#path)
    } catch {
      if (file !== null) closeSync(file)
      return
    }
    const old = this.#file!
    this.#file = file
    this.#torn = false
    closeSync(old)
  }

  /** A line is missing: from here on the file must prove nothing. Throws when it still would. */
  #void(error: unknown): void {
    const file = this.#file!
    try {
      ftruncateSync(file, 0)
    } catch {
      rmSync(this.#path, {force: true})
    }
    this.#file = null
    closeSync(file)
    this.#provesNothing(error)
  }

  #provesNothing(error: unknown): void {
    const why = error instanceof Error ? error.message : String(error)
    this.#options.report(
      `what is begun cannot be recorded (${why}); should this node be killed, ` +
        'what it has claimed and not started becomes lost as well',
    )
  }
}

/** What earlier lives of this node can prove. Files that prove nothing are left out. */
export function readPreviousIncarnations(directory: string): PreviousIncarnation[] {
  return namesIn(directory).flatMap((name) => {
    const life = readIncarnation(join(directory, name))
    return life !== null && name === `${PREFIX}${life.incarnation}` ? [life] : []
  })
}

/** The store has been told. A crash before this only tells it once more, which changes nothing. */
export function deletePreviousIncarnations(directory: string): void {
  for (const name of namesIn(directory)) {
    try {
      rmSync(join(directory, name), {force: true})
    } catch {
      // It stays true, and is told again by the next life.
    }
  }
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).filter((name) => name.startsWith(PREFIX))
  } catch {
    return [] // not there: no life before this one ran anything
  }
}

function readIncarnation(path: string): PreviousIncarnation | null {
  let lines: string[]
  let identity: string
  try {
    const file = openSync(path, 'r')
    try {
      identity = identityOf(file)
      lines = readFileSync(file, 'utf8').split('\n')
    } finally {
      closeSync(file)
    }
  } catch {
    return null // what cannot be read proves nothing
  }
  const head = parseHead(lines[0]!)
  if (head === null || head.boot === '' || head.boot !== bootId()) return null
  if (head.file !== identity) return null
  return {incarnation: head.life, upTo: head.upTo, begun: new Set(lines.slice(1))}
}

/** `null` = torn, or emptied on purpose. */
function parseHead(text: string): Head | null {
  try {
    const {life, boot, file, upTo} = JSON.parse(text) as Record<string, unknown>
    if (typeof life !== 'string' || typeof boot !== 'string' || typeof file !== 'string')
      return null
    return typeof upTo === 'number' ? {life, boot, file, upTo} : null
  } catch {
    return null
  }
}

function identityOf(file: number): string {
  const {dev, ino} = fstatSync(file, {bigint: true})
  return `${dev}:${ino}`
}

/** A disk that fills up takes a part, and says so only by the count. */
function writeWhole(file: number, text: string): void {
  const bytes = Buffer.from(text)
  if (writeSync(file, bytes) < bytes.length) throw new Error('the disk is full')
}
