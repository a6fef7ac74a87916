/** Lags of all launches, read from PostgreSQL, by the database's clock. */
import type {Cluster} from './cluster.ts'

export interface Lags {
  /** Time from the planned time to the transaction that launched it, in ms, for every planned time. */
  readonly decidedMs: readonly number[]
  /** Time from the planned time to the claim, after which the command is started, in ms. */
  readonly startedMs: readonly number[]
}

/**
 * Lags of scheduled launches of the jobs whose names start with `prefix`, planned at `from` or later.
 * Throws if a planned time was not launched.
 */
export async function clusterLags(cluster: Cluster, prefix: string, from = 0): Promise<Lags> {
  const rows = await cluster.rows<{decision: string; decided: number; started: number | null}>(
    `SELECT l.decision, (l.decided_at - l.scheduled_at)::int AS decided,
      (e.started_at - l.scheduled_at)::int AS started
      FROM launches l LEFT JOIN executions e ON e.group_id = l.group_id AND e.attempt = 1
      WHERE l.cause = 'schedule' AND l.job_name >= $1 AND l.job_name < $2 AND l.scheduled_at >= $3`,
    [prefix, `${prefix}~`, from],
  )
  const others = rows.filter(({decision}) => decision !== 'launched')
  if (others.length > 0)
    throw new Error(`${others.length} planned times of ${prefix} did not launch`)
  return {
    decidedMs: rows.map(({decided}) => decided),
    startedMs: rows.flatMap(({started}) => (started === null ? [] : [started])),
  }
}
