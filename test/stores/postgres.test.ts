/** The store contract on a real PostgreSQL: the same cases, unchanged, each on a schema of its own. */
import assert from 'node:assert/strict'
import {after, before} from 'node:test'
import {openPostgresStore} from '../../src/stores/postgres/store.ts'
import {systemClock} from '../../src/system/system-clock.ts'
import {systemRandom} from '../../src/system/system-random.ts'
import {TestPostgres} from '../support/postgres.ts'
import {exerciseStore} from './exercise-store/exercise-store.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)

let postgres: TestPostgres
let schemas = 0

before(async () => (postgres = await TestPostgres.start({fsync: 'on', full_page_writes: 'on'})))
after(() => postgres.close())

exerciseStore('PostgreSQL', async () => {
  let now = STARTED_AT
  schemas += 1
  const opened = await openPostgresStore({
    url: `${postgres.url()}?schema=case_${schemas}`,
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
    close: () => opened.store.close(),
  }
})
