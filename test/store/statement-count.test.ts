/**
 * Number of steps of a query (statements, or several that are sent together): set-based queries need as many
 * for a thousand rows as for one. On a remote database each is up to a round trip, during which other writes
 * wait for locks or in the same queue.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {JobSpec} from '../../src/core/job.ts'
import type {RequestDecision} from '../../src/core/launch-record.ts'
import {claim} from '../../src/store/sql/executions/claims.ts'
import {explainFacts} from '../../src/store/sql/launches/explain.ts'
import {launches} from '../../src/store/sql/launches/history.ts'
import {applyLaunches, requestRun} from '../../src/store/sql/launches/launches.ts'
import {acquireLease} from '../../src/store/sql/cluster/lease.ts'
import {beat, join} from '../../src/store/sql/cluster/members.ts'
import {MIGRATIONS} from '../../src/store/sql/migrations.ts'
import {DEFAULT_LIMITS, type Query, type Transaction} from '../../src/store/sql/query.ts'
import {restore} from '../../src/store/sql/jobs/restore-jobs.ts'
import {submit} from '../../src/store/sql/jobs/submit.ts'
import {Connection, sqliteDialect} from '../../src/store/sqlite/connection.ts'
import {aSpec, HOUR} from './exercise-store/scene.ts'

function* counting<Result>(query: Query<Result>): Query<number> {
  let count = 0
  for (let next = query.next(); next.done !== true; next = query.next(yield next.value)) count += 1
  return count
}

/** Number of statements of each query, run one after another on a new store. */
function statements(queries: readonly ((tx: Transaction) => Query<unknown>)[]): number[] {
  const connection = new Connection(':memory:', {readOnly: false})
  for (const migration of MIGRATIONS)
    for (const statement of migration.statements(sqliteDialect)) connection.execute(statement)
  const counts = queries.map((query, index) => {
    const tx = {now: (index + 1) * HOUR, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
    return connection.run(counting(query(tx)))
  })
  connection.close()
  return counts
}

const COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

test('a restore of many jobs takes as many statements as a restore of one', () => {
  const restoring = (count: number, over: Partial<JobSpec>) => (tx: Transaction) => {
    const entries = Array.from({length: count}, (_, index) => {
      return {spec: aSpec(`job-${index}`, over), counters: COUNTERS}
    })
    return restore(tx, entries, {disabled: false})
  }
  // The second changes all of them, and each has planned times that it passes over.
  const counted = (count: number) =>
    statements([
      restoring(count, {}),
      restoring(count, {schedule: '@every 1h', metadata: {a: 'b'}}),
    ])
  assert.deepEqual(counted(30), counted(1))
})

test('submits of many jobs take as many statements as a submit of one', () => {
  const submitting = (count: number, over: Partial<JobSpec>) => (tx: Transaction) =>
    submit(
      tx,
      Array.from({length: count}, (_, index) => ({
        spec: aSpec(`job-${index}`, over),
        ifMatch: null,
        createOnly: false,
        runOnCreate: true,
        idempotency: {scope: 's', key: `${over.schedule} ${index}`, fingerprint: 'f'},
      })),
    )
  const counted = (count: number) =>
    statements([
      submitting(count, {}),
      submitting(count, {schedule: '@every 1h', metadata: {a: 'b'}}),
    ])
  assert.deepEqual(counted(30), counted(1))
})

function aMember(id: string) {
  const fixed = {address: '127.0.0.1', port: 8080, tags: {}, server: true, runs: true, version: '1'}
  return {...fixed, id, name: id, incarnation: 'life', slots: 8}
}

test('heartbeats and empty claims of many nodes take as many statements as those of one', () => {
  const counted = (count: number) => {
    const ids = Array.from({length: count}, (_, index) => `n${index}`)
    const joins = ids.map((id) => (tx: Transaction) => join(tx, {member: aMember(id)}, 10_000))
    const life = {incarnation: 'life', status: 'alive', token: 't', room: 8} as const
    const asked = ids.map((nodeId) => ({...life, nodeId}))
    const counts = statements([...joins, (tx) => beat(tx, asked), (tx) => claim(tx, asked)])
    return counts.slice(count)
  }
  assert.deepEqual(counted(30), counted(1))
  assert.deepEqual(counted(1), [1, 2])
})

test('two heartbeats of one node take a statement each, and the last one is stored', () => {
  const life = {nodeId: 'n1', incarnation: 'life'}
  const both = [{...life, status: 'alive'} as const, {...life, status: 'leaving'} as const]
  const joining = (tx: Transaction) => join(tx, {member: aMember('n1')}, 10_000)
  assert.equal(statements([joining, (tx) => beat(tx, both)])[1], 2)
})

/** Stores `count` launches of job `job-0`, each with one execution. */
function* launchOften(tx: Transaction, count: number): Query<void> {
  const lease = yield* acquireLease(tx, {holder: 'h', nodeId: 'n1', ttlMs: 6_000})
  const requests: RequestDecision[] = []
  while (requests.length < count) {
    const accepted = yield* requestRun(tx, {name: 'job-0', forced: true, idempotency: null})
    assert(accepted.kind === 'accepted')
    const targets = [{nodeId: 'n1', nodeName: 'n1'}]
    const {group} = accepted
    requests.push({group, revision: 1, kind: 'launch', targets, forbid: false})
  }
  yield* applyLaunches(tx, {term: lease!.term, dues: [], requests})
}

test('a page of thirty launches takes as many statements as a page of one', () => {
  const counted = (count: number) =>
    statements([
      (tx) => restore(tx, [{spec: aSpec('job-0'), counters: COUNTERS}], {disabled: false}),
      (tx) => launchOften(tx, count),
      (tx) => launches(tx, 'job-0', {start: 0, end: count, decision: null}),
    ])[2]
  assert.equal(counted(30), counted(1))
  assert.equal(counted(30), 3)
})

/** Statements of one query, also those that are sent together. */
function* countingEach(query: Query<unknown>): Query<number> {
  let count = 0
  for (let next = query.next(); next.done !== true; next = query.next(yield next.value))
    count += next.value.kind === 'together' ? next.value.statements.length : 1
  return count
}

test('an explanation takes at most twelve statements, also of a job with many open launches', () => {
  let count = 0
  statements([
    (tx) => restore(tx, [{spec: aSpec('job-0'), counters: COUNTERS}], {disabled: false}),
    (tx) => launchOften(tx, 30),
    function* explained(tx) {
      count = yield* countingEach(explainFacts(tx, 'job-0', {kind: 'now'}))
    },
  ])
  assert.ok(count > 8 && count <= 12, `${count} statements`)
})
