/**
 * The load that the audit checks: thirty jobs that fire every second, on servers and agents, with every
 * catch-up rule, with and without retries and a time zone, and a chain. Knows the planned times of each job.
 */
import {setTimeout as pause} from 'node:timers/promises'
import type {ServerProcess} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import type {Marks} from './marks.ts'

const SECOND_MS = 1_000
const JOBS = 30
/** Flags of the agents, with the tag that the jobs target. */
export const AGENT_FLAGS = ['--tag', 'place=far', '--log-level', 'info']
/** Shell command by job number: most are short, some are likely to run when their node dies. */
const BODIES = ['true', 'sleep 0.1', 'true', 'sleep 0.5', 'true', 'sleep 1.5']
/** All fire every second, also after a change of the default time zone. */
const PLANS = [
  {schedule: '* * * * * *'},
  {schedule: '@every 1s'},
  {schedule: 'TZ=Asia/Kathmandu * * * * * *'},
  {schedule: '@every 1s'},
  {schedule: '* * * * * *', timezone: 'Europe/Berlin'},
]
const CATCH_UP = ['latest', 'skip', 'all'] as const

export interface LoadJob {
  readonly name: string
  readonly retries: number
  readonly forbids: boolean
  /**
   * Range of planned times that must be in the launch history: `from` <= time < `to`, each second, ms
   * since the epoch.
   */
  readonly from: number
  to: number
}

export class Load {
  readonly jobs: LoadJob[] = []
  /** `child` is launched after each success of `parent`. */
  readonly chain = {parent: 'any-00', child: 'after-any-00'}

  /** Submits all jobs to `server`. */
  static async start(server: ServerProcess, marks: Marks): Promise<Load> {
    const load = new Load()
    const {parent, child} = load.chain
    const work = {executor: 'shell', executor_config: {shell: 'true', command: marks.command()}}
    // The parent stays disabled until its dependent exists.
    await server.store({...marks.everySecond(parent), disabled: true})
    await server.store({name: child, parent_job: parent, ...work})
    for (let index = 0; index < JOBS; index += 1) await load.#store(server, marks, index)
    return load
  }

  /** Disables all jobs; nothing is planned after that. */
  async end(server: ServerProcess): Promise<void> {
    for (const job of this.jobs) {
      const {disabled} = (await server.get(`/jobs/${job.name}`)).json
      job.to = floorToSecond(Date.now())
      // Quarantine may have disabled it: its executions were on nodes that died.
      if (disabled === true) continue
      const {status, text} = await server.post(`/jobs/${job.name}/toggle`)
      if (status !== 200) throw new Error(`${job.name} cannot be disabled: ${status} ${text}`)
    }
  }

  async #store(server: ServerProcess, marks: Marks, index: number): Promise<void> {
    const place = index % 5 < 2 ? 'any' : index % 5 < 4 ? 'agent' : 'server'
    const name = `${place}-${String(index).padStart(2, '0')}`
    const tags = {any: {}, agent: {place: 'far:1'}, server: {server: 'true:1'}}[place]
    const forbids = index === 7
    const retries = index % 3 === 0 ? 0 : 3
    await server.store({
      ...marks.everySecond(name),
      disabled: false,
      ...PLANS[index % PLANS.length],
      catch_up: CATCH_UP[index % CATCH_UP.length]!,
      concurrency: forbids ? 'forbid' : 'allow',
      retries,
      tags,
      executor_config: {shell: 'true', command: marks.command(BODIES[index % BODIES.length])},
    })
    const from = floorToSecond(Date.now()) + SECOND_MS
    this.jobs.push({name, retries, forbids, from, to: Infinity})
  }
}

function floorToSecond(time: number): number {
  return Math.floor(time / SECOND_MS) * SECOND_MS
}

/** Waits for `ms` of real time while faults and load run; `stop` ends the wait early. Never rejects. */
export async function elapse(ms: number, stop?: AbortSignal): Promise<void> {
  try {
    await pause(ms, undefined, stop === undefined ? {} : {signal: stop})
  } catch (error) {
    if (stop?.aborted !== true) throw error
  }
}

/** Resolves when a launch is decided in the second it was planned for. */
export async function untilOnTime(server: ServerProcess, withinMs?: number): Promise<void> {
  const since = Date.now()
  await until(
    'launches are on time again',
    async () => {
      const {status, json} = await server.get('/jobs/any-00/launches?_end=1')
      if (status !== 200 || json.length === 0) return false
      const plannedAt = Date.parse(json[0].scheduled_at)
      return plannedAt > since && Date.parse(json[0].decided_at) - plannedAt < SECOND_MS
    },
    withinMs,
  )
}
