/**
 * A durable PostgreSQL for the run, and real servers that share a database on it. Servers are used through
 * their API; the launches are read from the database, which has every instant.
 */
import {Client} from 'pg'
import {TestPostgres} from '../../test/support/postgres.ts'
import {processorTimeMs} from './processor-time.ts'
import type {Scratch} from './scratch.ts'
import {ServerProcess} from './server-process.ts'

const DURABLE = {
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  shared_buffers: '128MB',
  max_wal_size: '1GB',
}
/** Data directory of a server. */
const SCHEMA = 'belfry'

/** Starts PostgreSQL; it ends with the section at the latest. */
export async function startPostgres(scratch: Scratch): Promise<TestPostgres> {
  const postgres = await TestPostgres.start(DURABLE)
  scratch.after(() => postgres.close())
  return postgres
}

export interface ClusterChoice {
  readonly servers: number
  /** Slots of each server; absent = the default. */
  readonly slots?: number
  /** Connection string of a database with data; absent = an empty one. */
  readonly store?: string
  readonly flags?: readonly string[]
}

/** Start options of a server, also for a restart. */
interface Start {
  readonly scratch: Scratch
  readonly store: string
  readonly slots: number | undefined
  readonly flags: readonly string[]
  /** Data directories, one for each server. */
  readonly folders: readonly string[]
}

export class Cluster {
  /** Connection string of the database that all servers share. */
  readonly store: string
  readonly servers: readonly ServerProcess[]
  readonly postgresPid: number
  readonly #servers: ServerProcess[]
  readonly #start: Start
  readonly #client: Client

  private constructor(start: Start, servers: ServerProcess[], client: Client, postgresPid: number) {
    this.store = start.store
    this.servers = servers
    this.postgresPid = postgresPid
    this.#servers = servers
    this.#start = start
    this.#client = client
  }

  /** Resolves when every server is ready. The first leads. */
  static async start(
    scratch: Scratch,
    postgres: TestPostgres,
    {servers: count, slots, store: filled, flags = []}: ClusterChoice,
  ): Promise<Cluster> {
    const store = filled ?? (await postgres.database())
    const folders: string[] = []
    for (let index = 0; index < count; index += 1) folders.push(await scratch.folder())
    const start = {scratch, store, slots, flags, folders}
    const servers: ServerProcess[] = []
    for (const index of folders.keys()) servers.push(await startServer(start, index))
    const client = new Client({connectionString: store})
    // Statements on a lost connection report the error themselves.
    client.on('error', () => undefined)
    await client.connect()
    await client.query(`SET search_path TO ${SCHEMA}`)
    const {rows} = await client.query<{pid: string}>(`SELECT pg_read_file('postmaster.pid') AS pid`)
    return new Cluster(start, servers, client, Number.parseInt(rows[0]!.pid, 10))
  }

  /** Restarts a server on its data directory. Resolves when it is ready. */
  async restart(index: number): Promise<void> {
    this.#servers[index] = await startServer(this.#start, index)
  }

  /** The rows of one statement on the servers' schema; `Row` is what the statement selects. */
  async rows<Row extends Record<string, unknown>>(
    sql: string,
    values: readonly (string | number)[] = [],
  ): Promise<Row[]> {
    return (await this.#client.query<Row>(sql, [...values])).rows
  }

  /** Current term and the index of its leader in `servers`; `null` without a leader. */
  async leader(): Promise<{readonly term: number; readonly index: number} | null> {
    const [row] = await this.rows<{term: number; name: string}>(
      `SELECT term::int, name FROM leader JOIN members ON id = node_id AND incarnation = holder`,
    )
    if (row === undefined) return null
    return {term: row.term, index: this.servers.findIndex((_, index) => nameOf(index) === row.name)}
  }

  /** Processor time of all servers and PostgreSQL with their children, ms; `null` without /proc. */
  processorTimeMs(): number | null {
    const pids = [...this.servers.map(({pid}) => pid), this.postgresPid]
    const times = pids.map((pid) => processorTimeMs(pid))
    return times.reduce((sum, each) => (sum === null || each === null ? null : sum + each), 0)
  }

  /** Ends the servers, gracefully or by SIGKILL; their database stays. */
  async end(how: 'stop' | 'kill' = 'stop'): Promise<void> {
    await this.#client.end()
    await Promise.all(this.servers.map((server) => server[how]()))
    for (const folder of this.#start.folders) await this.#start.scratch.remove(folder)
  }
}

/** Name of the server at an index. */
function nameOf(index: number): string {
  return `server-${index + 1}`
}

function startServer({scratch, folders, ...choice}: Start, index: number): Promise<ServerProcess> {
  return ServerProcess.start(scratch, {
    ...choice,
    dataDir: folders[index]!,
    name: nameOf(index),
  })
}
