/** Delays of launch decisions, from the launches of a stopped server, read directly from its database. */
import {DatabaseSync} from 'node:sqlite'
import {storeFiles} from '../../src/store/sqlite/files.ts'

interface LagRow {
  readonly lag: number
  readonly count: number
}

/**
 * Delay from planned time to decision, ms, of every scheduled launch of the jobs whose names start with
 * `prefix`, planned at `from` or later. Throws if a planned time was not launched.
 */
export function decisionLags(dataDir: string, prefix: string, from = 0): number[] {
  const {database: file} = storeFiles(dataDir)
  const database = new DatabaseSync(file, {readOnly: true})
  try {
    const range = [prefix, `${prefix}~`, from] as const
    const select = `FROM launches WHERE cause = 'schedule' AND job_name >= ? AND job_name < ?
      AND scheduled_at >= ?`
    // Rows have no static type; these are the selected columns.
    const others = database
      .prepare(`SELECT count(*) AS count ${select} AND decision <> 'launched'`)
      .get(...range) as unknown as LagRow
    if (others.count > 0)
      throw new Error(`${others.count} planned times of ${prefix} did not launch`)
    // The columns are those of the statement.
    const rows = database
      .prepare(`SELECT decided_at - scheduled_at AS lag ${select}`)
      .all(...range) as unknown as LagRow[]
    return rows.map(({lag}) => lag)
  } finally {
    database.close()
  }
}
