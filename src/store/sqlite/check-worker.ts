/** Entry point of the thread that checks a backup: reading gigabytes must not stop the event loop. */
import {parentPort, workerData} from 'node:worker_threads'
import {assert} from '../../lib/assert.ts'
import {backupProblem} from './backup.ts'

const port = parentPort
assert(port !== null, 'a check runs in its own thread')
port.postMessage(backupProblem(workerData as string))
port.close()
