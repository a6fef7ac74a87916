/** A connection to SQLite: the rows it returns, and how often SQLite plans its statements. */
import assert from 'node:assert/strict'
import {constants} from 'node:sqlite'
import {test} from 'node:test'
import {all} from '../../src/store/sql/query.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'

const FIVE = `WITH RECURSIVE five (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM five WHERE n < 5)`

function connect(): Connection {
  return new Connection(':memory:', {readOnly: false})
}

test('a row is an object with the names of its columns', () => {
  const connection = connect()
  const rows = connection.run(all(`SELECT 1 AS one, 'b' AS two, NULL AS three WHERE ? = 1`, [1]))
  assert.deepEqual(rows, [{one: 1, two: 'b', three: null}])
  assert.deepEqual(connection.run(all('CREATE TABLE t (a)')), [])
  connection.close()
})

test('a statement with a limit is planned once, whatever the values are', () => {
  const connection = connect()
  let plannedCount = 0
  connection.database.setAuthorizer(() => {
    plannedCount += 1
    return constants.SQLITE_OK
  })
  const page = (limit: number, offset: number) =>
    connection.run(all(`${FIVE} SELECT n FROM five ORDER BY n LIMIT ? OFFSET ?`, [limit, offset]))
  assert.deepEqual(page(2, 0), [{n: 1}, {n: 2}])
  const plannedOnce = plannedCount
  assert.ok(plannedOnce > 0)
  assert.deepEqual(page(1, 3), [{n: 4}])
  assert.deepEqual(page(9, 4), [{n: 5}])
  assert.equal(plannedCount, plannedOnce)
  connection.close()
})
