/**
 * Who may open the store in a data directory: one at a time. The lock is a transaction held open on a
 * database of its own, so the kernel gives it back however the process ends. Beside it a marker tells an
 * orderly end from any other.
 */
import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {failureOf, resultCode} from './errors.ts'

const BUSY = 5

export interface StoreFiles {
  readonly database: string
  /**
   * Holds nothing; whoever has it locked owns the store. Never opened by anything but SQLite, or the lock
   * would be lost.
   */
  readonly lock: string
  /** There while the store is open, and after an unclean stop. */
  readonly marker: string
}

export function storeFiles(dataDir: string): StoreFiles {
  return {
    database: join(dataDir, 'belfry.sqlite'),
    lock: join(dataDir, 'belfry.lock'),
    marker: join(dataDir, 'belfry.open'),
  }
}

export type Claimed =
  | {readonly ok: true; readonly ownership: Ownership}
  /** `problem` is one sentence. */
  | {readonly ok: false; readonly problem: string}

export class Ownership {
  readonly uncleanStop: boolean
  readonly #lock: DatabaseSync
  readonly #marker: string

  private constructor(lock: DatabaseSync, marker: string) {
    this.#lock = lock
    this.#marker = marker
    this.uncleanStop = existsSync(marker)
    writeFileSync(marker, '')
  }

  static claim(dataDir: string): Claimed {
    const {lock: file, marker} = storeFiles(dataDir)
    try {
      const lock = new DatabaseSync(file, {timeout: 0})
      try {
        lock.exec('BEGIN EXCLUSIVE')
        return {ok: true, ownership: new Ownership(lock, marker)}
      } catch (error) {
        lock.close()
        throw error
      }
    } catch (error) {
      const held = resultCode(error) === BUSY
      const why = held
        ? 'is held by another Belfry server; stop that one or choose another with --data'
        : `cannot be used: ${failureOf(error).message}`
      return {ok: false, problem: `The data directory ${dataDir} ${why}.`}
    }
  }

  /** `clean`: the store was closed in good order and needs no check next time. */
  release({clean}: {readonly clean: boolean}): void {
    if (clean) rmSync(this.#marker, {force: true})
    this.#lock.close()
  }
}

/*
 * The sign in a data directory that its store has moved to a database: two stores of one cluster must not
 * both launch. It stands from just before the move is committed, so that a crash never leaves two stores that
 * start; a server refuses to start on the old one until somebody removes it.
 */

/** The server that must heed it may run as another user; the directory is closed to everybody else. */
const READABLE = 0o644

export function migratedMarker(dataDir: string): string {
  return join(dataDir, 'belfry.moved')
}

/** Where the store has moved to, or `null`. Throws when the sign cannot be read. */
export function migratedTo(dataDir: string): string | null {
  try {
    return readFileSync(migratedMarker(dataDir), 'utf8').split('\n')[0] ?? ''
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
    throw error
  }
}

/** Durable when it returns. `where` is one line without anything secret. */
export function writeMigratedMarker(dataDir: string, where: string): void {
  writeDurably(migratedMarker(dataDir), 'w', `${where}\n`)
  writeDurably(dataDir, 'r', '')
}

export function removeMigratedMarker(dataDir: string): void {
  rmSync(migratedMarker(dataDir), {force: true})
}

/** One sentence for whoever starts a server on the store that was left. */
export function migratedProblem(dataDir: string, where: string): string {
  return (
    `The store in ${dataDir} has moved to ${where}; start with --store and its URL, ` +
    `or remove ${migratedMarker(dataDir)} to go on with the old one.`
  )
}

function writeDurably(path: string, flags: 'r' | 'w', text: string): void {
  const handle = openSync(path, flags, READABLE)
  try {
    if (text !== '') writeSync(handle, text)
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}
