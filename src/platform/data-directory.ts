/**
 * Data directory of a node: everything durable is in it. It is prepared before anything else is opened, so
 * that a problem is reported in one sentence. The node id in it identifies the node in its cluster.
 */
import {chmodSync, closeSync, constants, existsSync, openSync, statSync} from 'node:fs'
import {access, mkdir, realpath, stat} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {codeOf, messageOf} from '../lib/error.ts'
import type {Random} from '../ports/runtime.ts'
import {createFile, readIfExists} from './durable-file.ts'

/** Other users of the machine must not read what jobs print. */
const OWNER_ONLY = 0o700

export type DataDirectory =
  | {readonly ok: true; readonly warning: string | null}
  | {readonly ok: false; readonly problem: string}

/** Creates `path` (mode 0700, parents too) if it is missing, and checks that it can be written. */
export async function prepareDataDirectory(path: string): Promise<DataDirectory> {
  try {
    await makeDirectories(path)
    const found = await stat(path)
    if (!found.isDirectory()) return refuse(path, 'it is not a directory')
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK)
    return {ok: true, warning: (found.mode & OTHERS_WRITE) === 0 ? null : sharedWarning(path)}
  } catch (error) {
    return refuse(path, causeOf(error))
  }
}

/** The mode stays as it is: a directory such as /tmp serves others too. */
function sharedWarning(path: string): string {
  return (
    `Other users of this machine can replace files in the data directory ${path}, and so run commands ` +
    `as this user. Run chmod 700 ${path}, or choose another with --data.`
  )
}

/**
 * A directory above `path`, on the way through its links too, where another user can replace a part of the
 * way: one that others may write to, or that belongs to a user who is neither root nor this one. In a
 * directory with the sticky bit others replace nothing that exists. `null` = none. Throws errors of the file
 * system.
 */
export async function sharedDirectoryAbove(path: string): Promise<string | null> {
  const found = await sharedIn(path)
  if (found !== null) return found
  const real = await realpath(path)
  return real === path ? null : sharedIn(real)
}

async function sharedIn(path: string): Promise<string | null> {
  const {mode, uid} = await stat(path)
  const isForeign = uid !== 0 && uid !== process.geteuid?.()
  if (isForeign || ((mode & OTHERS_WRITE) !== 0 && (mode & STICKY) === 0)) return path
  return dirname(path) === path ? null : sharedIn(dirname(path))
}

/**
 * Parents first. The platform's own `recursive` never returns where a directory exists and nothing can be
 * created in it (below `/proc`, for example).
 */
async function makeDirectories(path: string): Promise<void> {
  const made = await makeDirectory(path)
  if (made || dirname(path) === path) return
  await makeDirectories(dirname(path))
  await mkdir(path, OWNER_ONLY)
}

/** False when its parent is missing. */
async function makeDirectory(path: string): Promise<boolean> {
  try {
    await mkdir(path, OWNER_ONLY)
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return true
    if (codeOf(error) === 'ENOENT') return false
    throw error
  }
}

/** Files hold definitions, secrets of jobs and output. */
const FILE_OWNER_ONLY = 0o600
const OTHERS = 0o077
const OTHERS_WRITE = 0o022
const STICKY = 0o1000

/** Creates an empty file for its owner only, whatever the umask, before a library opens it. */
export function createForOwner(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, 'ax', FILE_OWNER_ONLY))
}

/** Takes the rights of other users away from a file that an earlier release created with them. */
export function restrictToOwner(path: string): void {
  const mode = statSync(path, {throwIfNoEntry: false})?.mode ?? 0
  if ((mode & OTHERS) === 0) return
  try {
    chmodSync(path, FILE_OWNER_ONLY)
  } catch {
    // Another user owns it and decides who may read it; opening it shows whether this user may.
  }
}

function refuse(path: string, cause: string): DataDirectory {
  const fix = 'Choose another with --data, or give this user write permission'
  return {ok: false, problem: `The data directory ${path} cannot be used: ${cause}. ${fix}.`}
}

const CAUSES: Readonly<Record<string, string>> = {
  EACCES: 'this user may not write to it',
  EPERM: 'this user may not write to it',
  EROFS: 'the file system is read-only',
  ENOSPC: 'it cannot be created because the disk is full',
  ENOTDIR: 'a part of its path is not a directory',
  ENOENT: 'it cannot be created there',
}

function causeOf(error: unknown): string {
  return CAUSES[codeOf(error)] ?? messageOf(error)
}

/*
 * Node id: random, created at the first start. The host name is no identity, since machines are cloned and
 * renamed.
 */

export const NODE_ID_FILE = 'node-id'
const NODE_ID = /^[A-Za-z0-9_-]{16,64}$/

export type NodeIdentity =
  {readonly ok: true; readonly id: string} | {readonly ok: false; readonly problem: string}

/** The id in `<directory>/node-id`, created and made durable if there is none. */
export async function nodeIdentity(directory: string, random: Random): Promise<NodeIdentity> {
  const file = join(directory, NODE_ID_FILE)
  try {
    const id = (await readId(file)) ?? (await createId(file, random))
    if (NODE_ID.test(id)) return {ok: true, id}
    return {
      ok: false,
      problem: `The file ${file} must contain a node id: it is damaged. Remove it to create a new id.`,
    }
  } catch (error) {
    return {ok: false, problem: `The node id in ${file} cannot be used: ${messageOf(error)}.`}
  }
}

async function readId(file: string): Promise<string | null> {
  return (await readIfExists(file))?.trim() ?? null
}

/** Two processes may start at once: the id of the first counts for both. */
async function createId(file: string, random: Random): Promise<string> {
  const id = random.id()
  const isCreated = await createFile(file, `${id}\n`, `${file}.${random.id()}`)
  return isCreated ? id : ((await readId(file)) ?? '')
}
