/**
 * Clients that submit, run and delete jobs on all servers while faults happen. Every acknowledged change must
 * be visible at the next read on any other server, and at the end.
 */
import type {Answer, ServerProcess} from '../../test/support/server-process.ts'
import type {ClusterProcess} from './cluster-process.ts'
import {elapse} from './load.ts'
import type {Mark, Marks} from './marks.ts'

/** Pause between two rounds of one client: steady traffic, not a benchmark. */
const ROUND_MS = 250
/** Rounds of which one deletes its job again. */
const DELETES_EVERY = 4

export class Clients {
  readonly #cluster: ClusterProcess
  readonly #command: string
  readonly #stored = new Map<string, string>()
  readonly #deleted = new Set<string>()
  readonly #runs: {readonly job: string; readonly group: number}[] = []
  readonly #broken: string[] = []
  readonly #ending = new AbortController()
  readonly #all: Promise<unknown>
  /** Calls acknowledged with 2xx, and all others. */
  acknowledged = 0
  refused = 0

  /** Starts the clients. */
  constructor(cluster: ClusterProcess, marks: Marks, count: number) {
    this.#cluster = cluster
    this.#command = marks.command()
    this.#all = Promise.all(Array.from({length: count}, (_, index) => this.#client(index)))
  }

  /** Stops the clients; resolves when no call is in flight. */
  async end(): Promise<void> {
    this.#ending.abort()
    await this.#all
  }

  /** Acknowledged changes that `server` does not show. */
  async problems(server: ServerProcess, marks: readonly Mark[]): Promise<string[]> {
    const problems = [...this.#broken]
    const {json} = await server.get('/jobs')
    const jobs = new Map<string, Answer['json']>(json.map((job: Answer['json']) => [job.name, job]))
    for (const [name, text] of this.#stored)
      if (jobs.get(name)?.displayname !== text)
        problems.push(`${name} was acknowledged, but no longer exists`)
    for (const name of this.#deleted)
      if (jobs.has(name)) problems.push(`${name} was deleted, but still exists`)
    for (const {job, group} of this.#runs) {
      if (!this.#stored.has(job)) continue
      const {status, json: launch} = await server.get(`/jobs/${job}/launches/${group}`)
      if (status !== 200 || launch.decision !== 'launched')
        problems.push(`run ${group} of ${job} was acknowledged: ${status} ${launch?.decision}`)
      else problems.push(...unmarked(launch, marks))
    }
    const numbers = this.#runs.map(({group}) => group)
    if (new Set(numbers).size !== numbers.length)
      problems.push('a launch number was assigned twice')
    return problems
  }

  async #client(id: number): Promise<void> {
    for (let round = 0; !this.#ending.signal.aborted; round += 1) {
      await this.#round(`client-${id}-${round}`, round + id)
      await elapse(ROUND_MS, this.#ending.signal)
    }
  }

  async #round(name: string, turn: number): Promise<void> {
    const servers = this.#cluster.responsive()
    const server = servers[turn % servers.length]
    const other = servers[(turn + 1) % servers.length]
    if (server === undefined || other === undefined) return
    const text = `text ${name}`
    const job = {name, displayname: text, schedule: '@manually', executor: 'shell'}
    const config = {shell: 'true', command: this.#command}
    const stored = await this.#ask(server, 'POST', '/jobs', {...job, executor_config: config})
    if (stored?.status !== 201) return
    this.#stored.set(name, text)
    const read = await this.#ask(other, 'GET', `/jobs/${name}`)
    if (read?.status === 404 || (read?.status === 200 && read.json.displayname !== text))
      this.#broken.push(`${name} was acknowledged, but another server does not show it`)
    const ran = await this.#ask(other, 'POST', `/jobs/${name}/run`)
    if (ran?.status === 202)
      this.#runs.push({job: name, group: Number(ran.headers.get('x-launch-id'))})
    if (turn % DELETES_EVERY !== 0) return
    // The job may or may not exist until the reply arrives.
    this.#stored.delete(name)
    const deleted = await this.#ask(server, 'DELETE', `/jobs/${name}`)
    if (deleted?.status === 200) this.#deleted.add(name)
  }

  /** `null` = no reply: the change may have happened or not. */
  async #ask(
    server: ServerProcess,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<Answer | null> {
    try {
      const answer = await server.ask(method, path, body)
      if (answer.status < 300) this.acknowledged += 1
      else this.refused += 1
      if (answer.status >= 400 && answer.status < 500 && method !== 'GET')
        this.#broken.push(`${method} ${path}: ${answer.status} ${answer.text}`)
      if (answer.status === 500) this.#broken.push(`${method} ${path}: 500 ${answer.text}`)
      return answer
    } catch (error) {
      // The server was killed or frozen during the call.
      if (error instanceof TypeError || (error as Error).name === 'TimeoutError') {
        this.refused += 1
        return null
      }
      throw error
    }
  }
}

/** Executions recorded as run without exactly one start mark. */
function unmarked(launch: Answer['json'], marks: readonly Mark[]): string[] {
  return launch.executions.flatMap(({id, status}: {id: string; status: string}) => {
    const starts = marks.filter(({execution, what}) => execution === id && what === 'start').length
    const isRight = status === 'lost' ? starts <= 1 : status === 'succeeded' && starts === 1
    return isRight ? [] : [`${launch.job_name} ${id}: ${status}, started ${starts} times`]
  })
}
