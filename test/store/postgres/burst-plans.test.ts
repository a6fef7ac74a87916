/**
 * Query plans in a burst: statistics of the planner are from before it, when the tables were small. A page of
 * due jobs must cost the page, not a sort of all that is due.
 */
import assert from 'node:assert/strict'
import {after, before, test} from 'node:test'
import {systemClock} from '../../../src/platform/clock.ts'
import {postgresDialect, Session} from '../../../src/store/postgres/connection.ts'
import {numbered} from '../../../src/store/postgres/statements.ts'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {loadDue} from '../../../src/store/sql/undecided.ts'
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
const DEFINITIONS = `INSERT INTO definitions (job_id, definition)
  SELECT id, '{}' FROM jobs WHERE id >= 100`

test('a page of due jobs is read from an index in its order', async () => {
  await withCluster(postgres, async ({url}) => {
    const parsed = parseAddress(url)
    assert(parsed.ok)
    const {address} = parsed
    const session = await Session.connect(address, address.hosts[0]!, systemClock(), 'test')
    await session.prepare(address.schema, {purpose: 'test', limits: 'short', byKeys: true})
    await session.run('ANALYZE')
    await session.run('ALTER TABLE jobs SET (autovacuum_enabled = off)')
    await session.run(JOBS)
    await session.run(DEFINITIONS)
    const tx = {now: 2_000, dialect: postgresDialect, limits: DEFAULT_LIMITS}
    const {value} = loadDue(tx, {limit: 1_000}).next()
    const [due] = (value as Together).statements as readonly RunAll[]
    const plan = await session.rows(`EXPLAIN ANALYZE ${numbered(due!.sql)}`, due!.values, null)
    const steps = plan.map((row) => String(row['QUERY PLAN']))
    const text = steps.join('\n')
    assert.match(text, /Index Scan using jobs_due on jobs j/)
    assert.doesNotMatch(text, /Sort|Seq Scan|Materialize/)
    await session.close()
  })
})
