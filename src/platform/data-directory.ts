/**
 * The directory everything durable lives in. Prepared before anything else is opened, so that a full
 * explanation can be given in one sentence; who may hold it at a time is the store's business, not decided
 * here.
 */
import {constants} from 'node:fs'
import {access, link, mkdir, open, readFile, rm, stat} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import type {Random} from '../ports/runtime.ts'

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

/*
 * Who this node is: a random id kept in its data directory, minted at the first start. The host name is not
 * an identity, since machines are cloned and renamed. The file is created whole or not at all, also when two
 * processes start at once.
 */

export const NODE_ID_FILE = 'node-id'
const NODE_ID = /^[A-Za-z0-9_-]{16,64}$/

export type NodeIdentity =
  {readonly ok: true; readonly id: string} | {readonly ok: false; readonly problem: string}

/**
 * The id kept in `<directory>/node-id`, minted and made durable if there is none. `problem` is one sentence.
 */
export async function nodeIdentity(directory: string, random: Random): Promise<NodeIdentity> {
  const file = join(directory, NODE_ID_FILE)
  try {
    const known = await readId(file)
    const id = known ?? (await mintId(directory, file, random))
    if (NODE_ID.test(id)) return {ok: true, id}
    return {
      ok: false,
      problem: `${file} does not hold a node id; remove it to have a new one minted.`,
    }
  } catch (error) {
    return {ok: false, problem: `The node id in ${file} cannot be used: ${messageOf(error)}.`}
  }
}

async function readId(file: string): Promise<string | null> {
  try {
    return (await readFile(file, 'utf8')).trim()
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw error
  }
}

/**
 * Written aside, synced, then linked into place. A crash before the link leaves a draft that nothing reads;
 * after it, the whole id. Linking fails when another process was faster: then its id counts.
 */
async function mintId(directory: string, file: string, random: Random): Promise<string> {
  const id = random.id()
  const draft = `${file}.${random.id()}`
  try {
    const handle = await open(draft, 'wx', 0o600)
    try {
      await handle.writeFile(`${id}\n`)
      await handle.sync()
    } finally {
      await handle.close()
    }
    try {
      await link(draft, file)
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error
      return (await readId(file)) ?? ''
    }
  } finally {
    await rm(draft, {force: true})
  }
  await syncDirectory(directory)
  return id
}

/** Makes the new name itself durable. */
async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
