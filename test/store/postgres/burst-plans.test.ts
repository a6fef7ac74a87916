/**
 * Query plans in a burst: statistics of the planner are from before it, when the tables were small. A page of
 * due jobs must cost the page, not a sort of all that is due.
 */
import assert from 'node:assert/strict'
import {after, before, test} from 'node:test'
import {systemClock} from '../../../src/platform/clock.ts'
import {postgresDialect, Session} from '../../../src/store/postgres/connection.ts'
import {numbered, setBased} from '../../../src/store/postgres/statements.ts'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {loadDue, NEWER_MISSED, QUEUED} from '../../../src/store/sql/launches/undecided.ts'
import {DEFAULT_LIMITS, type RunAll, type Together} from '../../../src/store/sql/query.ts'
import {withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const JOBS = `INSERT INTO jobs (id, name, displayname, search_text, schedule, parent, ephemeral, retries,
  disabled, revision, next_at, anchor_at, success_count, error_count, status, status_group, created_at,
  updated_at, deleted_why)
  SELECT number, 'job-' || number, '', '', '@every 1s', '', 0, 0, 0, 1, 1000, 0, 0, 0, '', 0, 0, 0, ''
  FROM generate_series(100, 20100) AS number`
/** Each job has one planned time that waits for a node, and one that has launched and waits for a slot. */
const LAUNCHES = ['pending', 'launched'].map(
  (decision, index) => `INSERT INTO launches (group_id, job_id, job_name, cause, scheduled_at,
    scheduled_until, planned_count, decision, reason, forced, node_deaths, retries_ended, open, stored_at)
    SELECT 2 * id + ${index}, id, name, 'schedule', 1000 + ${index}, 1000 + ${index}, 1, '${decision}', '',
      0, 0, 0, ${index}, 1000 FROM jobs WHERE id >= 100`,
)
const EXECUTIONS = `INSERT INTO executions (group_id, node_name, attempt, job_id, job_name, node_id, slot,
  not_before, status, reason, revision, created_at, output_head, output_foot, output_bytes, late_result,
  claim_token, incarnation)
  SELECT group_id, 'node', 1, job_id, job_name, 'node', 0, 1000, 'pending', '', 1, 0, '', '', 0, '', '', ''
  FROM launches
  WHERE decision = 'launched'`
const DEFINITIONS = `INSERT INTO definitions (job_id, definition)
  SELECT id, '{}' FROM jobs WHERE id >= 100`

/** A session on a store with many due jobs, and statistics of the empty store. */
async function inABurst(work: (session: Session) => Promise<void>): Promise<void> {
  await withCluster(postgres, async ({url}) => {
    const parsed = parseAddress(url)
    assert(parsed.ok)
    const {address} = parsed
    const session = await Session.connect(address, address.hosts[0]!, systemClock(), 'test')
    await session.prepare(address.schema, {purpose: 'test', limits: 'short', indexScansOnly: true})
    await session.run('VACUUM ANALYZE')
    for (const table of ['jobs', 'launches', 'executions'])
      await session.run(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`)
    for (const sql of [JOBS, DEFINITIONS, ...LAUNCHES, EXECUTIONS]) await session.run(sql)
    await work(session)
    await session.close()
  })
}

async function planOf(session: Session, sql: string, values: unknown[]): Promise<string> {
  const plan = await session.rows(`EXPLAIN ANALYZE ${sql}`, values as never, null)
  return plan.map((row) => String(row['QUERY PLAN'])).join('\n')
}

test('a page of due jobs is read from an index in its order', async () => {
  await inABurst(async (session) => {
    const tx = {now: 2_000, dialect: postgresDialect, limits: DEFAULT_LIMITS}
    const {value} = loadDue(tx, {limit: 1_000}).next()
    const statements = (value as Together).statements as readonly RunAll[]
    const due = statements.find(({sql}) => sql?.includes('jobs j'))
    const text = await planOf(session, numbered(due!.sql), [...due!.values])
    assert.match(text, /Index Scan using jobs_due on jobs j/)
    assert.doesNotMatch(text, /Sort|Seq Scan|Materialize/)
  })
})

test('what waits of a job is found by the job, not among all that waits', async () => {
  await inABurst(async (session) => {
    const jobs = [100, 101, 102]
    const queued = await planOf(session, setBased(QUEUED, ['text', 'bigint']), [
      jobs.map((id) => `job-${id}`),
      jobs.map(() => 100),
    ])
    assert.match(queued, /executions_pkey/)
    assert.doesNotMatch(queued, /executions_pending|executions_waiting|Seq Scan on executions/)
    const newer = await planOf(session, setBased(NEWER_MISSED, Array(4).fill('bigint')), [
      jobs,
      jobs.map(() => 0),
      jobs.map(() => 2_000),
      jobs.map(() => 100),
    ])
    assert.match(newer, /launches_planned/)
    assert.doesNotMatch(newer, /launches_pending|Seq Scan on launches/)
  })
})
