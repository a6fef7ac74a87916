/**
 * A real cluster: a PostgreSQL, servers and agents, each a process of its own as a person starts it. All of
 * it ends with its test. Knows nothing of Belfry's inside.
 */
import {join} from 'node:path'
import {anAgent, type AgentProcess} from '../agent/agent-process.ts'
import {TestPostgres} from '../support/postgres.ts'
import {
  aServer,
  atEnd,
  temporaryDirectory,
  type Owner,
  type ServerProcess,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

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
}

export interface NodeOptions {
  readonly flags?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

export class ClusterProcess {
  readonly postgres: TestPostgres
  /** Connection string that all servers share. */
  readonly store: string
  readonly #owner: Owner
  readonly #options: ClusterOptions
  readonly #home: string
  /** By name: the newest process of each. */
  readonly #servers = new Map<string, ServerProcess>()
  readonly #agents = new Map<string, AgentProcess>()

  private constructor(
    owner: Owner,
    options: ClusterOptions,
    postgres: TestPostgres,
    store: string,
  ) {
    this.#owner = owner
    this.#options = options
    this.#home = temporaryDirectory(owner)
    this.postgres = postgres
    this.store = store
  }

  /** Resolves when every server is ready. */
  static async start(owner: Owner, options: ClusterOptions = {}): Promise<ClusterProcess> {
    const postgres = await TestPostgres.start(options.settings)
    atEnd(owner, () => postgres.close())
    const cluster = new ClusterProcess(owner, options, postgres, await postgres.database())
    const [first, ...others] = options.servers ?? ['north', 'east', 'west']
    if (first !== undefined) await cluster.startServer(first)
    await Promise.all(others.map((name) => cluster.startServer(name)))
    return cluster
  }

  /** Starts a server, or starts it again on its data directory. Resolves when it is ready. */
  async startServer(
    name: string,
    {flags = [], env = {}}: NodeOptions = {},
  ): Promise<ServerProcess> {
    const common = ['--store', this.store, '--name', name, ...(this.#options.flags ?? [])]
    const server = await aServer(this.#owner, {
      data: join(this.#home, name),
      flags: [...common, ...flags],
      env: {...this.#options.env, ...env},
    })
    this.#servers.set(name, server)
    return server
  }

  /** Starts an agent that knows every server, or starts it again. Resolves when it has joined. */
  async startAgent(
    name: string,
    {flags = []}: Pick<NodeOptions, 'flags'> = {},
  ): Promise<AgentProcess> {
    const urls = this.running().map(({url}) => url)
    const agent = await anAgent(this.#owner, urls, {name, data: join(this.#home, name), flags})
    this.#agents.set(name, agent)
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

  /** Servers whose process is there (a paused one is, too). */
  running(): ServerProcess[] {
    return [...this.#servers.values()].filter(({program}) => !program.isGone())
  }

  /** Name of the leader by the word of `asked`; by default of any server that answers. */
  async leaderName(asked?: ServerProcess): Promise<string> {
    const askable = asked === undefined ? this.running() : [asked]
    return until(
      'a leader',
      async () => {
        for (const server of askable) {
          const answer = await server.get('/leader').catch(() => null)
          if (answer?.status === 200) return String(answer.json.Name ?? answer.json.name)
        }
        return undefined
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
