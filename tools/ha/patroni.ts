/**
 * Three PostgreSQL servers managed by Patroni with etcd, as docs/how-to/postgresql.md shows: Patroni elects
 * the primary, Belfry follows. This file only starts, kills and queries processes.
 */
import {spawn, type ChildProcess} from 'node:child_process'
import {once} from 'node:events'
import {closeSync, existsSync, openSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {Client} from 'pg'
import {stringify} from 'yaml'
import {childrenOf, endProcess} from '../../test/support/living-processes.ts'
import {freePort, ROLE} from '../../test/support/postgres.ts'
import {atEnd, type Owner} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import {needOnPath, type Programs} from './programs.ts'

const NAMES = ['one', 'two', 'three']
const DATABASE = 'belfry'
/** Limit of the first start, which initialises all three. */
const WHOLE_WITHIN_MS = 120_000
const ASK_WITHIN_MS = 1_000

/** Shared settings: the section `bootstrap.dcs`. */
const AGREED = {
  ttl: 20,
  loop_wait: 5,
  retry_timeout: 5,
  synchronous_mode: true,
  synchronous_mode_strict: true,
  postgresql: {
    use_pg_rewind: true,
    parameters: {
      fsync: 'on',
      full_page_writes: 'on',
      synchronous_commit: 'on',
      wal_log_hints: 'on',
      max_connections: 100,
    },
  },
}

interface Ports {
  readonly postgres: number
  readonly api: number
}

export class Patroni {
  readonly #owner: Owner
  readonly #programs: Programs
  readonly #home: string
  readonly #ports = new Map<string, Ports>()
  readonly #processes = new Map<string, ChildProcess>()
  #etcdPort = 0

  private constructor(owner: Owner, programs: Programs, home: string) {
    this.#owner = owner
    this.#programs = programs
    this.#home = home
  }

  /** Starts everything; resolves with a primary and a synchronous standby. Throws `Missing`. */
  static async open(owner: Owner, programs: Programs, home: string): Promise<Patroni> {
    needOnPath({patroni: 'patroni', etcd: 'etcd-server'})
    const patroni = new Patroni(owner, programs, home)
    await patroni.#startEtcd()
    for (const name of NAMES)
      patroni.#ports.set(name, {postgres: await freePort(), api: await freePort()})
    for (const name of NAMES) patroni.start(name)
    await patroni.whole()
    await patroni.#query(await patroni.primary(), `CREATE DATABASE ${DATABASE}`)
    return patroni
  }

  get store(): string {
    const hosts = [...this.#ports.values()].map(({postgres}) => `127.0.0.1:${postgres}`)
    return `postgres://${ROLE}@${hosts.join(',')}/${DATABASE}`
  }

  /** Starts Patroni on one of the three, which starts its PostgreSQL. */
  start(name: string): void {
    const file = join(this.#home, `${name}.yml`)
    writeFileSync(file, stringify(this.#configuration(name)))
    this.#spawn(name, 'patroni', [file])
    atEnd(this.#owner, () => this.kill(name))
  }

  /** Kills Patroni and all processes of its PostgreSQL with SIGKILL, as if the machine failed. */
  async kill(name: string): Promise<void> {
    const patroni = this.#processes.get(name)
    this.#processes.delete(name)
    await end(patroni)
    const file = join(this.#home, name, 'postmaster.pid')
    if (!existsSync(file)) return
    const postmaster = Number(readFileSync(file, 'utf8').split('\n')[0])
    const processes = childrenOf(postmaster)
    // A pid from a file may have been reused: only processes that are provably ours are killed.
    if (!this.#isOurs(postmaster, name)) return
    for (const pid of [postmaster, ...processes]) endProcess(pid)
  }

  /** Name of the server that accepts writes. */
  async primary(): Promise<string> {
    return await until(
      'a primary',
      async () => {
        const names = await Promise.all(NAMES.map((name) => this.#isPrimary(name)))
        return names.find((name) => name !== null) ?? undefined
      },
      WHOLE_WITHIN_MS,
    )
  }

  /** Resolves when a commit on that server was acknowledged. */
  async commit(name: string): Promise<void> {
    await this.#query(name, `SELECT pg_logical_emit_message(true, 'belfry', '')`)
  }

  /** Resolves when both others follow the primary, and commits wait for one of them. */
  async whole(): Promise<void> {
    const sql = `SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'`
    await until(
      'a primary with two standbys, one of them synchronous',
      async () => {
        const rows = await this.#query(await this.primary(), sql).catch(() => [])
        return (
          rows.length === NAMES.length - 1 && rows.some(({sync_state: state}) => state === 'sync')
        )
      },
      WHOLE_WITHIN_MS,
    )
  }

  async #isPrimary(name: string): Promise<string | null> {
    const rows = await this.#query(name, 'SELECT pg_is_in_recovery() AS follows').catch(() => [])
    return rows[0]?.['follows'] === false ? name : null
  }

  async #query(name: string, sql: string): Promise<Record<string, unknown>[]> {
    const client = new Client({
      host: '127.0.0.1',
      port: this.#ports.get(name)!.postgres,
      user: ROLE,
      database: 'postgres',
      connectionTimeoutMillis: ASK_WITHIN_MS,
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

  #isOurs(pid: number, name: string): boolean {
    const file = `/proc/${pid}/cmdline`
    return existsSync(file) && readFileSync(file, 'utf8').includes(join(this.#home, name))
  }

  async #startEtcd(): Promise<void> {
    this.#etcdPort = await freePort()
    const clients = `http://127.0.0.1:${this.#etcdPort}`
    const peers = `http://127.0.0.1:${await freePort()}`
    const flags = {
      'data-dir': join(this.#home, 'etcd'),
      'listen-client-urls': clients,
      'advertise-client-urls': clients,
      'listen-peer-urls': peers,
      'initial-advertise-peer-urls': peers,
      'initial-cluster': `default=${peers}`,
    }
    const words = Object.entries(flags).map(([name, value]) => `--${name}=${value}`)
    this.#spawn('etcd', 'etcd', words)
    atEnd(this.#owner, () => end(this.#processes.get('etcd')))
  }

  #spawn(name: string, program: string, flags: readonly string[]): void {
    const log = openSync(join(this.#home, `${name}.log`), 'a')
    const child = spawn(program, flags, {
      stdio: ['ignore', log, log],
      detached: true,
      cwd: this.#home,
      ...this.#programs.account,
    })
    closeSync(log)
    this.#processes.set(name, child)
  }

  #configuration(name: string) {
    const {postgres, api} = this.#ports.get(name)!
    return {
      scope: 'belfry',
      name,
      restapi: {listen: `127.0.0.1:${api}`, connect_address: `127.0.0.1:${api}`},
      etcd3: {hosts: `127.0.0.1:${this.#etcdPort}`},
      bootstrap: {
        dcs: AGREED,
        initdb: [{encoding: 'UTF8'}, {locale: 'C'}],
      },
      postgresql: {
        listen: `127.0.0.1:${postgres}`,
        connect_address: `127.0.0.1:${postgres}`,
        data_dir: join(this.#home, name),
        bin_dir: this.#programs.folder,
        pgpass: join(this.#home, `${name}.pgpass`),
        pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust'],
        authentication: {superuser: {username: ROLE}, replication: {username: 'replicator'}},
        parameters: {unix_socket_directories: '', shared_buffers: '64MB'},
      },
    }
  }
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}
