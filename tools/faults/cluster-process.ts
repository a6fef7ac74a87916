/**
 * A real cluster: PostgreSQL, servers and agents as separate processes, started as a user starts them. All
 * end with their test. Uses only flags, signals and the API.
 */
import {join} from 'node:path'
import {anAgent, type AgentProcess} from '../../test/agents/agent-process.ts'
import {childrenOf} from '../../test/support/living-processes.ts'
import {TestPostgres} from '../../test/support/postgres.ts'
import {
  aServer,
  atEnd,
  temporaryDirectory,
  type Owner,
  type Program,
  type ServerProcess,
} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import {CuttableLink} from './network.ts'

/** A killed leader is replaced within 10 s; the rest is margin for a busy machine. */
const LEADER_WITHIN_MS = 20_000

export interface ClusterOptions {
  /** Names. The first is ready before the others start, so that it creates the schema. */
  readonly servers?: readonly string[]
  /** Flags of every server. */
  readonly flags?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** Settings of PostgreSQL, e.g. `{fsync: 'on'}`. */
  readonly settings?: Readonly<Record<string, string>>
  /** Connection string of an external store; by default the cluster starts its own. */
  readonly store?: string
  /**
   * Connects servers to the store and agents to servers through links that can be cut. A link keeps its
   * port when its ends restart.
   */
  readonly isCuttable?: boolean
}

/** A process of a node, from start to exit. */
export interface NodeProcess {
  readonly name: string
  readonly program: Program
}

export interface NodeOptions {
  readonly flags?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

export class ClusterProcess {
  readonly #postgres: TestPostgres | null
  /** Connection string that all servers share. */
  readonly store: string
  readonly #owner: Owner
  readonly #options: ClusterOptions
  readonly #home: string
  /** Newest process by name. */
  readonly #servers = new Map<string, ServerProcess>()
  readonly #agents = new Map<string, AgentProcess>()
  /** Links by `from to`. */
  readonly #links = new Map<string, CuttableLink>()
  readonly #frozen = new Set<string>()
  /** All processes ever started, oldest first. */
  readonly processes: NodeProcess[] = []

  private constructor(
    owner: Owner,
    options: ClusterOptions,
    postgres: TestPostgres | null,
    store: string,
  ) {
    this.#owner = owner
    this.#options = options
    this.#home = temporaryDirectory(owner)
    this.#postgres = postgres
    this.store = store
  }

  /** Resolves when every server is ready. */
  static async start(owner: Owner, options: ClusterOptions = {}): Promise<ClusterProcess> {
    const cluster = await ClusterProcess.#on(owner, options)
    const [first, ...others] = options.servers ?? ['north', 'east', 'west']
    if (first !== undefined) await cluster.startServer(first)
    await Promise.all(others.map((name) => cluster.startServer(name)))
    return cluster
  }

  static async #on(owner: Owner, options: ClusterOptions): Promise<ClusterProcess> {
    const {store, settings} = options
    if (store !== undefined) return new ClusterProcess(owner, options, null, store)
    const postgres = await TestPostgres.start(settings)
    atEnd(owner, () => postgres.close())
    return new ClusterProcess(owner, options, postgres, await postgres.database())
  }

  /** The cluster's own PostgreSQL; throws with an external store. */
  get postgres(): TestPostgres {
    if (this.#postgres === null) throw new Error('the cluster uses an external store')
    return this.#postgres
  }

  /** Starts or restarts a server on its data directory. Resolves when it is ready. */
  async startServer(
    name: string,
    {flags = [], env = {}}: NodeOptions = {},
  ): Promise<ServerProcess> {
    const store = await this.#storeFor(name)
    const common = ['--store', store, '--name', name, ...(this.#options.flags ?? [])]
    const server = await aServer(this.#owner, {
      data: join(this.#home, name),
      flags: [...common, ...flags],
      env: {...this.#options.env, ...env},
    })
    this.#servers.set(name, server)
    this.processes.push({name, program: server.program})
    return server
  }

  /** Starts or restarts an agent that knows every server. Resolves when it has joined. */
  async startAgent(
    name: string,
    {flags = []}: Pick<NodeOptions, 'flags'> = {},
  ): Promise<AgentProcess> {
    const urls = await this.#serversFor(name)
    const agent = await anAgent(this.#owner, urls, {name, data: join(this.#home, name), flags})
    this.#agents.set(name, agent)
    this.processes.push({name, program: agent.program})
    return agent
  }

  server(name: string): ServerProcess {
    const server = this.#servers.get(name)
    if (server === undefined) throw new Error(`no server ${name} was started`)
    return server
  }

  agent(name: string): AgentProcess {
    const agent = this.#agents.get(name)
    if (agent === undefined) throw new Error(`no agent ${name} was started`)
    return agent
  }

  get serverNames(): string[] {
    return [...this.#servers.keys()]
  }

  get agentNames(): string[] {
    return [...this.#agents.keys()]
  }

  /** The newest process of a server or an agent. */
  program(name: string): Program {
    return (this.#servers.get(name) ?? this.agent(name)).program
  }

  /** Servers whose process exists, frozen ones included. */
  running(): ServerProcess[] {
    return [...this.#servers.values()].filter(({program}) => !program.isGone())
  }

  /** Servers whose process exists and is not frozen. */
  responsive(): ServerProcess[] {
    return [...this.#servers]
      .filter(([name, {program}]) => !program.isGone() && !this.#frozen.has(name))
      .map(([, server]) => server)
  }

  /** Freezes a server or an agent with SIGSTOP; its commands continue. */
  freeze(name: string): void {
    this.#frozen.add(name)
    this.program(name).signal('SIGSTOP')
  }

  wake(name: string): void {
    this.#frozen.delete(name)
    this.program(name).signal('SIGCONT')
  }

  /** Signals every process of PostgreSQL, the postmaster first. Linux only. */
  signalStore(signal: 'SIGSTOP' | 'SIGCONT'): void {
    const tree = childrenOf(this.postgres.pid).flatMap((pid) => [pid, ...childrenOf(pid)])
    for (const pid of tree) process.kill(pid, signal)
  }

  /** Link between a server and the store; requires `isCuttable`. */
  toStore(server: string): Promise<CuttableLink> {
    return this.#link(`${server} store`, () => this.postgres.port)
  }

  /** Links between an agent and each server; requires `isCuttable`. */
  toServers(agent: string): Promise<CuttableLink[]> {
    const port = (server: string) => Number(new URL(this.server(server).url).port)
    return Promise.all(
      this.serverNames.map((server) => this.#link(`${agent} ${server}`, () => port(server))),
    )
  }

  async #link(way: string, target: () => number): Promise<CuttableLink> {
    const known = this.#links.get(way)
    if (known !== undefined) return known
    const link = await CuttableLink.to(target)
    this.#links.set(way, link)
    atEnd(this.#owner, () => link.close())
    return link
  }

  async #storeFor(server: string): Promise<string> {
    if (this.#options.isCuttable !== true) return this.store
    const url = new URL(this.store)
    url.port = `${(await this.toStore(server)).port}`
    return url.href
  }

  async #serversFor(agent: string): Promise<string[]> {
    if (this.#options.isCuttable !== true) return this.running().map(({url}) => url)
    return (await this.toServers(agent)).map(({port}) => `http://127.0.0.1:${port}`)
  }

  /** Name of the leader according to `asked`; by default according to any server that answers. */
  async leaderName(asked?: ServerProcess): Promise<string> {
    return until(
      'a leader',
      async () => {
        for (const server of asked === undefined ? this.responsive() : [asked]) {
          const answer = await server.get('/leader').catch(() => null)
          if (answer?.status === 200) return String(answer.json.Name)
        }
        return undefined
      },
      LEADER_WITHIN_MS,
    )
  }

  /** Resolves with the leader's name when all responsive servers agree and only it claims to lead. */
  async agreedLeader(): Promise<string> {
    return until(
      'one leader according to all servers',
      async () => {
        const words = await Promise.all(
          this.responsive().map(async (server) => {
            const answers = await Promise.all([server.get('/leader'), server.get('/isleader')])
            return answers.map(({status, json}) => [status, json?.Name])
          }),
        ).catch(() => [])
        const names = new Set(words.map(([leader]) => leader?.[1]))
        const leading = words.filter(([, isLeader]) => isLeader?.[0] === 200)
        const [name] = names
        return names.size === 1 && leading.length === 1 && typeof name === 'string' && name
      },
      LEADER_WITHIN_MS,
    )
  }

  async leader(asked?: ServerProcess): Promise<ServerProcess> {
    return this.server(await this.leaderName(asked))
  }

  /** Member status by name, according to `asked`: 1 alive, 2 leaving, 3 left, 4 failed. */
  async statuses(asked: ServerProcess): Promise<Record<string, number>> {
    const {json} = await asked.get('/members')
    return Object.fromEntries(
      json.map(({Name, Status}: {Name: string; Status: number}) => [Name, Status]),
    )
  }

  /** Resolves when no execution is pending or running and no launch is undecided. */
  async idle(asked: ServerProcess, withinMs?: number): Promise<void> {
    await until(
      'the cluster is idle',
      async () => {
        const {json} = await asked.get('/')
        const {running, pending, undecided} = json.gossip
        return running === '0' && pending === '0' && undecided === '0'
      },
      withinMs,
    )
  }
}
