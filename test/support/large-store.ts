/** A SQLite store with a long history, written directly into the file instead of running for days. */
import assert from 'node:assert/strict'
import {openSqliteStore} from '../../src/store/sqlite/store.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {storeFiles} from '../../src/store/sqlite/files.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {systemRandom} from '../../src/platform/random.ts'
import {aSpec} from '../store/exercise-store/scene.ts'

const JOBS = 100
const FIRST_AT = Date.UTC(2026, 0, 1)

/** Columns are named: a later migration adds some. */
const LAUNCH_COLUMNS = `group_id, job_id, job_name, cause, decision, reason, scheduled_at, scheduled_until,
  planned_count, stored_at, decided_at, term, forced, parent_group, open, retries_ended, node_deaths`
const EXECUTION_COLUMNS = `group_id, node_name, attempt, job_id, job_name, node_id, slot, status, revision,
  created_at, not_before, started_at, finished_at, cancel_requested_at, exit_code, reason, output_head,
  output_foot, output_bytes, late_result, claim_token, incarnation`

/** Fills a stopped store in `dataDir` with a hundred jobs and `executions` launches, each with output. */
export async function aLargeStore(
  dataDir: string,
  executions: number,
  outputBytes = 200,
): Promise<void> {
  const opened = await openSqliteStore({dataDir, clock: systemClock(), random: systemRandom()})
  assert(opened.ok, opened.ok ? '' : opened.problem)
  const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
  for (let job = 1; job <= JOBS; job += 1)
    await opened.store.submit({spec: aSpec(`job-${job}`, {schedule: '@yearly'}), ...request})
  await opened.store.close()
  const connection = new Connection(storeFiles(dataDir).database, {readOnly: false})
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${executions})`
  const job = `1 + i % ${JOBS}, 'job-' || (1 + i % ${JOBS})`
  const at = `${FIRST_AT} + i * 1000`
  connection.execute(`BEGIN IMMEDIATE;
    ${numbers} INSERT INTO launches (${LAUNCH_COLUMNS})
      SELECT i, ${job}, 'schedule', 'launched', '', ${at}, ${at}, 1,
        ${at} + 1, ${at} + 1, 1, 0, NULL, 0, 1, 0 FROM n;
    ${numbers} INSERT INTO executions (${EXECUTION_COLUMNS})
      SELECT i, 'node-1', 1, ${job}, 'n1', 0, 'succeeded', 1, ${at}, ${at}, ${at} + 2, ${at} + 900,
        NULL, 0, '', '', '', ${outputBytes}, '', 'token-' || i, 'life-1'
      FROM n;
    ${numbers} INSERT INTO output SELECT i, 'node-1', 1, 0, randomblob(${outputBytes}) FROM n;
    INSERT INTO output_sizes VALUES (${executions * outputBytes});
    UPDATE jobs SET success_count = ${executions / JOBS};
    UPDATE launch_numbers SET last = ${executions};
    COMMIT`)
  connection.close()
}
