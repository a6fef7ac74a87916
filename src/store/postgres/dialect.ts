/** What is particular to PostgreSQL's SQL. */
import {all, type Step} from '../sql/query.ts'
import type {Dialect, Sequence} from '../sql/transaction.ts'

/** Texts compare by their bytes, whatever the database's own order is: as they do in SQLite. */
export const postgresDialect: Dialect = {
  engine: 'postgres',
  forUpdate: ' FOR UPDATE',
  forKeyShare: ' FOR KEY SHARE',
  columns: {integer: 'bigint', text: 'text COLLATE "C"', bytes: 'bytea'},
  keyOrganised: '',
  createSequence: (name) => `CREATE SEQUENCE ${name}_numbers AS bigint`,
  takeNumbers,
  skipNumbers,
}

/** A sequence: its numbers are gone even when the transaction is undone, so nobody ever waits for one. */
function* takeNumbers(name: Sequence, count: number): Step<number[]> {
  const rows = yield* all<{number: number}>(
    `SELECT nextval('${name}_numbers') AS number FROM generate_series(1::bigint, ?)`,
    [count],
  )
  return rows.map(({number}) => number)
}

function* skipNumbers(name: Sequence, count: number): Step<void> {
  yield* all(`SELECT setval('${name}_numbers', nextval('${name}_numbers') + ?)`, [count])
}
