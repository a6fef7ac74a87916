/**
 * The query plan of a claim: it reads only the rows it takes. Thousands of executions may be pending for a
 * node since the same instant, and a claim of a few must not sort them all.
 */
import assert from 'node:assert/strict'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import {claim} from '../../src/store/sql/executions/claims.ts'
import {MIGRATIONS} from '../../src/store/sql/migrations.ts'
import {
  type StatementResult,
  DEFAULT_LIMITS,
  type RunAll,
  type Transaction,
} from '../../src/store/sql/query.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'

/** The statement of the claim that selects executions. */
function taking(tx: Transaction): RunAll {
  const request = {nodeId: 'n', incarnation: 'i', token: 't', room: 16}
  const step = claim(tx, [request])
  // The statements for the member, its newest claim and its due work.
  const found: StatementResult = [
    [{incarnation: 'i', status: 'alive', cordoned_at: null, token: '', is_due: 1, next_at: null}],
  ]
  let next = step.next()
  while (next.done !== true) {
    const command = next.value
    if (command.kind === 'all' && command.sql.includes('ORDER BY e.not_before')) return command
    next = step.next(command.kind === 'together' ? command.statements.map(() => found) : found)
  }
  assert.fail('the claim looked for nothing')
}

test('a claim reads pending executions from an index in claim order', () => {
  const database = new DatabaseSync(':memory:')
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) database.exec(statement)
  const {sql, values} = taking({now: 1, dialect: sqliteDialect, limits: DEFAULT_LIMITS})
  const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...values)
  const steps = plan.map(({detail}) => String(detail))
  assert.match(steps[0]!, /e USING INDEX executions_waiting/)
  assert.deepEqual(
    steps.filter((detail) => detail.includes('ORDER BY')),
    [],
  )
  database.close()
})
