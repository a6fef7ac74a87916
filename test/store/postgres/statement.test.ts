/** SQL texts rewritten for PostgreSQL. The store's contract tests their effect. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {numbered, setBased} from '../../../src/store/postgres/statements.ts'

const ROWS = (types: string, names: string) =>
  `unnest(${types}) WITH ORDINALITY AS each_row (${names}, i)`

describe('placeholders', () => {
  it('are numbered, except between quotes', () => {
    assert.equal(
      numbered(`SELECT a FROM t WHERE b = ? AND c = '?' AND d LIKE ? ESCAPE '\\'`),
      `SELECT a FROM t WHERE b = $1 AND c = '?' AND d LIKE $2 ESCAPE '\\'`,
    )
    assert.equal(numbered('SELECT 1'), 'SELECT 1')
  })
})

describe('a statement for many rows', () => {
  const check = (given: string, types: readonly string[], expected: string) => {
    assert.equal(setBased(given, types).replaceAll(/\s+/g, ' '), expected)
  }

  it('a select runs once beside each row of values', () => {
    check(
      'SELECT a FROM t WHERE b = ? ORDER BY a LIMIT ? FOR UPDATE',
      ['text', 'bigint'],
      `SELECT each_row.i AS each_index, found.* FROM ${ROWS('$1::text[], $2::bigint[]', 'v1, v2')} ` +
        `CROSS JOIN LATERAL (SELECT * FROM (SELECT a FROM t WHERE b = each_row.v1 ORDER BY a ` +
        `LIMIT each_row.v2 FOR UPDATE) AS looked_up OFFSET 0) AS found`,
    )
  })

  it('an insert takes its values from the rows and keeps its conflict clause', () => {
    check(
      `INSERT INTO t (a, b, c) VALUES (?, lower(?), 'x)') ON CONFLICT (a) DO UPDATE SET b = excluded.b`,
      ['bigint', 'text'],
      `INSERT INTO t (a, b, c) SELECT each_row.v1, lower(each_row.v2), 'x)' FROM ` +
        `${ROWS('$1::bigint[], $2::text[]', 'v1, v2')} ON CONFLICT (a) DO UPDATE SET b = excluded.b`,
    )
  })

  it('an update joins the rows before its own WHERE, not an inner one', () => {
    check(
      `UPDATE t SET a = CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a = t.a) THEN 1 ELSE ? END
        WHERE b = ?`,
      ['bigint', 'text'],
      `UPDATE t SET a = CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a = t.a) THEN 1 ELSE each_row.v1 END ` +
        `FROM ${ROWS('$1::bigint[], $2::text[]', 'v1, v2')} WHERE b = each_row.v2`,
    )
  })

  it('takes a value that all rows share only once', () => {
    const insert = setBased('INSERT INTO t (a, b) VALUES (?, ?)', ['bigint', 'text'], new Set([1]))
    assert.equal(
      insert.replaceAll(/\s+/g, ' '),
      `INSERT INTO t (a, b) SELECT each_row.v1, $2::text FROM ${ROWS('$1::bigint[]', 'v1')}`,
    )
  })

  it('a delete returns the index of its row of values', () => {
    check(
      'DELETE FROM t WHERE a = ? RETURNING length(b) AS size',
      ['bigint'],
      `DELETE FROM t USING ${ROWS('$1::bigint[]', 'v1')} WHERE a = each_row.v1 ` +
        `RETURNING each_row.i AS each_index, length(b) AS size`,
    )
  })

  it('a statement that cannot take several rows is refused', () => {
    assert.throws(() => setBased('VALUES (?)', ['text']), TypeError)
    assert.throws(() => setBased('DELETE FROM t', []), {name: 'AssertionFailed'})
    assert.throws(() => setBased('SELECT ?', []), {name: 'AssertionFailed'})
  })
})
