/**
 * Directory of the scheduled backups of one store. A backup is complete or absent: it is written under a
 * draft name, synced, renamed, and then the directory is synced. A crash leaves a draft, which the next
 * leader removes. Files of any other form, and those of another store, are never touched.
 *
 *   belfry-<cluster>-<incarnation>-20261122T013000Z.sqlite
 */
import {chmod, mkdir, open, readdir, rename, rm, stat} from 'node:fs/promises'
import {join} from 'node:path'
import {syncDirectory} from './durable-file.ts'

const OWNER_ONLY = 0o600
const DIRECTORY_MODE = 0o700
/** Characters of an id in a name: enough to tell stores apart that share a directory. */
const ID_LENGTH = 8
const TIME = /^\d{8}T\d{6}Z$/
const SUFFIX = '.sqlite'
/** SQLite writes a log beside a draft. */
const DRAFT = /^\d{8}T\d{6}Z\.sqlite\.partial(?:-wal|-shm|-journal)?$/

export class BackupDirectory {
  readonly #path: string
  readonly #prefix: string

  /** `incarnation`: of the store. A restored store leaves the backups of the earlier one alone. */
  constructor(path: string, store: {readonly clusterId: string; readonly incarnation: string}) {
    this.#path = path
    const [cluster, incarnation] = [store.clusterId, store.incarnation].map((id) =>
      id.slice(0, ID_LENGTH),
    )
    this.#prefix = `belfry-${cluster}-${incarnation}-`
  }

  /** Creates the directory if it is missing, and removes what an interrupted backup left. */
  async prepare(): Promise<void> {
    await mkdir(this.#path, {recursive: true, mode: DIRECTORY_MODE})
    for (const name of await this.#own())
      if (DRAFT.test(name.slice(this.#prefix.length)))
        await rm(join(this.#path, name), {force: true})
  }

  /** Path of a new draft. `at`: when the backup begins, ms since the epoch. */
  draft(at: number): string {
    return join(this.#path, `${this.#prefix}${timeName(at)}${SUFFIX}.partial`)
  }

  /** Gives a complete draft its name. Durable when it resolves with the path and the size in bytes. */
  async publish(draft: string): Promise<{readonly file: string; readonly bytes: number}> {
    await chmod(draft, OWNER_ONLY)
    const handle = await open(draft, 'r+')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
    const {size: bytes} = await stat(draft)
    const file = draft.slice(0, -'.partial'.length)
    await rename(draft, file)
    await syncDirectory(this.#path)
    return {file, bytes}
  }

  async discard(draft: string): Promise<void> {
    for (const ending of ['', '-wal', '-shm', '-journal'])
      await rm(`${draft}${ending}`, {force: true})
  }

  /**
   * Deletes all but the newest `keep` backups of this store, and never `newest`. Names of the future, from a
   * wrong clock, go first.
   */
  async removeOld(keep: number, newest: string, now: number): Promise<void> {
    const times = (await this.#own())
      .map((name) => name.slice(this.#prefix.length))
      .filter((rest) => rest.endsWith(SUFFIX) && TIME.test(rest.slice(0, -SUFFIX.length)))
      .filter((rest) => join(this.#path, `${this.#prefix}${rest}`) !== newest)
    const last = `${timeName(now)}${SUFFIX}`
    const past = times.filter((name) => name <= last).toSorted()
    const old = past.slice(0, Math.max(0, past.length - (keep - 1)))
    for (const rest of [...times.filter((name) => name > last), ...old])
      await rm(join(this.#path, `${this.#prefix}${rest}`), {force: true})
  }

  async #own(): Promise<string[]> {
    return (await readdir(this.#path)).filter((name) => name.startsWith(this.#prefix))
  }
}

/** `20261122T013000Z`: names sort as their times do. */
function timeName(at: number): string {
  return `${new Date(at).toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`
}
