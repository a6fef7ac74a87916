/** Access policies: texts by name. What they mean is decided elsewhere. */
import type {Policy} from '../../ports/store.ts'
import {all, one, type Step} from './query.ts'
import type {Transaction} from './transaction.ts'

export function* policies(_tx: Transaction): Step<readonly Policy[]> {
  const rows = yield* all<Policy>(`SELECT name, rules FROM policies ORDER BY name`)
  return rows.map(({name, rules}) => ({name, rules}))
}

export function* policy(_tx: Transaction, name: string): Step<Policy | null> {
  const row = yield* one<Policy>(`SELECT name, rules FROM policies WHERE name = ?`, [name])
  return row === null ? null : {name: row.name, rules: row.rules}
}

export function* putPolicy(_tx: Transaction, {name, rules}: Policy): Step<void> {
  yield* all(
    `INSERT INTO policies (name, rules) VALUES (?, ?)
      ON CONFLICT (name) DO UPDATE SET rules = excluded.rules`,
    [name, rules],
  )
}

export function* deletePolicy(_tx: Transaction, name: string): Step<Policy | null> {
  const row = yield* one<Policy>(`DELETE FROM policies WHERE name = ? RETURNING name, rules`, [
    name,
  ])
  return row === null ? null : {name: row.name, rules: row.rules}
}
