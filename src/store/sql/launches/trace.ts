/** Reads the chain of a launch. Its rows name the launch that began it. */
import type {ExecutionStatus} from '../../../core/execution.ts'
import type {TracedLaunch} from '../../../core/trace.ts'
import {all, one, oneEach, type Query, together, type Transaction} from '../query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow} from '../rows.ts'
import {isOfVisibleJob} from './across-jobs.ts'

interface Bounds {
  readonly started_at: number | null
  readonly finished_at: number | null
}

interface Failure {
  readonly status: ExecutionStatus
  readonly reason: string
  readonly exit_code: number | null
}

export function* trace(
  tx: Transaction,
  group: number,
  limit: number,
): Query<readonly TracedLaunch[]> {
  const found = yield* one<{root: number}>(
    `SELECT coalesce(root_group, group_id) AS root FROM launches WHERE group_id = ?`,
    [group],
  )
  if (found === null) return []
  const visible = isOfVisibleJob(tx, 'l')
  const select = `SELECT ${LAUNCH_COLUMNS} FROM launches l WHERE ${visible.sql}`
  const [root, below] = yield* together(
    all<LaunchRow>(`${select} AND l.group_id = ?`, [...visible.values, found.root]),
    all<LaunchRow>(`${select} AND l.root_group = ? ORDER BY l.group_id LIMIT ?`, [
      ...visible.values,
      found.root,
      limit,
    ]),
  )
  const rows = [...root, ...below].slice(0, limit)
  const groups = rows.map((row) => [row.group_id])
  const [bounds, failures] = yield* together(
    oneEach<Bounds>(
      `SELECT min(started_at) AS started_at, max(finished_at) AS finished_at FROM executions
        WHERE group_id = ?`,
      groups,
    ),
    oneEach<Failure>(
      `SELECT status, reason, exit_code FROM executions WHERE group_id = ?
        AND status IN ('failed', 'timed_out', 'lost', 'cancelled')
        ORDER BY finished_at DESC, node_name LIMIT 1`,
      groups,
    ),
  )
  return rows.map((row, index) => {
    const launch = launchOf(row)
    const failure = failures[index] ?? null
    const hasEnded = launch.decision === 'launched' && !launch.open
    return {
      ...launch,
      startedAt: bounds[index]?.started_at ?? null,
      // A launch that an earlier release closed has no end of its own.
      endedAt: launch.closedAt ?? (hasEnded ? (bounds[index]?.finished_at ?? null) : null),
      failure:
        failure === null || launch.status === 'success'
          ? null
          : {status: failure.status, reason: failure.reason, exitCode: failure.exit_code},
    }
  })
}
