/**
 * A real cluster: a PostgreSQL, servers and agents, each a process of its own as a person starts it. All of
 * it ends with its test. Knows nothing of Belfry's inside.
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
import {Stretch} from './network.ts'

/** A killed leader is replaced within 10 s; this leaves room for a busy machine. */
const LEADER_WITHIN_MS = 20_000

export interface ClusterOptions {
  /** Their names; the first is ready before the others start, so that it makes the schema. */
  readonly servers?: readonly string[]
  /** For every server. */
  readonly flags?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** Settings of PostgreSQL, e.g. `{fsync: 'on'}`. */
  readonly settings?: Readonly<Record<string, string>>
  /** Connection string of a store that somebody else looks after; by default the cluster has its own. */
  readonly store?: string
  /**
   * Every server reaches the store, and every agent each server, over a stretch of network that can be cut
   * and stays where it is when its ends are started again.
   */
  readonly isCuttable?: boolean
}

/** One process of a node, from its start to its end. */
export interface Life {
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
  /** By name: the newest process of each. */
  readonly #servers = new Map<string, ServerProcess>()
  readonly #agents = new Map<string, AgentProcess>()
  /** By whom they lead from and to. */
  readonly #stretches = new Map<string, Stretch>()
  readonly #frozen = new Set<string>()
  /** Every process there ever was, oldest first. */
  readonly lives: Life[] = []

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

  /** Of a cluster that has its own. */
  get postgres(): TestPostgres {
    if (this.#postgres === null) throw new Error('the store of this cluster is not its own')
    return this.#postgres
  }

  /** Starts a server, or starts it again on its data directory. Resolves when it is ready. */
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
    this.lives.push({name, program: server.program})
    return server
  }

  /** Starts an agent that knows every server, or starts it again. Resolves when it has joined. */
  async startAgent(
    name: string,
    {flags = []}: Pick<NodeOptions, 'flags'> = {},
  ): Promise<AgentProcess> {
    const urls = await this.#serversFor(name)
    const agent = await anAgent(this.#owner, urls, {name, data: join(this.#home, name), flags})
    this.#agents.set(name, agent)
    this.lives.push({name, program: agent.program})
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

  /** Servers whose process is there (a frozen one is, too). */
  running(): ServerProcess[] {
    return [...this.#servers.values()].filter(({program}) => !program.isGone())
  }

  /** Servers whose process is there and not frozen. */
  awake(): ServerProcess[] {
    return [...this.#servers]
      .filter(([name, {program}]) => !program.isGone() && !this.#frozen.has(name))
      .map(([, server]) => server)
  }

  /** Stops a server or an agent where it stands; what it has started goes on. */
  freeze(name: string): void {
    this.#frozen.add(name)
    this.program(name).signal('SIGSTOP')
  }

  wake(name: string): void {
    this.#frozen.delete(name)
    this.program(name).signal('SIGCONT')
  }

  /** Sends every process of PostgreSQL a signal, the one that would start others first. Linux only. */
  signalStore(signal: 'SIGSTOP' | 'SIGCONT'): void {
    const tree = childrenOf(this.postgres.pid).flatMap((pid) => [pid, ...childrenOf(pid)])
    for (const pid of tree) process.kill(pid, signal)
  }

  /** Between a server and the store; of a cluster that is cuttable. */
  toStore(server: string): Promise<Stretch> {
    return this.#stretch(`${server} store`, () => this.postgres.port)
  }

  /** Between an agent and each server; of a cluster that is cuttable. */
  toServers(agent: string): Promise<Stretch[]> {
    const port = (server: string) => Number(new URL(this.server(server).url).port)
    return Promise.all(
      this.serverNames.map((server) => this.#stretch(`${agent} ${server}`, () => port(server))),
    )
  }

  async #stretch(way: string, target: () => number): Promise<Stretch> {
    const known = this.#stretches.get(way)
    if (known !== undefined) return known
    const stretch = await Stretch.to(target)
    this.#stretches.set(way, stretch)
    atEnd(this.#owner, () => stretch.close())
    return stretch
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

  /** Name of the leader by the word of `asked`; by default of any server that answers. */
  async leaderName(asked?: ServerProcess): Promise<string> {
    return until(
      'a leader',
      async () => {
        for (const server of asked === undefined ? this.awake() : [asked]) {
          const answer = await server.get('/leader').catch(() => null)
          if (answer?.status === 200) return String(answer.json.Name)
        }
        return undefined
      },
      LEADER_WITHIN_MS,
    )
  }

  /** Resolves with the leader's name once all servers that are awake name it, and it alone says it leads. */
  async agreedLeader(): Promise<string> {
    return until(
      'one leader by the word of all servers',
      async () => {
        const words = await Promise.all(
          this.awake().map(async (server) => {
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

  /** Status codes of the members by name, as `asked` shows them: 1 alive, 2 leaving, 3 left, 4 failed. */
  async statuses(asked: ServerProcess): Promise<Record<string, number>> {
    const {json} = await asked.get('/members')
    return Object.fromEntries(
      json.map(({Name, Status}: {Name: string; Status: number}) => [Name, Status]),
    )
  }

  /** Resolves when nothing is pending, running or undecided. */
  async idle(asked: ServerProcess, withinMs?: number): Promise<void> {
    await until(
      'everything has ended',
      async () => {
        const {json} = await asked.get('/')
        const {running, pending, undecided} = json.gossip
        return running === '0' && pending === '0' && undecided === '0'
      },
      withinMs,
    )
  }
}
