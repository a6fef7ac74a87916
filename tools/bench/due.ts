/** Jobs that run `true` at chosen instants, and waits for these instants. */
import type {JobBody} from './server-process.ts'

export const SECOND_MS = 1000

/** Jobs that fire every second from `startAt` on, at that instant or spread over the second. */
export function steady(count: number, startAt: number, spread: boolean): JobBody[] {
  return Array.from({length: count}, (_, index) => {
    const starts_at = new Date(startAt + phaseMs(spread ? index : 0, count)).toISOString()
    return {...plain(`steady-${index}`), schedule: '@every 1s', starts_at}
  })
}

/** Offset of a job within the second, ms, if the jobs are spread evenly. */
export function phaseMs(index: number, count: number): number {
  return Math.floor((index * SECOND_MS) / count)
}

/** Jobs that are all planned for one instant. */
export function atOnce(count: number, dueAt: number): JobBody[] {
  const schedule = `@at ${new Date(dueAt).toISOString()}`
  return Array.from({length: count}, (_, index) => ({...plain(`burst-${index}`), schedule}))
}

function plain(name: string): JobBody {
  return {name, executor: 'shell', executor_config: {command: 'true'}}
}

/** First whole second that is at least this far ahead, ms since the epoch. */
export function nextSecond(aheadMs: number): number {
  return Math.ceil((Date.now() + aheadMs) / SECOND_MS) * SECOND_MS
}

export async function until(instant: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, instant - Date.now())))
}
