/**
 * Who this node is: a random id kept in its data directory, minted at the first start. The host name is not
 * an identity, since machines are cloned and renamed. The file is created whole or not at all, also when two
 * processes start at once.
 */
import {link, open, readFile, rm} from 'node:fs/promises'
import {join} from 'node:path'
import type {Random} from '../ports/random.ts'

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

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
