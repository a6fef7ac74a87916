/**
 * Id of the cluster this agent belongs to: the first one it joined, kept in its data directory. The agent
 * sends nothing to a server of another cluster, so a mistake in a URL cannot mix two clusters.
 */
import {join} from 'node:path'
import {readIfExists, replaceFile} from '../../platform/durable-file.ts'

const FILE = 'cluster-id'
const CLUSTER_ID = /^[A-Za-z0-9._:-]{1,256}$/

/** `null` before the first join. Throws when the file cannot be read or contains anything else. */
export async function readClusterId(directory: string): Promise<string | null> {
  const file = join(directory, FILE)
  const text = (await readIfExists(file))?.trim() ?? null
  if (text !== null && !CLUSTER_ID.test(text))
    throw new Error(`The file ${file} must contain a cluster id: it is damaged. Remove it`)
  return text
}

/** Durable when it resolves. A crash leaves the old state or the new one. */
export async function writeClusterId(directory: string, id: string): Promise<void> {
  await replaceFile(join(directory, FILE), `${id}\n`)
}
