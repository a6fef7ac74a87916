/**
 * Query plans of the lists over all jobs: each page reads a range of an index in the order of the list, and
 * nothing is sorted. Millions of rows may be beside it.
 */
import assert from 'node:assert/strict'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import type {ExecutionListQuery, LaunchListQuery} from '../../src/ports/history-store.ts'
import {executionList, launchList} from '../../src/store/sql/launches/across-jobs.ts'
import {problemFacts} from '../../src/store/sql/launches/problems.ts'
import {trace} from '../../src/store/sql/launches/trace.ts'
import {MIGRATIONS} from '../../src/store/sql/migrations.ts'
import {DEFAULT_LIMITS, type Query, type Statement} from '../../src/store/sql/query.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'

const TX = {now: 1, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
const RANGE = {
  names: [{pattern: 'team-*', shown: true}],
  job: 'a*',
  node: 'n',
  since: 3,
  until: 9,
  endedSince: null,
  limit: 9,
} as const
const LAUNCHES: LaunchListQuery = {
  ...RANGE,
  after: null,
  metadata: [{key: 'k', value: 'v'}],
  decision: null,
  reason: 'forbid',
  cause: 'schedule',
  status: null,
}
const EXECUTIONS: ExecutionListQuery = {
  ...RANGE,
  after: null,
  status: 'failed',
  reason: 'x',
  exitCode: 1,
  minDurationMs: 1,
  outputBytes: 0,
}

/** First step of the plan of each statement over a list, of which none sorts. */
function plansOf(query: Query<unknown>, reply: object): string[] {
  const database = new DatabaseSync(':memory:')
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) database.exec(statement)
  const plans: string[] = []
  const answer = (statement: Statement): never => {
    if (statement.kind === 'together') return statement.statements.map(answer) as never
    if (statement.kind !== 'all' && statement.kind !== 'each') return undefined as never
    const values = statement.kind === 'all' ? statement.values : (statement.rows[0] ?? [])
    const steps = database.prepare(`EXPLAIN QUERY PLAN ${statement.sql}`).all(...values)
    const details = steps.map(({detail}) => String(detail))
    for (const step of details) assert.doesNotMatch(step, /^SCAN (launches|executions)/)
    if (isOfList(details[0]!)) {
      plans.push(details[0]!)
      // Attempts of one launch on one node may be sorted.
      for (const step of details) assert.doesNotMatch(step, /ORDER BY$(?<!LAST TERM OF ORDER BY)/)
    }
    return (statement.kind === 'all' ? [reply] : statement.rows.map(() => [])) as never
  }
  for (let next = query.next(); next.done !== true;) next = query.next(answer(next.value))
  database.close()
  return plans
}

/** The statements of a list name their table `l` or `e`. */
function isOfList(step: string): boolean {
  return /^(SEARCH|SCAN) [el] /.test(step)
}

test('each page is a range of the index of its list', () => {
  const launch = {group_id: 5, decided_at: 5, closed_at: 5, least: 5, most: 5}
  const lists: [LaunchListQuery, RegExp][] = [
    [{...LAUNCHES, after: [7]}, /^SEARCH l USING INTEGER PRIMARY KEY \(rowid>\? AND rowid<\?\)$/],
    [
      {...LAUNCHES, decision: 'skipped', after: [7, 7]},
      /^SEARCH l USING (COVERING )?INDEX launches_not_run \(\(?decided_at.*\)$/,
    ],
    [
      {...LAUNCHES, status: 'failed', endedSince: 3, after: [7, 7]},
      /^SEARCH l USING (COVERING )?INDEX launches_ended_badly \(\(?closed_at.*\)$/,
    ],
  ]
  for (const [query, expected] of lists) {
    const plans = plansOf(launchList(TX, query), launch)
    assert.equal(plans.length, 2)
    for (const plan of plans) assert.match(plan, expected)
  }
  const execution = {...launch, finished_at: 5, node_name: 'n', attempt: 1, output_bytes: 0}
  const ran: [ExecutionListQuery, RegExp][] = [
    [{...EXECUTIONS, after: [7, 'n', 1]}, /^SEARCH e USING PRIMARY KEY \(\(?group_id.*\)$/],
    [
      {...EXECUTIONS, endedSince: 3, after: [7, 7, 'n', 1]},
      /^SEARCH e USING (COVERING )?INDEX executions_ended_badly \(\(?finished_at.*\)$/,
    ],
  ]
  for (const [query, expected] of ran) {
    const plans = plansOf(executionList(TX, query), execution)
    assert.equal(plans.length, 2)
    for (const plan of plans) assert.match(plan, expected)
  }
})

test('a chain is read from the index of its root', () => {
  const plans = plansOf(trace(TX, 5, 10), {root: 5, group_id: 5})
  assert.match(plans[0]!, /^SEARCH l USING INTEGER PRIMARY KEY/)
  assert.match(plans[1]!, /^SEARCH l USING INDEX launches_root \(root_group=\?\)$/)
})

test('problems are read from ranges of indexes, and none reads or sorts all rows', () => {
  const {names, job} = RANGE
  const query = {
    names,
    job,
    metadata: LAUNCHES.metadata,
    since: {at: 0},
    until: null,
    firstUntil: null,
  }
  const row = {
    least: 5,
    most: 5,
    tags: '{}',
    began_at: 1,
    event_kind: 'no_leader',
    over_at: 1,
    reason: '',
  }
  const keys = {
    group_id: 5,
    decided_at: 5,
    closed_at: 5,
    finished_at: 5,
    node_name: 'n',
    attempt: 1,
  }
  const plans = plansOf(problemFacts(TX, {...query, keepLaunches: 9}), {...row, ...keys, id: 1})
  const used = plans.map((plan) => /(?:INDEX (\w+)|PRIMARY KEY)/.exec(plan)?.[1] ?? 'key')
  assert.deepEqual(used, [
    'launches_open_spans',
    'launches_pending',
    'executions_pending',
    'executions_running',
    'launches_open_spans',
    'launches_not_run',
    'launches_ended_badly',
    'executions_ended_badly',
    'launches_not_run',
    'launches_ended_badly',
    'executions_ended_badly',
    'key',
  ])
})
