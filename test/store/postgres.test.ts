/**
 * The store contract on a real PostgreSQL, on the schema of this release and on that of the next one. The
 * cases share one schema each, emptied before each case.
 */
import assert from 'node:assert/strict'
import {after, before} from 'node:test'
import {Client} from 'pg'
import {openPostgresStore} from '../../src/store/postgres/store.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {systemRandom} from '../../src/platform/random.ts'
import {TestPostgres} from '../support/postgres.ts'
import {exerciseStore} from './exercise-store/exercise-store.ts'
import {sharedStore, type SharedStore} from './exercise-store/shared-store.ts'
import {migrateToNextRelease} from './next-release.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
/** Restores the state of a new store. Terms keep growing: the connection of a leader keeps its lock. */
const empty = (schema: string) => `DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables
    WHERE schemaname = '${schema}' AND tablename NOT IN ('schema_version', 'leader', 'meta')
  LOOP EXECUTE 'DELETE FROM ${schema}.' || name; END LOOP;
  DELETE FROM ${schema}.meta WHERE key NOT IN ('cluster_id', 'incarnation');
  UPDATE ${schema}.leader SET holder = '', node_id = '', expires_at = 0;
END $$`

let postgres: TestPostgres
let janitor: Client

before(async () => {
  // The contract requires a durable store, without warnings.
  postgres = await TestPostgres.start({fsync: 'on', full_page_writes: 'on'})
  janitor = new Client({connectionString: postgres.url()})
  await janitor.connect()
  await migrateToNextRelease(`${postgres.url()}?schema=next_release`)
})
async function on(schema: string): Promise<SharedStore> {
  let now = STARTED_AT
  const opened = await openPostgresStore({
    url: `${postgres.url()}?schema=${schema}`,
    clock: systemClock(),
    random: systemRandom(),
    time: () => now,
    connections: {writes: 1, reads: {services: 1, nodes: 1, requests: 1, lists: 1}},
  })
  assert(opened.ok, opened.ok ? '' : opened.problem)
  return {
    store: opened.store,
    startedAt: STARTED_AT,
    advance: (ms) => void (now += ms),
    empty: async () => {
      await janitor.query(empty(schema))
      now = STARTED_AT
    },
    close: async () => {
      await opened.store.close()
      await janitor.query(empty(schema))
    },
  }
}

const onThisRelease = sharedStore(() => on('this_release'))
const onNextRelease = sharedStore(() => on('next_release'))
after(async () => {
  await janitor.end()
  await postgres.close()
})
exerciseStore('PostgreSQL', onThisRelease)
exerciseStore('PostgreSQL on the schema of the next release', onNextRelease, false)
