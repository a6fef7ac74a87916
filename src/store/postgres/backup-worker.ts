/**
 * Entry point of the thread of one backup: reads the database over a connection of its own and writes the
 * file. Knows no store.
 */
import {parentPort, workerData} from 'node:worker_threads'
import {assert} from '../../lib/assert.ts'
import {systemClock} from '../../platform/clock.ts'
import {writeBackup} from './backup.ts'
import type {BackupData, FromBackup} from './backup-thread.ts'
import type {SessionKind} from './connection.ts'
import {textOf} from './errors.ts'
import {Primary} from './primary.ts'
import {parseAddress} from './url.ts'

const LONG_WORK: SessionKind = {purpose: 'upkeep', limits: 'long', indexScansOnly: false}

async function run({url, target, applicationName}: BackupData): Promise<FromBackup> {
  const parsed = parseAddress(url)
  if (!parsed.ok) return parsed.problem
  try {
    const {address} = parsed
    const session = await new Primary({address, clock: systemClock(), applicationName}).connect(
      LONG_WORK,
    )
    try {
      await writeBackup(session, target)
      return null
    } finally {
      await session.close()
    }
  } catch (error) {
    return textOf(error)
  }
}

const port = parentPort
assert(port !== null, 'a backup runs in its own thread')
port.postMessage(await run(workerData as BackupData))
port.close()
