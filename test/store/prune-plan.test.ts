/** Query plans of retention: the search for deleted jobs reads only those that are due for removal. */
import assert from 'node:assert/strict'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import {MIGRATIONS} from '../../src/store/sql/migrations.ts'
import {DELETED_JOBS, EXPIRED_JOBS} from '../../src/store/sql/cluster/prune.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'

test('the search for deleted jobs reads no tombstone that is kept, and does not sort', () => {
  const database = new DatabaseSync(':memory:')
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) database.exec(statement)
  const planOf = (sql: string, ...values: number[]) =>
    database
      .prepare(`EXPLAIN QUERY PLAN ${sql}`)
      .all(...values)
      .map(({detail}) => String(detail))
  const deleted = planOf(DELETED_JOBS, 100)
  const expired = planOf(EXPIRED_JOBS, 5, 100)
  assert.match(deleted[0]!, /SCAN jobs USING (COVERING )?INDEX jobs_deleted/)
  assert.match(expired[0]!, /SEARCH jobs USING (COVERING )?INDEX jobs_kept \(deleted_at<\?\)/)
  for (const step of [...deleted, ...expired]) assert.doesNotMatch(step, /ORDER BY/)
  database.close()
})
