/**
 * The query plan of the search for stuck executions, which runs every second beside millions of ended and
 * thousands of pending executions: it reads only pending ones, from an index in the order of its pages.
 */
import assert from 'node:assert/strict'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import {MIGRATIONS} from '../../src/store/sql/migrations.ts'
import {loadStuck} from '../../src/store/sql/reassign.ts'
import {DEFAULT_LIMITS} from '../../src/store/sql/query.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'

test('the search for stuck executions reads only pending ones, in index order', () => {
  const database = new DatabaseSync(':memory:')
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) database.exec(statement)
  const tx = {now: 1, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
  const {value} = loadStuck(tx, {
    unclaimedMs: 0,
    after: {group: 7, slot: 1, attempt: 1},
    limit: 9,
  }).next()
  assert.ok(value !== undefined && 'kind' in value && value.kind === 'all')
  const plan = database.prepare(`EXPLAIN QUERY PLAN ${value.sql}`).all(...value.values)
  const steps = plan.map(({detail}) => String(detail))
  assert.match(
    steps[0]!,
    /SEARCH e USING INDEX executions_pending \(\(group_id,slot,attempt\)>\(\?,\?,\?\)\)/,
  )
  assert.deepEqual(
    steps.filter((detail) => detail.includes('ORDER BY')),
    [],
  )
  database.close()
})
