/**
 * Mark of a store: shows that the store in a data directory was put back, in whatever way. A random mark is
 * in the store and in the file `belfry.mark` beside it. It changes at each start before anything runs, at
 * each stop, and every minute between: an earlier state of the store has an earlier mark. A counter narrows
 * the minute to about two seconds: it goes up in the store with writes that are made anyway, and then in the
 * file `belfry.count`. Both files also name themselves, so a copy of the whole directory shows too.
 *
 * A change of the mark writes its file twice, and the store in between. Crash points:
 * - After the first write: the file has the old mark and the new one, and the store the old one. Both count
 *   as equal, so an honest restart never looks put back.
 * - After the store: the file has both, and the store the new one.
 * - The first write for a store that was put back leaves out the old mark: the next start finds it again.
 *
 * The file of the counter is written after the commit, without a sync. It shows nothing unless it is whole
 * and has the mark of the store. Crash points:
 * - After the commit, and wherever the disk is full or the file read-only: the file has an older count than
 *   the store, so an honest restart never looks put back.
 * - The machine crashes: the file is older, torn or missing. The mark remains.
 * - After the mark has changed: the file has the mark before, until the next count.
 * - A release without the counter has run: the store and the file have the same count as before.
 *
 * Not found: a snapshot of the whole file system, and a copy that is put back after a crash which came within
 * seconds of the copy, or within two minutes if the machine crashed.
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
import {codeOf} from '../../lib/error.ts'
import {parseRecord} from '../../platform/append-log.ts'
import {syncDirectorySync} from '../../platform/durable-file.ts'

/** Readable by the user of the process only. */
const OWNER_ONLY = 0o600
/** A backup that is copied over the store is rarely younger. Each change costs five syncs of small files. */
const CHANGE_EVERY_MS = 60_000
/** Less than the time between two heartbeats, so that each one counts. */
const COUNT_EVERY_MS = 1_000
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

/** Mark and count in the store. */
export interface StoredMark {
  /** `''` = none. */
  readonly mark: string
  /** 0 = none. */
  readonly count: number
}

export interface MarkPaths {
  readonly mark: string
  readonly count: string
}

export class StoreMark {
  readonly #paths: MarkPaths
  readonly #newMark: () => string
  #changedAt: number | null = null
  #countedAt: number | null = null

  /** `newMark` makes random texts. */
  constructor(paths: MarkPaths, newMark: () => string) {
    this.#paths = paths
    this.#newMark = newMark
  }

  /** The file beside the store; `null` = missing or unreadable. */
  read(): MarkFile | null {
    try {
      const {content, isOriginal} = readNamed(this.#paths.mark)
      const {marks} = content
      return Array.isArray(marks) ? {marks: marks.map(String), isOriginal} : null
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return null
      throw error
    }
  }

  /** True only if a later state of this store was counted, or if the file of the counter is a copy. */
  isOlder({mark, count}: StoredMark): boolean {
    try {
      const {content, isOriginal} = readNamed(this.#paths.count)
      if (content['mark'] !== mark || typeof content['count'] !== 'number') return false
      return content['count'] > count || !isOriginal
    } catch {
      // The counter only narrows the time that the mark leaves open.
      return false
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

  isCountDue(now: number): boolean {
    return this.#countedAt === null || Math.abs(now - this.#countedAt) >= COUNT_EVERY_MS
  }

  /** Writes what the store has committed. A file that cannot be written stays as it is. */
  count(stored: StoredMark, now: number): void {
    this.#countedAt = now
    try {
      // A new file each time: one that was copied over it shows.
      writeNamed(this.#paths.count, {...stored, writtenAt: now}, {isSynced: false})
    } catch {
      // A full disk, for instance: the next count tries again.
    }
  }

  #write(marks: readonly string[], now: number): void {
    writeNamed(this.#paths.mark, {marks, writtenAt: now}, {isSynced: true})
    syncDirectorySync(dirname(this.#paths.mark))
  }
}

/** `content` is empty if the file is torn. Throws if it cannot be read. */
function readNamed(path: string) {
  const file = openSync(path, 'r')
  try {
    const content = parseRecord(readFileSync(file, 'utf8')) ?? {}
    const {writtenAt, inode, bornAt} = content
    const found = identityOf(file)
    // Some file systems number their files anew at each mount, which does not change them.
    const isUnchanged = found.changedAt <= Number(writtenAt) + WRITE_MAX_MS
    const isOriginal = bornAt === found.bornAt && (inode === found.inode || isUnchanged)
    return {content, isOriginal}
  } finally {
    closeSync(file)
  }
}

/** Replaces the file by one that names itself. The end of the process leaves the old file or the new one. */
function writeNamed(path: string, values: object, {isSynced}: {readonly isSynced: boolean}): void {
  const draft = `${path}.new`
  rmSync(draft, {force: true})
  const file = openSync(draft, 'ax', OWNER_ONLY)
  try {
    const {inode, bornAt} = identityOf(file)
    const bytes = Buffer.from(`${JSON.stringify({...values, inode, bornAt})}\n`)
    if (writeSync(file, bytes) < bytes.length) throw new Error('the disk is full')
    if (isSynced) fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(draft, path)
}

function identityOf(file: number): FileIdentity & {readonly changedAt: number} {
  const {ino, birthtimeNs, ctimeMs} = fstatSync(file, {bigint: true})
  return {inode: String(ino), bornAt: String(birthtimeNs), changedAt: Number(ctimeMs)}
}
