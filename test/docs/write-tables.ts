/**
 * Rewrites the tables of docs/reference that come from tables in the code: `node test/docs/write-tables.ts`.
 */
import {writeFileSync} from 'node:fs'
import {partsOf, pathOf, TABLES} from './tables.ts'

for (const table of TABLES) {
  const {before, after} = partsOf(table)
  writeFileSync(pathOf(table), [...before, ...table.rows, ...after].join('\n'))
}
