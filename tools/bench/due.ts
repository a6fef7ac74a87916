/** Jobs that run a command at chosen instants, the delays of their starts, and waits for instants. */
import type {JobBody} from './server-process.ts'
import type {Start} from './start-watch.ts'

export const SECOND_MS = 1000

/** Parameters of the shell executor for the job with a number. */
type Command = (number: number) => Readonly<Record<string, string>>

export interface Steady {
  readonly count: number
  /** First planned second, ms since 1970. */
  readonly startAt: number
  /** Number of planned times of each job. */
  readonly seconds: number
  /** Spread over the second, or all at its start. */
  readonly spread: boolean
}

/** Jobs that fire every second, a fixed number of times. */
export function steady({count, startAt, seconds, spread}: Steady, command: Command): JobBody[] {
  return Array.from({length: count}, (_, index) => ({
    ...shell(`steady-${index}`, command(index)),
    schedule: '@every 1s',
    starts_at: new Date(startAt + phaseMs(spread ? index : 0, count)).toISOString(),
    expires_at: new Date(startAt + seconds * SECOND_MS - 1).toISOString(),
  }))
}

/** Delays of the starts of `steady` jobs that were planned at `from` or later, ms. */
export function steadyLags(
  {count, startAt, spread}: Steady,
  starts: readonly Start[],
  from: number,
): number[] {
  const seen = new Map<number, number>()
  return starts.flatMap(({number, atMs}) => {
    const earlier = seen.get(number) ?? 0
    seen.set(number, earlier + 1)
    const plannedAt = startAt + phaseMs(spread ? number : 0, count) + earlier * SECOND_MS
    return plannedAt < from ? [] : [atMs - plannedAt]
  })
}

/** Offset of a job within the second, ms, if the jobs are spread evenly. */
export function phaseMs(index: number, count: number): number {
  return Math.floor((index * SECOND_MS) / count)
}

/** Jobs that are all planned for one instant. */
export function atOnce(count: number, dueAt: number, command: Command): JobBody[] {
  const schedule = `@at ${new Date(dueAt).toISOString()}`
  return Array.from({length: count}, (_, index) => ({
    ...shell(`burst-${index}`, command(index)),
    schedule,
  }))
}

function shell(name: string, config: Readonly<Record<string, string>>) {
  return {name, executor: 'shell', executor_config: config}
}

/** First whole second that is at least this far ahead, ms since the epoch. */
export function nextSecond(aheadMs: number): number {
  return Math.ceil((Date.now() + aheadMs) / SECOND_MS) * SECOND_MS
}

export async function until(instant: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, instant - Date.now())))
}
