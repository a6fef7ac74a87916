/**
 * Connection to one PostgreSQL server, with the settings that every statement relies on, and PostgreSQL's
 * dialect. A request is sent at once, also before the replies to earlier ones (pipelining); replies arrive
 * in order. Every request has a deadline. A server that misses it loses the connection, because a half-open
 * connection gives no error. Knows no pool.
 */
import {Socket} from 'node:net'
import {Client, DatabaseError, type QueryResult, types} from 'pg'
import {assert} from '../../lib/assert.ts'
import {asError} from '../../lib/error.ts'
import type {Clock, Timer} from '../../ports/runtime.ts'
import {
  all,
  type Dialect,
  one,
  type Row,
  type Sequence,
  type Query,
  send,
  type Value,
} from '../sql/query.ts'
import {ConnectionLost, PasswordMissing, sqlState, textOf, TlsMissing} from './errors.ts'
import type {Address, Host} from './url.ts'

/** A reachable server accepts within milliseconds; an unreachable host must not delay the others. */
export const CONNECT_LIMIT_MS = 2_000

/** The server cancels a statement, or a wait for a lock, after this time. */
const STATEMENT_LIMIT_MS = 2_000

/** Limit for an idle transaction: it bounds how long a frozen process can block others with its locks. */
const IDLE_IN_TRANSACTION_MS = 1_000

/** Deadline for a reply: the server's own limit plus a slow network. */
export const ANSWER_LIMIT_MS = 3_000

/** Idle time before the network stack sends TCP keepalives. */
const KEEPALIVE_MS = 10_000

/** An orderly close is optional, so it may take only this long. */
const GOODBYE_LIMIT_MS = 500

export interface SessionKind {
  /** Part of the application name, which the server shows in `pg_stat_activity`. */
  readonly purpose: string
  /** `short`: long statements are cancelled. `long`: no limit. */
  readonly limits: 'short' | 'long'
  /**
   * Plan index look-ups only. With statistics from before a burst, the planner would read a table, or sort
   * all due rows, for each page.
   */
  readonly indexScansOnly: boolean
}

/** `not_replicated`: committed, but it is unknown whether the standbys have it. */
export type CommitResult = 'committed' | 'not_replicated' | 'rolled_back'

export interface ServerInfo {
  /** A standby, or set to read-only. */
  readonly isReadOnly: boolean
}

const INVALID_PASSWORD = '28P01'

/** First characters of the SQLSTATE of warnings. */
const WARNING_CLASS = '01'

/** Types of 64-bit integers and their sums, which are read as numbers: none exceeds the safe range. */
const BIGINT = 20
const NUMERIC = 1700

function safeInteger(text: string): number {
  const value = Number(text)
  assert(Number.isSafeInteger(value), `the store answered ${text}, which is not a safe integer`)
  return value
}

const parsers = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    oid === BIGINT || oid === NUMERIC ? safeInteger : types.getTypeParser(oid, format),
}

export class Session {
  readonly host: Host
  readonly client: Client
  /** Deadline of requests without a limit of their own. */
  answerLimitMs = ANSWER_LIMIT_MS
  readonly #socket: Socket
  readonly #clock: Pick<Clock, 'after'>
  #lost: Error | null = null
  #warned = false
  /** Settles with the reply to the newest request; never rejects. */
  #lastReply: Promise<unknown> = Promise.resolve()

  private constructor(host: Host, client: Client, socket: Socket, clock: Pick<Clock, 'after'>) {
    this.host = host
    this.client = client
    this.#socket = socket
    this.#clock = clock
    client.on('error', (error) => (this.#lost ??= error))
    client.on('end', () => (this.#lost ??= new Error('the connection has ended')))
    client.on('notice', ({code}) => {
      if (code?.startsWith(WARNING_CLASS) === true) this.#warned = true
    })
  }

  /** Throws `ConnectionLost`, `PasswordMissing`, `TlsMissing`, or the server's error. */
  static async connect(
    address: Address,
    host: Host,
    clock: Pick<Clock, 'after'>,
    applicationName: string,
  ): Promise<Session> {
    const socket = new Socket()
    const client = new Client({
      host: host.host,
      port: host.port,
      ...(address.user === null ? {} : {user: address.user}),
      ...(address.password === null ? {} : {password: address.password}),
      database: address.database,
      ssl: address.tls ?? false,
      application_name: applicationName,
      pipeline: true,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEPALIVE_MS,
      types: parsers,
      stream: () => socket,
    })
    const session = new Session(host, client, socket, clock)
    let missing: Error | null = null
    try {
      await session.#within(CONNECT_LIMIT_MS, async () => {
        try {
          await client.connect()
        } catch (error) {
          missing = missingPart(address, client, socket, error)
          throw error
        }
      })
    } catch (error) {
      throw missing ?? error
    }
    return session
  }

  get isOpen(): boolean {
    return this.#lost === null
  }

  /** Applies the session's settings and reads whether the server is read-only. One round trip. */
  async prepare(schema: string, {limits, indexScansOnly}: SessionKind): Promise<ServerInfo> {
    const statementMs = limits === 'short' ? STATEMENT_LIMIT_MS : 0
    const idleMs = limits === 'short' ? IDLE_IN_TRANSACTION_MS : 0
    const byKey = indexScansOnly ? 'off' : 'on'
    const results = await this.run(`
      SET search_path TO "${schema}";
      SET statement_timeout TO ${statementMs};
      SET lock_timeout TO ${statementMs};
      SET idle_in_transaction_session_timeout TO ${idleMs};
      SET standard_conforming_strings TO on;
      SET bytea_output TO hex;
      SET jit TO off;
      SET enable_seqscan TO ${byKey};
      SET enable_hashjoin TO ${byKey};
      SET enable_mergejoin TO ${byKey};
      SET enable_bitmapscan TO ${byKey};
      SET enable_material TO ${byKey};
      SET tcp_keepalives_idle TO 15;
      SET tcp_keepalives_interval TO 5;
      SET tcp_keepalives_count TO 3;
      SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
      SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only`)
    const row = results.at(-1)?.rows[0] as {read_only: boolean} | undefined
    assert(row !== undefined, 'a server returns its state')
    return {isReadOnly: row.read_only}
  }

  /** Statements without values, in one round trip; one result each. */
  async run(sql: string, limitMs = this.answerLimitMs): Promise<QueryResult<Row>[]> {
    const answer = await this.#within(limitMs, () => this.client.query<Row>(sql))
    // The client returns an array for several statements, which its types omit.
    return Array.isArray(answer) ? (answer as QueryResult<Row>[]) : [answer]
  }

  /** Runs a statement with `$n` placeholders; the server parses a named one only once. */
  async rows(
    text: string,
    values: readonly (Value | readonly Value[])[],
    name: string | null,
    limitMs = this.answerLimitMs,
  ): Promise<Row[]> {
    const query = {text, values: values.map(sendable), ...(name === null ? {} : {name})}
    return (await this.#within(limitMs, () => this.client.query<Row>(query))).rows
  }

  /** Ends the transaction. Throws `ConnectionLost` if the outcome is unknown. */
  async commit(limitMs: number): Promise<CommitResult> {
    this.#warned = false
    const [result] = await this.run('COMMIT', limitMs)
    if (result?.command !== 'COMMIT') return 'rolled_back'
    return this.#warned ? 'not_replicated' : 'committed'
  }

  /** Closes in order if the server still responds. */
  async close(): Promise<void> {
    if (this.#lost !== null) return
    const timer = this.#clock.after(GOODBYE_LIMIT_MS, () => this.#socket.destroy())
    await this.client.end()
    timer.cancel()
  }

  /** Closes at once; requests in flight fail. */
  destroy(): void {
    this.#lost ??= new Error('the connection was destroyed')
    this.#socket.destroy()
  }

  /** The limit counts from the reply to the previous request. */
  async #within<Answer>(limitMs: number, ask: () => Promise<Answer>): Promise<Answer> {
    if (this.#lost !== null) throw this.#lostBy(this.#lost)
    let isSettled = false
    let timer: Timer | null = null
    const startTimer = () => {
      if (isSettled) return
      timer = this.#clock.after(limitMs, () => {
        this.#lost ??= new Error(`no answer within ${limitMs} ms`)
        this.#socket.destroy()
      })
    }
    const reply = ask()
    void this.#lastReply.then(startTimer)
    this.#lastReply = Promise.allSettled([reply])
    try {
      return await reply
    } catch (error) {
      if (error instanceof DatabaseError) throw error
      this.#lost ??= asError(error)
      this.#socket.destroy()
      throw this.#lostBy(this.#lost)
    } finally {
      isSettled = true
      ;(timer as Timer | null)?.cancel()
    }
  }

  #lostBy(cause: Error): ConnectionLost {
    const {host, port} = this.host
    return new ConnectionLost(`${host}:${port}: ${textOf(cause)}`, {cause})
  }
}

/** The store's time for a time of the server; differs only in tests. */
export type StoreTime = (serverNow: number) => number

export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ READ ONLY'

/**
 * Key of the advisory lock of the schema: every transaction shares it, and a migration has it alone. A
 * migration locks all tables, so beside running transactions it would end in deadlocks and timeouts.
 */
export const SCHEMA_LOCK = `hashtextextended('belfry schema ' || current_schema(), 0)`

/**
 * Begins a transaction; one round trip. Returns the store's time, ms since the epoch. Throws `ConnectionLost`
 * if the server has become a standby, which would return stale rows.
 */
export async function beginTransaction(
  session: Session,
  isolation: Isolation,
  time: StoreTime,
): Promise<number> {
  const results = await session.run(`BEGIN ISOLATION LEVEL ${isolation};
    SELECT pg_advisory_xact_lock_shared(${SCHEMA_LOCK});
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
      pg_is_in_recovery() AS is_standby`)
  const row = results[2]?.rows[0] as unknown as {now: number; is_standby: boolean} | undefined
  assert(row !== undefined, 'a server returns its time')
  if (row.is_standby) {
    session.destroy()
    throw new ConnectionLost(`${session.host.host}:${session.host.port} is a standby now`)
  }
  return time(row.now)
}

/** Part that the connection lacks, if that is why it failed. */
function missingPart(
  address: Address,
  client: Client,
  socket: Socket,
  cause: unknown,
): PasswordMissing | TlsMissing | null {
  const isNetworkError = cause instanceof Error && 'code' in cause
  // A server without TLS replies to the request for it with one byte.
  if (address.tls !== null && socket.bytesRead === 1 && !isNetworkError)
    return new TlsMissing('the server has no TLS', {cause})
  if (!lacksPassword(client, socket, cause)) return null
  return new PasswordMissing('no password is given', {cause})
}

/**
 * True if the server requires a password and none is given. The client detects that only on the server's
 * request: it then fails while the socket is open, or sends an invalid password.
 */
function lacksPassword(client: Client, socket: Socket, error: unknown): boolean {
  if ((client.password ?? null) !== null) return false
  if (error instanceof DatabaseError) return sqlState(error) === INVALID_PASSWORD
  const isNetworkError = error instanceof Error && 'code' in error
  return !isNetworkError && socket.readyState === 'open'
}

function sendable(value: Value | readonly Value[]): Value {
  if (Array.isArray(value)) return `{${(value as readonly Value[]).map(element).join()}}`
  return typeof value === 'string' ? storable(value) : (value as Value)
}

/** Needs no quotes in the text of an array. */
const PLAIN_ELEMENT = /^[A-Za-z0-9_][A-Za-z0-9_.:-]*$/

/** Text of an array's element. The client's own encoding took a third of the time of a launch. */
function element(value: Value): string {
  if (value === null) return 'NULL'
  if (typeof value === 'number') return String(value)
  if (typeof value !== 'string') return `"\\\\x${Buffer.from(value).toString('hex')}"`
  const isPlain = PLAIN_ELEMENT.test(value) && value.toUpperCase() !== 'NULL'
  return isPlain ? value : `"${storable(value).replaceAll(/["\\]/g, '\\$&')}"`
}

/** PostgreSQL's texts cannot hold U+0000; it becomes U+FFFD. */
function storable(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\u{FFFD}') : text
}

/** Texts compare by bytes, as in SQLite, whatever the collation of the database is. */
export const postgresDialect: Dialect = {
  engine: 'postgres',
  locking: true,
  forUpdate: ' FOR UPDATE',
  forKeyShare: ' FOR KEY SHARE',
  columns: {
    integer: 'bigint',
    text: 'text COLLATE "C"',
    bytes: 'bytea',
    growingKey: 'bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY',
  },
  keyOrganised: '',
  createSequence: (name) => `CREATE SEQUENCE ${name}_numbers AS bigint`,
  takeNumbers,
  skipNumbers,
  markLeader,
  isLeaderConnected,
}

/** Key of the advisory lock of a term: the connections of an earlier term must not keep it. */
const TERM_KEY = `hashtextextended(current_schema() || ' leads ' || ?, 0)`

/**
 * Takes the advisory lock of the term for the session, once. The server releases it as soon as it notices the
 * end of the connection: at once if the leader's process is killed.
 */
function* markLeader(term: number): Query<void> {
  const text = String(term)
  yield* send(
    `SELECT CASE WHEN current_setting('belfry.leads', true) IS DISTINCT FROM ? THEN
      CASE WHEN pg_try_advisory_lock(${TERM_KEY}) THEN set_config('belfry.leads', ?, false) END END`,
    [text, text, text],
  )
}

/** Takes the lock for a moment, shared, so that candidates do not disturb one another. */
function* isLeaderConnected(term: number): Query<boolean | null> {
  const row = yield* one<{free: number}>(
    `SELECT pg_try_advisory_xact_lock_shared(${TERM_KEY})::int AS free`,
    [String(term)],
  )
  return row!.free === 0
}

/** Takes numbers of a sequence: a rollback does not return them, so no transaction waits for another. */
function* takeNumbers(name: Sequence, count: number): Query<number[]> {
  const rows = yield* all<{number: number}>(
    `SELECT nextval('${name}_numbers') AS number FROM generate_series(1::bigint, ?)`,
    [count],
  )
  return rows.map(({number}) => number)
}

function* skipNumbers(name: Sequence, count: number): Query<void> {
  yield* all(`SELECT setval('${name}_numbers', nextval('${name}_numbers') + ?)`, [count])
}
