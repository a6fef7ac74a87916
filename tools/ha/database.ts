/**
 * A PostgreSQL server of a replicated pair, configured for durability: start, kill, promote and rebuild
 * as a standby, with the programs an operator uses. The scenario decides when to promote which.
 */
import {spawn, type ChildProcess} from 'node:child_process'
import {once} from 'node:events'
import {appendFileSync, closeSync, openSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {Client} from 'pg'
import {childrenOf, endProcess} from '../../test/support/living-processes.ts'
import {freePort, KEEPER, ROLE} from '../../test/support/postgres.ts'
import {until} from '../../test/support/waiting.ts'
import type {Programs} from './programs.ts'

const START_WITHIN_MS = 60_000
const SYNCHRONOUS_WITHIN_MS = 60_000
const ASK_WITHIN_MS = 5_000

/**
 * Settings for full durability on a small machine. Written to the data folder, so that copies and pg_rewind
 * include them.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  fsync: 'on',
  full_page_writes: 'on',
  synchronous_commit: 'on',
  // pg_rewind needs page hints and the WAL since the timelines diverged.
  wal_log_hints: 'on',
  wal_keep_size: '1GB',
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '100',
  shared_buffers: '64MB',
}

export class Database {
  readonly name: string
  readonly port: number
  readonly #programs: Programs
  readonly #home: string
  #keeper: ChildProcess | null = null

  private constructor(name: string, port: number, programs: Programs, home: string) {
    this.name = name
    this.port = port
    this.#programs = programs
    this.#home = home
  }

  /** Initialises an empty server. The account of the programs may write to the folder `home`. */
  static async prepare(name: string, programs: Programs, home: string): Promise<Database> {
    return new Database(name, await freePort(), programs, home)
  }

  async initialise(): Promise<void> {
    const flags = ['--auth=trust', '--encoding=UTF8', '--locale=C', `--username=${ROLE}`]
    await this.#run('initdb', ['-D', this.#data, ...flags])
    const lines = Object.entries(SETTINGS).map(([name, value]) => `${name} = '${value}'\n`)
    appendFileSync(join(this.#data, 'postgresql.conf'), lines.join(''))
  }

  /** Creates a standby as a copy of `primary`; not started yet. */
  async copy(primary: Database): Promise<void> {
    const source = ['-h', '127.0.0.1', '-p', `${primary.port}`, '-U', ROLE]
    await this.#run('pg_basebackup', [
      ...source,
      '-D',
      this.#data,
      '-R',
      '-X',
      'stream',
      '-c',
      'fast',
    ])
  }

  /** Rewinds the data to the point where it diverged from `primary`; then it can start as a standby. */
  async rewind(primary: Database): Promise<void> {
    // The pg_rewind of releases before 16 believes the control file, which knows of a promotion only after a
    // checkpoint.
    await primary.query('CHECKPOINT')
    const source = `host=127.0.0.1 port=${primary.port} user=${ROLE} dbname=postgres`
    await this.#run('pg_rewind', ['-D', this.#data, `--source-server=${source}`, '-R'])
  }

  /** Starts the server; resolves when it accepts queries, as a primary or a standby. */
  async start(): Promise<void> {
    const own = ['-c', `port=${this.port}`, '-c', `cluster_name=${this.name}`]
    const command = [join(this.#programs.folder, 'postgres'), '-D', this.#data, ...own]
    const log = openSync(this.#log, 'a')
    // The keeper ends the server when this process exits, even if it is killed.
    this.#keeper = spawn('sh', ['-c', KEEPER, 'keeper', ...command], {
      stdio: ['pipe', log, log],
      detached: true,
      cwd: this.#home,
      ...this.#programs.account,
    })
    closeSync(log)
    await until(
      `${this.name} answers`,
      async () => {
        if (this.#keeper === null || this.#postmaster === undefined) return false
        // An answer "not ready yet" is expected here; `until` reports the last one if it stays.
        return await this.query('SELECT 1 AS here').catch(() => false)
      },
      START_WITHIN_MS,
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${readFileSync(this.#log, 'utf8').slice(-2_000)}`)
    })
  }

  /** Kills all its processes with SIGKILL, as if the machine failed. */
  async kill(): Promise<void> {
    const keeper = this.#keeper
    if (keeper === null) return
    this.#keeper = null
    const postmaster = keeper.pid === undefined ? undefined : childrenOf(keeper.pid)[0]
    if (postmaster !== undefined) {
      const processes = [postmaster, ...childrenOf(postmaster)]
      for (const pid of processes) endProcess(pid)
    }
    keeper.stdin?.end('stop\n')
    if (keeper.exitCode === null && keeper.signalCode === null) await once(keeper, 'exit')
  }

  /** Promotes the server; resolves when it accepts writes. */
  async promote(): Promise<void> {
    await this.#run('pg_ctl', ['promote', '-D', this.#data, '-w'])
  }

  /** Runs one statement on a new connection. */
  async query(sql: string, database = 'postgres'): Promise<Record<string, unknown>[]> {
    const client = new Client({
      host: '127.0.0.1',
      port: this.port,
      user: ROLE,
      database,
      connectionTimeoutMillis: ASK_WITHIN_MS,
      query_timeout: ASK_WITHIN_MS,
    })
    // If the server is killed meanwhile, the query itself reports the error.
    client.on('error', () => undefined)
    try {
      await client.connect()
      return (await client.query<Record<string, unknown>>(sql)).rows
    } finally {
      await client.end()
    }
  }

  /** Sets `synchronous_standby_names`, effective from the next commit on. */
  async waitFor(names: string): Promise<void> {
    await this.query(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`)
    await this.query('SELECT pg_reload_conf()')
  }

  /** Resolves when a synchronous standby has caught up. */
  async untilSynchronous(): Promise<void> {
    const sql = `SELECT 1 AS here FROM pg_stat_replication
      WHERE sync_state IN ('sync', 'quorum') AND state = 'streaming'`
    await until(
      `${this.name} has a synchronous standby`,
      async () => (await this.query(sql)).length > 0,
      SYNCHRONOUS_WITHIN_MS,
    )
  }

  async #run(name: string, flags: readonly string[]): Promise<void> {
    await this.#programs.run(name, flags, this.#home)
  }

  get #postmaster(): number | undefined {
    return this.#keeper?.pid === undefined ? undefined : childrenOf(this.#keeper.pid)[0]
  }

  get #data(): string {
    return join(this.#home, this.name)
  }

  get #log(): string {
    return join(this.#home, `${this.name}.log`)
  }
}
