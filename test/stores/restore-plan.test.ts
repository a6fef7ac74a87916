/**
 * A restore holds what it changes until its commit, so it takes as many statements for a thousand jobs as
 * for one: on a database that is far away each of them is a round trip.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {JobSpec} from '../../src/core/job.ts'
import type {Step} from '../../src/stores/sql/command.ts'
import {MIGRATIONS} from '../../src/stores/sql/migrations.ts'
import {restore} from '../../src/stores/sql/steps-restore.ts'
import {DEFAULT_LIMITS} from '../../src/stores/sql/transaction.ts'
import {Connection} from '../../src/stores/sqlite/connection.ts'
import {sqliteDialect} from '../../src/stores/sqlite/dialect.ts'
import {aSpec, HOUR} from './exercise-store/scene.ts'

const COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

function* counting<Result>(step: Step<Result>): Step<{readonly commands: number}> {
  let commands = 0
  for (let next = step.next(); next.done !== true; next = step.next(yield next.value)) commands += 1
  return {commands}
}

/** Statements it takes to restore that many jobs, once as new ones and once with all of them changed. */
function statements(count: number): number[] {
  const connection = new Connection(':memory:', {readOnly: false})
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) connection.execute(statement)
  const at = (now: number, over: Partial<JobSpec>) => {
    const entries = Array.from({length: count}, (_, index) => {
      return {spec: aSpec(`job-${index}`, over), counters: COUNTERS}
    })
    const tx = {now, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
    return connection.run(counting(restore(tx, entries, {disabled: false}))).commands
  }
  // The second is late, so that each job has planned times to be passed over.
  const taken = [at(HOUR, {}), at(3 * HOUR, {schedule: '@every 1h', metadata: {of: 'b'}})]
  connection.database.close()
  return taken
}

test('a restore of many jobs takes as many statements as one of a single job', () => {
  assert.deepEqual(statements(30), statements(1))
})
