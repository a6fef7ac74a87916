/**
 * The store contract on a real PostgreSQL: the same cases, unchanged. They share one schema, which is
 * emptied between them.
 */
import assert from 'node:assert/strict'
import {after, before} from 'node:test'
import {Client} from 'pg'
import {openPostgresStore} from '../../src/stores/postgres/store.ts'
import {systemClock} from '../../src/system/system-clock.ts'
import {systemRandom} from '../../src/system/system-random.ts'
import {TestPostgres} from '../support/postgres.ts'
import {exerciseStore} from './exercise-store/exercise-store.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
const SCHEMA = 'contract'
/** As the migrations leave it. */
const EMPTY = `DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables
    WHERE schemaname = '${SCHEMA}' AND tablename NOT IN ('schema_version', 'leader')
  LOOP EXECUTE 'DELETE FROM ${SCHEMA}.' || name; END LOOP;
  UPDATE ${SCHEMA}.leader SET term = 0, holder = '', node_id = '', expires_at = 0;
END $$`

let postgres: TestPostgres
let janitor: Client

before(async () => {
  // The contract asks for a store that loses nothing, and so says no warning.
  postgres = await TestPostgres.start({fsync: 'on', full_page_writes: 'on'})
  janitor = new Client({connectionString: postgres.url()})
  await janitor.connect()
})
after(async () => {
  await janitor.end()
  await postgres.close()
})

exerciseStore('PostgreSQL', async () => {
  let now = STARTED_AT
  const opened = await openPostgresStore({
    url: `${postgres.url()}?schema=${SCHEMA}`,
    clock: systemClock(),
    random: systemRandom(),
    time: () => now,
    connections: {writes: 1, reads: 1},
  })
  assert(opened.ok, opened.ok ? '' : opened.problem)
  return {
    store: opened.store,
    startedAt: STARTED_AT,
    advance: (ms) => void (now += ms),
    close: async () => {
      await opened.store.close()
      await janitor.query(EMPTY)
    },
  }
})
