/**
 * Starts the thread of a backup and waits for it. SQLite writes synchronously, and a commit of gigabytes
 * takes long: on the main thread neither heartbeats nor the lease would pass.
 */
import {once} from 'node:events'
import {Worker} from 'node:worker_threads'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {textOf} from './errors.ts'

export interface BackupData {
  readonly url: string
  readonly target: string
  readonly applicationName: string
}

/** `null` = the backup is complete and on the disk; else why it was not written. */
export type FromBackup = string | null

/** Worker beside this file, with the same extension: from source or compiled. */
const ENTRY = new URL(
  `./backup-worker${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`,
  import.meta.url,
)

/** Writes a backup of one snapshot in a thread of its own. Throws `StoreUnavailable`. */
export async function writeBackupInThread(data: BackupData): Promise<void> {
  const worker = new Worker(ENTRY, {workerData: data})
  let problem: FromBackup = 'its thread ended'
  worker.once('message', (message: FromBackup) => (problem = message))
  try {
    await once(worker, 'exit')
  } catch (error) {
    problem = textOf(error)
  }
  if (problem !== null) throw new StoreUnavailable(`the backup was not written: ${problem}`)
}
