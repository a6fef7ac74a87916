/**
 * The directory everything durable lives in. Prepared before anything else is opened, so that a full
 * explanation can be given in one sentence; who may hold it at a time is the store's business, not decided
 * here.
 */
import {constants} from 'node:fs'
import {access, mkdir, stat} from 'node:fs/promises'
import {dirname} from 'node:path'

/** Nobody else on the machine may read what jobs print. */
const OWNER_ONLY = 0o700

export type DataDirectory = {readonly ok: true} | {readonly ok: false; readonly problem: string}

/**
 * Creates `path` (mode 0700, parents too) when it is not there, and checks it can be written. `problem` is
 * one sentence.
 */
export async function prepareDataDirectory(path: string): Promise<DataDirectory> {
  try {
    await makeDirectories(path)
    if (!(await stat(path)).isDirectory()) return refuse(path, 'is not a directory')
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK)
    return {ok: true}
  } catch (error) {
    return refuse(path, whyNot(error))
  }
}

/**
 * Parents first. Not the platform's own `recursive`, which tries for ever where a directory exists and
 * nothing can be created in it (below `/proc`, for one).
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

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}

function refuse(path: string, why: string): DataDirectory {
  const fix = 'choose another with --data or give this user the right to write there'
  return {ok: false, problem: `The data directory ${path} ${why}; ${fix}.`}
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'may not be written by this user',
  EPERM: 'may not be written by this user',
  EROFS: 'is on a read-only file system',
  ENOSPC: 'cannot be created because the disk is full',
  ENOTDIR: 'lies under something that is not a directory',
  ENOENT: 'cannot be created there',
}

function whyNot(error: unknown): string {
  if (!(error instanceof Error)) return `cannot be used (${String(error)})`
  const known = 'code' in error ? REASONS[String(error.code)] : undefined
  return known ?? `cannot be used (${error.message})`
}
