/**
 * Reads and durable writes of small files. The content is synced under a draft name, gets its final name in
 * one step, and then the directory is synced: a new name is durable only with its directory.
 *
 * A crash during a rewrite leaves the complete old file or the complete new one. Before the final name, it
 * leaves the old file, or none if none existed; the draft is left too and never read.
 */
import {closeSync, fsyncSync, openSync, readFileSync} from 'node:fs'
import {type FileHandle, link, open, readFile, rename, rm} from 'node:fs/promises'
import {dirname} from 'node:path'
import {codeOf} from '../lib/error.ts'

/** Readable by the user of the process only. */
const OWNER_ONLY = 0o600

/** `null` if the file does not exist. */
export async function readIfExists(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

/** Blocking form, for threads and starts. */
export function readIfExistsSync(path: string | URL): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

/** Replaces `path`, or creates it. Durable when it resolves. */
export async function replaceFile(path: string, text: string, mode = OWNER_ONLY): Promise<void> {
  const file = await openReplacement(path, [text], mode)
  await file.close()
  await syncDirectory(dirname(path))
}

/**
 * Replaces `path` by a file of these pieces, and resolves with it, open for appending. The caller syncs the
 * directory after it has taken over the file: from the rename on, the old one has no name.
 */
export async function openReplacement(
  path: string,
  pieces: Iterable<string>,
  mode = OWNER_ONLY,
): Promise<FileHandle> {
  const draft = `${path}.new`
  await rm(draft, {force: true})
  return await writeDraft(draft, pieces, mode, () => rename(draft, path))
}

/**
 * Creates `path` unless it exists: false if it does. `draft` is a name in the same directory that no other
 * process uses. Durable when it resolves with true.
 */
export async function createFile(path: string, text: string, draft: string): Promise<boolean> {
  try {
    const file = await writeDraft(draft, [text], OWNER_ONLY, () => link(draft, path))
    await file.close()
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  } finally {
    await rm(draft, {force: true})
  }
  await syncDirectory(dirname(path))
  return true
}

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}

/** Blocking form, for threads and commands. */
export function syncDirectorySync(path: string): void {
  const directory = openSync(path, 'r')
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}

/** Writes and syncs `draft`, then publishes it. Closes the file if any of these fails. */
async function writeDraft(
  draft: string,
  pieces: Iterable<string>,
  mode: number,
  publish: () => Promise<void>,
): Promise<FileHandle> {
  const file = await open(draft, 'ax', mode)
  try {
    for (const piece of pieces) await file.appendFile(piece)
    await file.sync()
    await publish()
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}
