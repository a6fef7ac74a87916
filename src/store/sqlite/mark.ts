/**
 * Mark of a store: shows that the store in a data directory was put back, in whatever way. A random mark is
 * in the store and in the file `belfry.mark` beside it. It changes at each start before anything runs, at
 * each stop, and every minute between: an earlier state of the store has an earlier mark. The file also names
 * itself, so a copy of the whole directory shows too.
 *
 * A change writes the file twice, and the store in between. Crash points:
 * - After the first write: the file has the old mark and the new one, and the store the old one. Both count
 *   as equal, so an honest restart never looks put back.
 * - After the store: the file has both, and the store the new one.
 * - Of a store that was put back, the first write leaves out the old mark: the next start finds it again.
 *
 * Not found: a snapshot of the whole file system, and a copy of the store alone that is at most two minutes
 * older than the crash after which it is put back.
 */
import {
  closeSync,
  fstatSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import {dirname} from 'node:path'
import {parseRecord} from '../../platform/append-log.ts'
import {syncDirectorySync} from '../../platform/durable-file.ts'

/** Readable by the user of the process only. */
const OWNER_ONLY = 0o600
/** A backup that is copied over the store is rarely younger. Each change costs five syncs of small files. */
const CHANGE_EVERY_MS = 60_000
/** A file changes a little later than the clock was read. */
const WRITE_MAX_MS = 10_000

interface MarkFile {
  /** Marks of the store to which this directory belongs; `''` = none yet. */
  readonly marks: readonly string[]
  /** The file is the one that was written, and no copy of it. */
  readonly isOriginal: boolean
}

/** Names the file that has these values. */
interface FileIdentity {
  readonly inode: string
  /** Birth time: differs between files that had one inode after another. 0 = the file system has none. */
  readonly bornAt: string
}

export class StoreMark {
  readonly #path: string
  readonly #newMark: () => string
  #changedAt: number | null = null

  /** `newMark` makes random texts. */
  constructor(path: string, newMark: () => string) {
    this.#path = path
    this.#newMark = newMark
  }

  /** The file beside the store; `null` = missing or unreadable. */
  read(): MarkFile | null {
    let file: number
    try {
      file = openSync(this.#path, 'r')
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
      throw error
    }
    try {
      const {marks, writtenAt, inode, bornAt} = parseRecord(readFileSync(file, 'utf8')) ?? {}
      if (!Array.isArray(marks)) return null
      const found = identityOf(file)
      // Some file systems number their files anew at each mount, which does not change them.
      const isUnchanged = found.changedAt <= Number(writtenAt) + WRITE_MAX_MS
      const isOriginal = bornAt === found.bornAt && (inode === found.inode || isUnchanged)
      return {marks: marks.map(String), isOriginal}
    } finally {
      closeSync(file)
    }
  }

  /**
   * Changes the mark: `store` durably stores the one it is given. `known`: other marks that stay valid until
   * then, `''` for a store without one. Throws if the file or the store cannot be written; either mark is
   * valid then.
   */
  change(known: readonly string[], now: number, store: (mark: string) => void): void {
    const mark = this.#newMark()
    this.#changedAt = now
    this.#write([...known, mark], now)
    store(mark)
    this.#write([mark], now)
  }

  /** True also after the clock was set back. */
  isDue(now: number): boolean {
    return this.#changedAt === null || Math.abs(now - this.#changedAt) >= CHANGE_EVERY_MS
  }

  /** Durable when it returns. A crash leaves the old file or the new one. */
  #write(marks: readonly string[], now: number): void {
    const draft = `${this.#path}.new`
    rmSync(draft, {force: true})
    const file = openSync(draft, 'ax', OWNER_ONLY)
    try {
      const {inode, bornAt} = identityOf(file)
      const content = {marks, writtenAt: now, inode, bornAt}
      const bytes = Buffer.from(`${JSON.stringify(content)}\n`)
      if (writeSync(file, bytes) < bytes.length) throw new Error('the disk is full')
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(draft, this.#path)
    syncDirectorySync(dirname(this.#path))
  }
}

function identityOf(file: number): FileIdentity & {readonly changedAt: number} {
  const {ino, birthtimeNs, ctimeMs} = fstatSync(file, {bigint: true})
  return {inode: String(ino), bornAt: String(birthtimeNs), changedAt: Number(ctimeMs)}
}
