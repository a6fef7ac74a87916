/** The condition for the jobs that a list shows. Patterns are values: only their number is in the SQL. */
import type {NameFilter} from '../../../core/access/authorization.ts'
import type {Value} from '../query.ts'

export interface Condition {
  readonly sql: string
  readonly values: readonly Value[]
}

/** `column` has names of jobs, in lower case: SQLite ignores the case of ASCII letters in LIKE. */
export function isShownName(column: string, filter: NameFilter): Condition {
  if (filter === null) return {sql: '1 = 1', values: []}
  if (filter.length === 0) return {sql: '1 = 0', values: []}
  const cases = filter.map(({pattern, shown}) => {
    const matches = pattern.includes('*') ? `LIKE ? ESCAPE '\\'` : '= ?'
    return `WHEN ${column} ${matches} THEN ${shown ? 1 : 0}`
  })
  return {
    sql: `CASE ${cases.join(' ')} ELSE 0 END = 1`,
    values: filter.map(({pattern}) => (pattern.includes('*') ? likePattern(pattern) : pattern)),
  }
}

/** Text for LIKE with `\` as its escape; every other character than `*` stands for itself. */
export function likePattern(pattern: string): string {
  return escapeLike(pattern).replaceAll('*', '%')
}

export function escapeLike(text: string): string {
  return text.replaceAll(/[\\%_]/g, (found) => `\\${found}`)
}
