/**
 * The people who use the cluster while faults happen: they change the default time zone, edit jobs, pause
 * firing, cordon and drain nodes, and cancel executions. Each request is repeated until a server accepts it,
 * and remembered, so that the audit knows what was asked for.
 */
import type {Answer, ServerProcess} from '../../test/support/server-process.ts'
import type {SeededRandom} from '../../test/support/seeded-random.ts'
import {until} from '../../test/support/waiting.ts'
import type {ClusterProcess} from './cluster-process.ts'
import {elapse, type Load} from './load.ts'

type Json = Answer['json']

/** The store may be away for a minute, and a leader has to follow. */
const ACCEPTED_WITHIN_MS = 150_000
/** A node learns of its cordon within this time; what it has claimed before may start until then. */
const CORDON_KNOWN_MS = 5_000
/** Longest time from a claim to its start on a slow machine. */
const UNSTARTED_MS = 30_000

/** The process never started: the stored start is the end, and the time of the claim is not known. */
export function neverStarted({started_at: from, finished_at: to}: Json): boolean {
  return from === to
}
const EDITED_AT_ONCE = 5

export type Verb = 'cordon' | 'drain' | 'uncordon'

/** Times are ms since the epoch. A change is in force at `acceptedAt`, and may be since `askedAt`. */
interface Asked {
  readonly askedAt: number
  readonly acceptedAt: number
}

interface Pause extends Asked {
  readonly pattern: RegExp
  /** The end was asked for, and was accepted; or the time at which it ends by itself. */
  endAskedAt: number
  endedAt: number
}

interface Cordon extends Asked {
  readonly node: string
  endAskedAt: number
}

export class Operators {
  readonly #cluster: ClusterProcess
  readonly #load: Load
  readonly #pauses: Pause[] = []
  readonly #cordons: Cordon[] = []
  readonly #drains: (Asked & {readonly node: string; readonly deadlineMs: number})[] = []
  /** Launches of which the cancellation of an execution was asked for, accepted or not. */
  readonly #cancelled = new Set<number>()
  /** Sentences, oldest first. */
  readonly done: string[] = []

  constructor(cluster: ClusterProcess, load: Load) {
    this.#cluster = cluster
    this.#load = load
  }

  async setTimezone(zone: string): Promise<void> {
    await this.#accepted('PATCH', '/settings', {timezone: zone})
    this.done.push(`time zone: ${zone}`)
  }

  /** Edits some jobs; their planned times stay. */
  async editSome(random: SeededRandom): Promise<void> {
    for (let count = 0; count < EDITED_AT_ONCE; count += 1) {
      const {name} = random.pick(this.#load.jobs)
      await this.#accepted('PATCH', `/jobs/${name}`, {metadata: {edit: `${random.fraction()}`}})
    }
    this.done.push(`${EDITED_AT_ONCE} jobs edited`)
  }

  /** Pauses the jobs that match `glob` for `hold`, or, with `untilMs`, until the pause ends by itself. */
  async pause(glob: string, hold: () => Promise<unknown>, untilMs?: number): Promise<void> {
    const end = untilMs === undefined ? {} : {until: `${untilMs}ms`}
    const asked = await this.#accepted('POST', '/firing/pause', {jobs: glob, ...end})
    const stored = asked.json.pauses.find(({jobs}: Json) => jobs === glob)
    const endsAt = untilMs === undefined ? Infinity : Date.parse(stored.until)
    const pattern = new RegExp(`^${glob.replaceAll('*', '.*')}$`)
    const pause = {...asked, pattern, endAskedAt: endsAt, endedAt: endsAt}
    this.#pauses.push(pause)
    await hold()
    const ended = await this.#accepted('POST', '/firing/resume', {jobs: glob})
    pause.endAskedAt = Math.min(endsAt, ended.askedAt)
    pause.endedAt = Math.min(endsAt, ended.acceptedAt)
    const seconds = ((pause.endedAt - pause.askedAt) / 1_000).toFixed(1)
    this.done.push(`pause of ${glob}, ${seconds} s`)
  }

  /** Cordons, drains or uncordons a node. `deadlineMs` is that of a drain. */
  async schedule(node: string, verb: Verb, deadlineMs = 0): Promise<void> {
    const body = verb === 'drain' ? {deadline: `${deadlineMs}ms`} : undefined
    const open = this.#cordons.find((each) => each.node === node && each.endAskedAt === Infinity)
    if (verb === 'uncordon' && open !== undefined) open.endAskedAt = Date.now()
    const asked = await this.#accepted('POST', `/members/${node}/${verb}`, body)
    if (verb !== 'uncordon' && open === undefined)
      this.#cordons.push({...asked, node, endAskedAt: Infinity})
    if (verb === 'drain') this.#drains.push({...asked, node, deadlineMs})
    this.done.push(`${verb} of ${node}${verb === 'drain' ? `, ${deadlineMs} ms` : ''}`)
  }

  /** Asks for the end of an execution that runs or waits; it may have ended meanwhile. */
  async cancelOne(random: SeededRandom): Promise<void> {
    const {name} = random.pick(this.#load.jobs)
    for (const server of this.#cluster.responsive()) {
      const query = '?status=all&_sort=started_at&_order=DESC&_end=10'
      const found = await answered(server, 'GET', `/jobs/${name}/executions${query}`)
      const open = (found?.status === 200 ? found.json : []).filter(({status}: Json) => {
        return status === 'pending' || status === 'running'
      })
      if (open.length === 0) continue
      const {id} = random.pick<Json>(open)
      this.#cancelled.add(groupOf(id))
      await answered(server, 'POST', `/jobs/${name}/executions/${id}/cancel`)
      this.done.push(`cancel of ${name} ${id}`)
      return
    }
  }

  /** Number of launches of which an execution was to be cancelled. */
  get cancelsAsked(): number {
    return this.#cancelled.size
  }

  /** True if the cancellation of this execution, or of another one of its launch, was requested. */
  hasCancelled({id}: Json): boolean {
    return this.#cancelled.has(groupOf(id))
  }

  /** True if a drain explains that the execution was stopped. */
  hasDrained(execution: Json): boolean {
    const {node_name: node, started_at: from, finished_at: to} = execution
    const endedAt = Date.parse(to)
    return this.#drains.some(({askedAt, acceptedAt, deadlineMs, ...drain}) => {
      const until = acceptedAt + deadlineMs
      const isBefore = neverStarted(execution)
        ? endedAt <= until + UNSTARTED_MS
        : Date.parse(from) <= until
      return drain.node === node && isBefore && askedAt + deadlineMs <= endedAt
    })
  }

  /** The cordon under which the execution started, although its node must have learnt of it. */
  cordonOf({node_name: node, started_at: startedAt}: Json): Cordon | undefined {
    const at = Date.parse(startedAt)
    return this.#cordons.find((cordon) => {
      const isAfter = at > cordon.acceptedAt + CORDON_KNOWN_MS
      return cordon.node === node && isAfter && at < cordon.endAskedAt
    })
  }

  /** True if a pause explains that the row was skipped. */
  explainsSkip(row: Json): boolean {
    const last = Date.parse(row.scheduled_until)
    const decidedAt = Date.parse(row.decided_at)
    return this.#pausesOf(row).some(({askedAt, endedAt}) => askedAt <= decidedAt && last < endedAt)
  }

  /** True if a pause forbade the launch of this row. */
  isPaused(row: Json): boolean {
    const at = Date.parse(row.scheduled_at)
    const decidedAt = Date.parse(row.decided_at)
    return this.#pausesOf(row).some(({acceptedAt, endAskedAt}) => {
      const isDuring = at > acceptedAt && at < endAskedAt
      return decidedAt > acceptedAt && (isDuring || decidedAt < endAskedAt)
    })
  }

  #pausesOf({job_name: name}: Json): Pause[] {
    return this.#pauses.filter(({pattern}) => pattern.test(name))
  }

  /** Sends the request to one server after the other until one accepts it. */
  async #accepted(method: string, path: string, body?: unknown): Promise<Asked & {json: Json}> {
    const askedAt = Date.now()
    let turn = 0
    const json = await until(
      `${method} ${path} is accepted`,
      async () => {
        const servers = this.#cluster.responsive()
        const server = servers[turn % servers.length]
        turn += 1
        const answer = server === undefined ? null : await answered(server, method, path, body)
        if (answer !== null && answer.status < 300) return {body: answer.json}
        if (answer !== null && answer.status < 500)
          throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
        await elapse(200)
        return undefined
      },
      ACCEPTED_WITHIN_MS,
    )
    return {askedAt, acceptedAt: Date.now(), json: json.body}
  }
}

/** `null` = no reply: the server was killed or frozen during the call. */
async function answered(
  server: ServerProcess,
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer | null> {
  try {
    return await server.ask(method, path, body)
  } catch (error) {
    if (error instanceof TypeError || (error as Error).name === 'TimeoutError') return null
    throw error
  }
}

/** Launch number of an execution id. */
function groupOf(id: string): number {
  return Number(id.split('-')[0])
}
