/** Rows of launches with what belongs to them: executions, the parent's launch, launches of dependents. */
import {CHILDREN_MAX} from '../../../core/trace.ts'
import type {LaunchView, RelatedLaunch} from '../../../ports/history-store.ts'
import {each, oneEach, type Query, together, type Transaction} from '../query.ts'
import {
  EXECUTION_COLUMNS_BARE,
  executionOf,
  type ExecutionRow,
  launchOf,
  type LaunchRow,
} from '../rows.ts'
import {countOpenSpans} from './disabled-spans.ts'

const RELATED = 'group_id, job_name, decision, launch_status'
type RelatedRow = Pick<LaunchRow, 'group_id' | 'job_name' | 'decision' | 'launch_status'>

/** Views of these rows, with executions without text; one round trip for any number of launches. */
export function* launchViews(tx: Transaction, rows: readonly LaunchRow[]): Query<LaunchView[]> {
  const groups = rows.map((row) => [row.group_id])
  const [executions, parents, children] = yield* together(
    each<ExecutionRow>(
      `SELECT ${EXECUTION_COLUMNS_BARE} FROM executions WHERE group_id = ?
        ORDER BY attempt, node_name`,
      groups,
    ),
    oneEach<RelatedRow>(
      `SELECT ${RELATED} FROM launches WHERE group_id = ?`,
      rows.map((row) => [row.parent_group]),
    ),
    each<RelatedRow>(
      `SELECT ${RELATED} FROM launches WHERE parent_group = ? ORDER BY group_id
        LIMIT ${CHILDREN_MAX}`,
      groups,
    ),
  )
  const launches = yield* countOpenSpans(tx, rows.map(launchOf))
  return launches.map((launch, index) => {
    const parent = parents[index] ?? null
    return {
      ...launch,
      executions: (executions[index] ?? []).map(executionOf),
      parent: parent === null ? null : relatedOf(parent),
      children: (children[index] ?? []).map(relatedOf),
    }
  })
}

function relatedOf(row: RelatedRow): RelatedLaunch {
  return {
    group: row.group_id,
    jobName: row.job_name,
    decision: row.decision,
    status: row.launch_status,
  }
}
