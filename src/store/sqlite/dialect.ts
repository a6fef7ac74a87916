/** What is particular to SQLite's SQL. */
import {all, one, type Step} from '../sql/query.ts'
import type {Dialect, Sequence} from '../sql/transaction.ts'

/** A writer is alone in its transaction, so nothing needs a lock of its own. */
export const sqliteDialect: Dialect = {
  engine: 'sqlite',
  forUpdate: '',
  forKeyShare: '',
  columns: {integer: 'INTEGER', text: 'TEXT', bytes: 'BLOB'},
  keyOrganised: ' WITHOUT ROWID',
  createSequence: (name) => `CREATE TABLE ${name}_numbers AS SELECT 0 AS last`,
  takeNumbers,
  skipNumbers,
}

function* takeNumbers(name: Sequence, count: number): Step<number[]> {
  const row = yield* one<{last: number}>(
    `UPDATE ${name}_numbers SET last = last + ? RETURNING last`,
    [count],
  )
  const first = row!.last - count + 1
  return Array.from({length: count}, (_, index) => first + index)
}

function* skipNumbers(name: Sequence, count: number): Step<void> {
  yield* all(`UPDATE ${name}_numbers SET last = last + ?`, [count])
}
