/** Saturates a server: it always has more work than it can do, so that its maximum rate can be measured. */
import type {JobBody, ServerProcess} from './server-process.ts'

const SECOND_MS = 1000
/** Just before the next second's jobs are due: work waiting now exceeds one second's capacity. */
const LOOK_AT_MS = 900
/**
 * Share of the jobs of one second that must still wait just before the next second to count as saturated.
 */
const SATURATED_SHARE = 0.1
const GROWTH = 0.25
const RAMP_SECONDS_MAX = 20

/**
 * Stores `atFirst` jobs that run `true` every second, and more until work is left when the next second
 * starts. Returns the number of jobs.
 */
export async function saturate(server: ServerProcess, atFirst: number): Promise<number> {
  let jobs = atFirst
  await server.store(everySecond(0, jobs))
  // The first second is not representative: code is still being compiled.
  await untilWithinSecond(LOOK_AT_MS)
  await untilWithinSecond(LOOK_AT_MS)
  for (let second = 0; second < RAMP_SECONDS_MAX; second += 1) {
    await untilWithinSecond(LOOK_AT_MS)
    const {waiting} = await server.figures()
    if (waiting >= jobs * SATURATED_SHARE) return jobs
    const more = Math.ceil(jobs * GROWTH)
    await server.store(everySecond(jobs, more))
    jobs += more
  }
  throw new Error(`not saturated by ${jobs} jobs a second`)
}

/** Waits until `ms` into this second or the next. */
async function untilWithinSecond(ms: number): Promise<void> {
  const gone = Date.now() % SECOND_MS
  const waitMs = gone < ms ? ms - gone : SECOND_MS - gone + ms
  await new Promise((resolve) => setTimeout(resolve, waitMs))
}

/** Jobs that run `true` every second. */
export function everySecond(from: number, count: number): JobBody[] {
  return Array.from({length: count}, (_, index) => ({
    name: `job-${from + index}`,
    schedule: '@every 1s',
    executor: 'shell',
    executor_config: {command: 'true'},
  }))
}
