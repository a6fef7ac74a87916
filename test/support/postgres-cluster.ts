/**
 * Stores of several servers on one PostgreSQL, and a client that holds a lock: makes two transactions
 * conflict at a chosen statement.
 */
import assert from 'node:assert/strict'
import {Client} from 'pg'
import {openPostgresStore, type OpenedPostgresStore} from '../../src/store/postgres/store.ts'
import type {Store} from '../../src/ports/store.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {systemRandom} from '../../src/platform/random.ts'
import {Scene} from '../store/exercise-store/scene.ts'
import type {TestPostgres} from './postgres.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
/** Polls until a lock is waited for: usually a few; this many take seconds. */
const LOOKS_MAX = 20_000

let schemas = 0

export type Opened = Extract<OpenedPostgresStore, {ok: true}>

/** Connection string with an unused schema. */
export function freshSchema(url: string): string {
  schemas += 1
  return `${url}?schema=test_${schemas}`
}

/** Opens a store and fails the test if that is refused; `time` defaults to the real time. */
export async function openAt(url: string, time?: () => number): Promise<Opened> {
  const opened = await openPostgresStore({
    url,
    clock: systemClock(),
    random: systemRandom(),
    ...(time === undefined ? {} : {time}),
  })
  assert(opened.ok, opened.ok ? '' : opened.problem)
  return opened
}

export interface Cluster {
  /** Scene of the first server: its leader, node `n1`, and a clock that only the test advances. */
  readonly scene: Scene
  readonly first: Store
  readonly second: Store
  readonly url: string
  /** Runs `sql` in a transaction that stays open, with its locks, until it is released. */
  hold(sql: string): Promise<Holder>
  /** Resolves when `connections` connections wait for a lock. */
  waiting(connections: number): Promise<void>
  rows(sql: string): Promise<Record<string, unknown>[]>
}

export interface Holder {
  /** Commits. */
  release(): Promise<void>
}

/** Runs a test with two servers on an unused schema, and closes them. */
export async function withCluster(
  postgres: TestPostgres,
  play: (cluster: Cluster) => Promise<void>,
): Promise<void> {
  let now = STARTED_AT
  const time = () => now
  const url = freshSchema(postgres.url())
  const first = (await openAt(url, time)).store
  const second = (await openAt(url, time)).store
  const observer = await connected(url)
  const clients: Client[] = [observer]
  const scene = await Scene.open(async () => {
    const advance = (ms: number) => void (now += ms)
    return {store: first, startedAt: STARTED_AT, advance, close: () => first.close()}
  })
  try {
    await play({
      scene,
      first,
      second,
      url,
      hold: async (sql) => {
        const client = await connected(url)
        clients.push(client)
        await client.query('BEGIN')
        await client.query(sql)
        return {release: async () => void (await client.query('COMMIT'))}
      },
      waiting: (connections) => untilWaiting(observer, connections),
      rows: async (sql) => (await observer.query<Record<string, unknown>>(sql)).rows,
    })
  } finally {
    await Promise.all(clients.map((client) => client.end()))
    await Promise.all([first.close(), second.close()])
  }
}

async function connected(url: string): Promise<Client> {
  const [connectionString, schema] = url.split('?schema=')
  const client = new Client({connectionString: connectionString!})
  await client.connect()
  await client.query(`SET search_path TO ${schema}`)
  return client
}

async function untilWaiting(observer: Client, connections: number): Promise<void> {
  const sql = `SELECT count(*)::int AS waiting FROM pg_stat_activity WHERE wait_event_type = 'Lock'`
  for (let look = 0; look < LOOKS_MAX; look += 1) {
    const {rows} = await observer.query<{waiting: number}>(sql)
    if (rows[0]!.waiting === connections) return
  }
  assert.fail(`${connections} connections never waited for a lock`)
}
