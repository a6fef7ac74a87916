/**
 * The plain spawn loop: `true`, started and awaited by child_process again and again, so many at a
 * time. No scheduler.
 */
import {spawn} from 'node:child_process'
import {answerQuestions} from '../link.ts'

export interface SpawnLoopInput {
  readonly parallel: number
  readonly ms: number
  /** `pipe` is child_process as it comes; `ignore` opens none. */
  readonly stdio: 'pipe' | 'ignore'
}

export interface SpawnLoopRate {
  readonly perSecond: number
  readonly count: number
}

export const handlers = {
  /** Processes started and ended in about `ms`. */
  run: async ({parallel, ms, stdio}: SpawnLoopInput): Promise<SpawnLoopRate> => {
    const beganAt = performance.now()
    let count = 0
    const lane = async () => {
      while (performance.now() - beganAt < ms) {
        await runTrue(stdio)
        count += 1
      }
    }
    await Promise.all(Array.from({length: parallel}, lane))
    return {count, perSecond: (count * 1000) / (performance.now() - beganAt)}
  },
}

function runTrue(stdio: 'pipe' | 'ignore'): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn('true', {stdio})
    child.once('error', reject)
    child.once('close', () => resolve())
  })
}

answerQuestions(handlers)
