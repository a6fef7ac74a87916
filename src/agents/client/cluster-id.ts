/**
 * Which cluster this agent belongs to: the first it met, kept in its data directory. A server of another
 * cluster is never given anything, so that a slip in a URL cannot mix two of them.
 */
import {open, readFile, rename} from 'node:fs/promises'
import {join} from 'node:path'
import {syncDirectory} from '../../platform/durable-file.ts'

const FILE = 'cluster-id'
const CLUSTER_ID = /^[A-Za-z0-9._:-]{1,256}$/

/** `null` before the first. Throws a sentence when the file holds something else. */
export async function knownCluster(directory: string): Promise<string | null> {
  const file = join(directory, FILE)
  let text: string
  try {
    text = (await readFile(file, 'utf8')).trim()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
    throw error
  }
  if (!CLUSTER_ID.test(text)) throw new Error(`${file} holds no id of a cluster; remove it`)
  return text
}

/** Durable when it resolves. A crash leaves the old state or the new one. */
export async function rememberCluster(directory: string, id: string): Promise<void> {
  const file = join(directory, FILE)
  const handle = await open(`${file}.new`, 'w', 0o600)
  try {
    await handle.writeFile(`${id}\n`)
    await handle.sync()
  } finally {
    await handle.close()
  }
  await rename(`${file}.new`, file)
  await syncDirectory(directory)
}
