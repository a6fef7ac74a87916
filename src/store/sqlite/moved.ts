/**
 * The sign in a data directory that its store has moved to a database: two stores of one cluster must not
 * both launch. It stands from just before the move is committed, so that a crash never leaves two stores that
 * start; a server refuses to start on the old one until somebody removes it.
 */
import {closeSync, fsyncSync, openSync, readFileSync, rmSync, writeSync} from 'node:fs'
import {join} from 'node:path'

/** The server that must heed it may run as another user; the directory is closed to everybody else. */
const READABLE = 0o644

export function movedFile(dataDir: string): string {
  return join(dataDir, 'belfry.moved')
}

/** Where the store has moved to, or `null`. Throws when the sign cannot be read. */
export function movedTo(dataDir: string): string | null {
  try {
    return readFileSync(movedFile(dataDir), 'utf8').split('\n')[0] ?? ''
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
    throw error
  }
}

/** Durable when it returns. `where` is one line without anything secret. */
export function signMoved(dataDir: string, where: string): void {
  writeDurably(movedFile(dataDir), 'w', `${where}\n`)
  writeDurably(dataDir, 'r', '')
}

export function unsignMoved(dataDir: string): void {
  rmSync(movedFile(dataDir), {force: true})
}

/** One sentence for whoever starts a server on the store that was left. */
export function whyMoved(dataDir: string, where: string): string {
  return (
    `The store in ${dataDir} has moved to ${where}; start with --store and its URL, ` +
    `or remove ${movedFile(dataDir)} to go on with the old one.`
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
