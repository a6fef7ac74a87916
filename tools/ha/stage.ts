/** A Belfry cluster under load on a replicated PostgreSQL, shared by all scenarios, and its final audit. */
import assert from 'node:assert/strict'
import type {Owner, ServerProcess} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import {Clients} from '../faults/clients.ts'
import {ClusterProcess} from '../faults/cluster-process.ts'
import {AGENT_FLAGS, Load} from '../faults/load.ts'
import {Marks} from '../faults/marks.ts'
import {Operators} from '../faults/operators.ts'
import {isSound, auditCluster} from '../faults/audit.ts'

const CLIENTS = 4
const FLAGS = ['--keep-launches', '10000', '--keep-executions', '10000', '--grace', '10s']
const RECOVERED_WITHIN_MS = 60_000
const JOB = 'any-00'

export class Stage {
  readonly cluster: ClusterProcess
  readonly #marks: Marks
  readonly #load: Load
  readonly #clients: Clients
  /** Problems found during the scenarios. */
  readonly #noticed: string[] = []

  private constructor(cluster: ClusterProcess, marks: Marks, load: Load) {
    this.cluster = cluster
    this.#marks = marks
    this.#load = load
    this.#clients = new Clients(cluster, marks, CLIENTS)
  }

  /** Starts three servers on that store, two agents, thirty jobs that fire every second, and clients. */
  static async open(owner: Owner, store: string): Promise<Stage> {
    const cluster = await ClusterProcess.start(owner, {flags: FLAGS, store})
    for (const name of ['agent-1', 'agent-2']) await cluster.startAgent(name, {flags: AGENT_FLAGS})
    const marks = new Marks(owner)
    const load = await Load.start(await cluster.leader(), marks)
    const stage = new Stage(cluster, marks, load)
    owner.after(() => stage.#clients.end())
    return stage
  }

  /** Client calls acknowledged so far, and refused ones. */
  get calls(): {readonly acknowledged: number; readonly refused: number} {
    return this.#clients
  }

  /** Number of start marks. */
  starts(): number {
    return this.#marks.read().filter(({what}) => what === 'start').length
  }

  note(problem: string): void {
    this.#noticed.push(problem)
    say(`  PROBLEM: ${problem}`)
  }

  /** Instant of the first launch after `since`, both ms since the epoch. */
  async firstLaunch(since: number): Promise<number> {
    return await until(
      'launches resume',
      async () => {
        const decided = await this.#decidedAfter(since)
        return decided.length > 0 && Math.min(...decided)
      },
      RECOVERED_WITHIN_MS,
    )
  }

  /** Retries a write until a server acknowledges it; returns that instant, ms since the epoch. */
  async write(): Promise<number> {
    const job = {name: 'written', schedule: '@manually', executor: 'shell'}
    await until(
      'a write is acknowledged',
      async () => {
        const asked = this.cluster.running().map(async (server) => {
          const {status, text} = await server.post('/jobs', job)
          if (status !== 201) throw new Error(`${status} ${text}`)
        })
        return await Promise.any(asked).then(
          () => true,
          () => false,
        )
      },
      RECOVERED_WITHIN_MS,
    )
    return Date.now()
  }

  /** Resolves when every running server is ready. */
  async ready(): Promise<void> {
    let unready: string[] = []
    await until(
      'every server is ready',
      async () => {
        const asked = this.cluster.running().map(async (server) => {
          const {status, text} = await server.get('//readyz')
          return status === 200 ? [] : `${server.url} ${status} ${text}`
        })
        unready = await Promise.all(asked).then(
          (all) => all.flat(),
          (error) => [String(error)],
        )
        return unready.length === 0
      },
      RECOVERED_WITHIN_MS,
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${unready.join('; ')}`)
    })
  }

  /** Stops the load, audits the cluster and prints the result; true = sound. */
  async audit(): Promise<boolean> {
    await this.#clients.end()
    const server = this.cluster.server(await this.cluster.agreedLeader())
    await this.#load.end(server)
    await this.cluster.idle(server)
    const audit = await auditCluster(server, {
      load: this.#load,
      marks: this.#marks.read(),
      clients: this.#clients,
      operators: new Operators(this.cluster, this.#load),
      faults: [],
      nodeProblems: this.#noticed,
    })
    const {planned, launched, lost, lagsMs, missing, doubled, repeated, problems} = audit
    const refused = [...audit.refused].map(([reason, count]) => `, ${count} ${reason}`).join('')
    say(`  ${planned} planned times: ${launched} launched${refused}; ${lost} executions lost`)
    say(`  latest launch ${lagsMs.at(-1)} ms after its time`)
    say(`  ${this.calls.acknowledged} calls acknowledged, ${this.calls.refused} refused`)
    say(`  missing ${missing.length}, doubled ${doubled.length}, repeated ${repeated.length}`)
    for (const problem of [...missing, ...doubled, ...repeated, ...problems]) say(`  ${problem}`)
    assert(planned > 0, 'something was planned')
    return isSound(audit)
  }

  /** Decision instants of the newest launches of one job, if after `since`. */
  async #decidedAfter(since: number): Promise<number[]> {
    for (const server of this.cluster.running()) {
      const answer = await newest(server)
      if (answer === null) continue
      return answer.filter((decidedAt) => decidedAt > since)
    }
    return []
  }
}

async function newest(server: ServerProcess): Promise<number[] | null> {
  const answer = await server.get(`/jobs/${JOB}/launches?_end=60`).catch(() => null)
  if (answer?.status !== 200) return null
  return answer.json.map(({decided_at: at}: {decided_at: string}) => Date.parse(at))
}

export function say(line: string): void {
  process.stdout.write(`${line}\n`)
}

export function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`
}
