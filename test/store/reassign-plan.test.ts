/**
 * The query plan of the search for stuck executions, which runs every second beside millions of ended and
 * thousands of pending executions: it reads only pending ones, from an index in the order of its pages.
 */
import assert from 'node:assert/strict'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import {MIGRATIONS} from '../../src/store/sql/migrations.ts'
import {loadStuck} from '../../src/store/sql/launches/reassign.ts'
import {DEFAULT_LIMITS} from '../../src/store/sql/query.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'

test('the search for stuck executions reads only pending ones, in index order', () => {
  const database = new DatabaseSync(':memory:')
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) database.exec(statement)
  const tx = {now: 1, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
  const after = [7, 1, 1]
  const query = loadStuck(tx, {unclaimedMs: 0, after, limit: 9, of: 'all'})
  const plans: string[][] = []
  // The page ends at a limit of the rows it reads.
  const replies = [[{group_id: 9, slot: 0, attempt: 1}], []]
  for (let next = query.next(); next.done !== true; next = query.next(replies.shift() ?? [])) {
    assert.ok(next.value.kind === 'all')
    const plan = database.prepare(`EXPLAIN QUERY PLAN ${next.value.sql}`).all(...next.value.values)
    plans.push(plan.map(({detail}) => String(detail)))
  }
  assert.deepEqual(
    plans.map(([first]) => first),
    [
      'SEARCH e USING COVERING INDEX executions_pending ((group_id,slot,attempt)>(?,?,?))',
      'SEARCH e USING INDEX executions_pending ((group_id,slot,attempt)>(?,?,?) AND ' +
        '(group_id,slot,attempt)<(?,?,?))',
    ],
  )
  assert.deepEqual(
    plans.flat().filter((detail) => detail.includes('ORDER BY')),
    [],
  )
  database.close()
})
