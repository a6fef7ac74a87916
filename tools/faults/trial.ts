/**
 * A whole trial, as the tests and the fault run have it: a cluster with servers and agents under load and
 * with clients, something that goes wrong, and the verdict once all has come to rest.
 */
import type {Owner, ServerProcess} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import {Clients} from './clients.ts'
import {ClusterProcess, type ClusterOptions} from './cluster-process.ts'
import {Faults} from './faults.ts'
import {AGENT_FLAGS, Load, untilOnTime} from './load.ts'
import {Marks} from './marks.ts'
import {verdictOn, type ClusterVerdict} from './verdict.ts'

const CLIENTS = 3
/** Nothing of the ledger is pruned before it was looked at; what runs when its node is to end may end. */
const FLAGS = ['--keep-launches', '100000', '--grace', '10s']

export interface TrialOptions extends Pick<ClusterOptions, 'settings'> {
  readonly agents: readonly string[]
  /** How long what is left to do at the end may take. */
  readonly restMs?: number
}

export class RunningTrial {
  readonly cluster: ClusterProcess
  readonly faults: Faults
  readonly marks: Marks
  readonly load: Load
  readonly clients: Clients
  readonly #restMs: number

  private constructor(
    cluster: ClusterProcess,
    marks: Marks,
    load: Load,
    {restMs = 60_000}: TrialOptions,
  ) {
    this.cluster = cluster
    this.marks = marks
    this.load = load
    this.faults = new Faults(cluster)
    this.clients = new Clients(cluster, marks, CLIENTS)
    this.#restMs = restMs
  }

  /** Resolves when the load is on. */
  static async start(owner: Owner, options: TrialOptions): Promise<RunningTrial> {
    const {settings = {}, agents} = options
    const cluster = await ClusterProcess.start(owner, {flags: FLAGS, isCuttable: true, settings})
    await Promise.all(agents.map((name) => cluster.startAgent(name, {flags: AGENT_FLAGS})))
    const marks = new Marks(owner)
    const leader = await cluster.leader()
    const load = await Load.start(leader, marks)
    await untilOnTime(leader)
    return new RunningTrial(cluster, marks, load, options)
  }

  /** Resolves when another server leads by the word of the others, and launches on time. */
  replaced(old: string): () => Promise<void> {
    const {cluster} = this
    return async () => {
      const other = cluster.server(cluster.serverNames.find((name) => name !== old)!)
      await until(`${old} leads no more`, async () => (await cluster.leaderName(other)) !== old)
      await untilOnTime(other)
    }
  }

  /** Ends clients and load, lets everything that is still to be done be done, and judges. */
  async end(): Promise<{readonly verdict: ClusterVerdict; readonly server: ServerProcess}> {
    const {cluster, faults, clients, load} = this
    await cluster.agreedLeader()
    await untilOnTime(await cluster.leader(), this.#restMs)
    await faults.startDead()
    await clients.end()
    const server = cluster.server(await cluster.agreedLeader())
    await load.end(server)
    await cluster.idle(server, this.#restMs)
    const verdict = await verdictOn(server, {
      load,
      marks: this.marks.read(),
      clients,
      faults: faults.happened,
      noticed: faults.problems,
    })
    return {verdict, server}
  }
}
