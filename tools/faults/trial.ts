/**
 * A trial, shared by the tests and `npm run faults`: a cluster of servers and agents under load, with
 * clients, faults, and an audit once the cluster is idle.
 */
import {atEnd, type Owner, type ServerProcess} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import {Clients} from './clients.ts'
import {ClusterProcess, type ClusterOptions} from './cluster-process.ts'
import {Faults} from './faults.ts'
import {AGENT_FLAGS, Load, untilOnTime} from './load.ts'
import {Marks} from './marks.ts'
import {TrialNotices} from './notices.ts'
import {Operators} from './operators.ts'
import {addNotices, auditCluster, type ClusterAudit} from './audit.ts'

const CLIENTS = 3
/** Keeps all launches for the audit; running executions may finish during a shutdown. */
const FLAGS = ['--keep-launches', '100000', '--keep-executions', '100000', '--grace', '10s']

export interface TrialOptions extends Pick<ClusterOptions, 'settings'> {
  readonly agents: readonly string[]
  /** Limit for the remaining work at the end. */
  readonly restMs?: number
  /** Rules of notices and a receiver. Their audit takes a minute longer. */
  readonly hasNotices?: boolean
}

export class RunningTrial {
  readonly cluster: ClusterProcess
  readonly faults: Faults
  readonly marks: Marks
  readonly load: Load
  readonly clients: Clients
  readonly operators: Operators
  readonly #notices: TrialNotices | null
  readonly #restMs: number

  private constructor(
    cluster: ClusterProcess,
    marks: Marks,
    load: Load,
    notices: TrialNotices | null,
    {restMs = 60_000}: TrialOptions,
  ) {
    this.cluster = cluster
    this.marks = marks
    this.load = load
    this.faults = new Faults(cluster)
    this.clients = new Clients(cluster, marks, CLIENTS)
    this.operators = new Operators(cluster, load)
    this.#notices = notices
    this.#restMs = restMs
  }

  /** Resolves when all jobs fire. */
  static async start(owner: Owner, options: TrialOptions): Promise<RunningTrial> {
    const {settings = {}, agents} = options
    const cluster = await ClusterProcess.start(owner, {flags: FLAGS, isCuttable: true, settings})
    await Promise.all(agents.map((name) => cluster.startAgent(name, {flags: AGENT_FLAGS})))
    const marks = new Marks(owner)
    const leader = await cluster.leader()
    const notices = options.hasNotices === true ? await TrialNotices.start(owner, leader) : null
    const load = await Load.start(leader, marks)
    await untilOnTime(leader)
    const trial = new RunningTrial(cluster, marks, load, notices, options)
    // A test that fails before `end` must not leave clients that keep the process alive.
    atEnd(owner, () => trial.clients.end())
    return trial
  }

  /** Resolves when another server leads, according to the others, and launches on time. */
  replaced(old: string): () => Promise<void> {
    const {cluster} = this
    return async () => {
      const other = cluster.server(cluster.serverNames.find((name) => name !== old)!)
      await until(`${old} no longer leads`, async () => (await cluster.leaderName(other)) !== old)
      await untilOnTime(other)
    }
  }

  /** Stops clients and load, waits until the cluster is idle, and audits it. */
  async end(): Promise<{readonly audit: ClusterAudit; readonly server: ServerProcess}> {
    const {cluster, faults, clients, operators, load} = this
    await cluster.agreedLeader()
    await untilOnTime(await cluster.leader(), this.#restMs)
    await faults.startDead()
    await clients.end()
    const server = cluster.server(await cluster.agreedLeader())
    await load.end(server)
    await cluster.idle(server, this.#restMs)
    const audit = await auditCluster(server, {
      load,
      marks: this.marks.read(),
      clients,
      operators,
      faults: faults.happened,
      nodeProblems: faults.problems,
    })
    if (this.#notices !== null) {
      const jobs = load.jobs.map(({name}) => name)
      const happened = {jobs, rows: audit.rows, faults: faults.happened}
      addNotices(audit, await this.#notices.audit(server, happened, this.#restMs))
    }
    return {audit, server}
  }
}
