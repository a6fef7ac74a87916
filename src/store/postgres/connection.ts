/**
 * One connection to one PostgreSQL server, with the settings every statement of ours relies on. Every
 * request has an end: a server that does not answer in time is given up with its connection, because a
 * half-open connection tells nobody. Knows no transactions and no pool.
 */
import {Socket} from 'node:net'
import {Client, DatabaseError, type QueryResult, types} from 'pg'
import {assert} from '../../lib/assert.ts'
import type {Clock} from '../../ports/runtime.ts'
import {all, type Dialect, type Row, type Sequence, type Query, type Value} from '../sql/query.ts'
import {ConnectionLost, PasswordMissing, sqlState, textOf} from './errors.ts'
import type {Address, Host} from './url.ts'

/** A server that is there answers within milliseconds; a host that is gone must not hold up the others. */
export const CONNECT_LIMIT_MS = 2_000
/** The server gives up a statement, or waiting for a lock, after this. */
const STATEMENT_LIMIT_MS = 2_000
/** What a transaction may stand still: it bounds what a frozen process can lock out. */
const IDLE_IN_TRANSACTION_MS = 1_000
/** When the server itself must have answered: its own limit and a slow network. */
export const ANSWER_LIMIT_MS = 3_000
/** The network stack asks a silent server after this whether it is still there. */
const KEEPALIVE_MS = 10_000
/** Saying goodbye is a courtesy. */
const GOODBYE_LIMIT_MS = 500

/** How a session differs from the others. */
export interface SessionKind {
  /** Shown by the server in its list of activity. */
  readonly purpose: string
  /** `short` ends what takes long; `long` = statements may take as long as they need. */
  readonly limits: 'short' | 'long'
  /** Rows are found by their keys: plans made for a table while it was small must not outlive that. */
  readonly byKeys: boolean
}

export interface ServerNature {
  /** A standby, or told to take no writes. */
  readonly isReadOnly: boolean
}

const INVALID_PASSWORD = '28P01'
/** First characters of the SQLSTATE of warnings. */
const WARNING_CLASS = '01'

/** 64-bit integers and sums of them are numbers of ours: none of them is beyond what a number holds. */
const BIGINT = 20
const NUMERIC = 1700

function safeInteger(text: string): number {
  const value = Number(text)
  assert(Number.isSafeInteger(value), `the store answered ${text}, which is no integer of ours`)
  return value
}

const parsers = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    oid === BIGINT || oid === NUMERIC ? safeInteger : types.getTypeParser(oid, format),
}

export class Session {
  readonly host: Host
  readonly client: Client
  /** When a request that names no limit of its own must have been answered. */
  answerLimitMs = ANSWER_LIMIT_MS
  readonly #socket: Socket
  readonly #clock: Pick<Clock, 'after'>
  #lost: Error | null = null
  #warned = false

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

  /** Throws `ConnectionLost`, `PasswordMissing`, or the server's own refusal. */
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
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEPALIVE_MS,
      types: parsers,
      stream: () => socket,
    })
    const session = new Session(host, client, socket, clock)
    let isUntold = false
    try {
      await session.#within(CONNECT_LIMIT_MS, async () => {
        try {
          await client.connect()
        } catch (error) {
          isUntold = lacksPassword(client, socket, error)
          throw error
        }
      })
    } catch (error) {
      throw isUntold ? new PasswordMissing('no password is given', {cause: error}) : error
    }
    return session
  }

  get isOpen(): boolean {
    return this.#lost === null
  }

  /** Gives the session its settings and tells what the server is. One round trip. */
  async prepare(schema: string, {limits, byKeys}: SessionKind): Promise<ServerNature> {
    const statementMs = limits === 'short' ? STATEMENT_LIMIT_MS : 0
    const idleMs = limits === 'short' ? IDLE_IN_TRANSACTION_MS : 0
    const byKey = byKeys ? 'off' : 'on'
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
      SET tcp_keepalives_idle TO 15;
      SET tcp_keepalives_interval TO 5;
      SET tcp_keepalives_count TO 3;
      SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
      SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only`)
    const row = results.at(-1)?.rows[0] as {read_only: boolean} | undefined
    assert(row !== undefined, 'a server says what it is')
    return {isReadOnly: row.read_only}
  }

  /** Statements without values, in one round trip; one result each. */
  async run(sql: string, limitMs = this.answerLimitMs): Promise<QueryResult<Row>[]> {
    const answer = await this.#within(limitMs, () => this.client.query<Row>(sql))
    // Several statements are answered by an array, which the client's types do not say.
    return Array.isArray(answer) ? (answer as QueryResult<Row>[]) : [answer]
  }

  /** One statement with `$n` placeholders; a named one is parsed once by the server. */
  async rows(
    text: string,
    values: readonly (Value | readonly Value[])[],
    name: string | null,
    limitMs = this.answerLimitMs,
  ): Promise<Row[]> {
    const query = {text, values: values.map(sendable), ...(name === null ? {} : {name})}
    return (await this.#within(limitMs, () => this.client.query<Row>(query))).rows
  }

  /**
   * Commits. `false` = the server said that it did, and warned: it did not wait for its standbys, so
   * nobody knows whether they have it.
   */
  async commit(limitMs: number): Promise<boolean> {
    this.#warned = false
    const [result] = await this.run('COMMIT', limitMs)
    assert(result?.command === 'COMMIT', 'a transaction that failed is not committed')
    return !this.#warned
  }

  /** Ends it in good order if the server still listens. */
  async close(): Promise<void> {
    if (this.#lost !== null) return
    const timer = this.#clock.after(GOODBYE_LIMIT_MS, () => this.#socket.destroy())
    await this.client.end()
    timer.cancel()
  }

  /** Ends it at once, whatever was under way. */
  destroy(): void {
    this.#lost ??= new Error('the connection was given up')
    this.#socket.destroy()
  }

  async #within<Answer>(limitMs: number, ask: () => Promise<Answer>): Promise<Answer> {
    if (this.#lost !== null) throw this.#lostBy(this.#lost)
    const timer = this.#clock.after(limitMs, () => {
      this.#lost ??= new Error(`no answer within ${limitMs} ms`)
      this.#socket.destroy()
    })
    try {
      return await ask()
    } catch (error) {
      if (error instanceof DatabaseError) throw error
      this.#lost ??= error instanceof Error ? error : new Error(String(error))
      this.#socket.destroy()
      throw this.#lostBy(this.#lost)
    } finally {
      timer.cancel()
    }
  }

  #lostBy(cause: Error): ConnectionLost {
    const {host, port} = this.host
    return new ConnectionLost(`${host}:${port}: ${textOf(cause)}`, {cause})
  }
}

/**
 * The client only knows that it has no password when the server asks for one: then it gives up by itself
 * while the connection stands, or sends something that no server takes.
 */
function lacksPassword(client: Client, socket: Socket, error: unknown): boolean {
  if ((client.password ?? null) !== null) return false
  if (error instanceof DatabaseError) return sqlState(error) === INVALID_PASSWORD
  const isOfTheNetwork = error instanceof Error && 'code' in error
  return !isOfTheNetwork && socket.readyState === 'open'
}

/** PostgreSQL's texts hold every character but the first one, U+0000. */
function sendable(value: Value | readonly Value[]): unknown {
  if (typeof value === 'string') return value.includes('\0') ? withoutZero(value) : value
  if (Array.isArray(value)) return value.map(sendable)
  return value
}

function withoutZero(text: string): string {
  return text.replaceAll('\0', '\u{FFFD}')
}

/* Beginning a transaction: on a server that is still the primary, at an instant of its clock. */

/** The store's time by the server's: the same, but for a test that turns it. */
export type StoreTime = (serverNow: number) => number

export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ READ ONLY'

/**
 * One round trip. Answers the store's now, ms since the epoch. Throws `ConnectionLost` when the server has
 * become a standby, which would answer reads with what was.
 */
export async function beginTransaction(
  session: Session,
  isolation: Isolation,
  time: StoreTime,
): Promise<number> {
  const results = await session.run(`BEGIN ISOLATION LEVEL ${isolation};
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
      pg_is_in_recovery() AS is_standby`)
  const row = results[1]?.rows[0] as unknown as {now: number; is_standby: boolean} | undefined
  // A row's columns are only known here, where the statement stands.
  assert(row !== undefined, 'a server says what time it is')
  if (row.is_standby) {
    session.destroy()
    throw new ConnectionLost(`${session.host.host}:${session.host.port} is a standby now`)
  }
  return time(row.now)
}

/* What is particular to PostgreSQL's SQL. */

/** Texts compare by their bytes, whatever the database's own order is: as they do in SQLite. */
export const postgresDialect: Dialect = {
  engine: 'postgres',
  locking: true,
  forUpdate: ' FOR UPDATE',
  forKeyShare: ' FOR KEY SHARE',
  columns: {integer: 'bigint', text: 'text COLLATE "C"', bytes: 'bytea'},
  keyOrganised: '',
  createSequence: (name) => `CREATE SEQUENCE ${name}_numbers AS bigint`,
  takeNumbers,
  skipNumbers,
}

/** A sequence: its numbers are gone even when the transaction is undone, so nobody ever waits for one. */
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
