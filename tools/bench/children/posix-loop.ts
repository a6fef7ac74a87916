/**
 * The posix_spawn loop: starts `true` with posix_spawn of the C library again and again, a fixed number at a
 * time, without a scheduler, without reading output. It calls the C library as the process helper does.
 */
import {openSync} from 'node:fs'
import {loadPosixSpawn} from '../../../src/executors/process/helper/spawn-posix.ts'
import {type Spawn, spawnPortable} from '../../../src/executors/process/helper/spawn.ts'
import {answerQuestions} from '../link.ts'

let spawn: Spawn | null = null
const output = openSync('/dev/null', 'w')

export const handlers = {
  /** False where posix_spawn is not available. */
  open: async (_: null): Promise<boolean> => {
    try {
      spawn = (await loadPosixSpawn(spawnPortable)).spawn
      return true
    } catch {
      return false // the portable start is measured by the other loop
    }
  },

  /** Processes started and finished in about `ms`. */
  run: async ({parallel, ms}: {readonly parallel: number; readonly ms: number}) => {
    const beganAt = performance.now()
    let count = 0
    const again = async () => {
      while (performance.now() - beganAt < ms) {
        await runTrue()
        count += 1
      }
    }
    await Promise.all(Array.from({length: parallel}, again))
    return {count, perSecond: (count * 1000) / (performance.now() - beganAt)}
  },
}

function runTrue(): Promise<void> {
  const environment = {PATH: process.env['PATH'] ?? ''}
  const request = {argv: ['true'], environment, cwd: '', input: null, output, user: null}
  return new Promise((resolve, reject) => {
    spawn!(request, {
      exited: () => resolve(),
      failed: (code) => reject(new Error(`true: ${code}`)),
    })
  })
}

answerQuestions(handlers)
