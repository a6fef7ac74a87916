/**
 * Stores of the previous release: its schema with rows in every table, as its servers write them, and a job
 * that such a server enables beside a server of this release. Both engines run the same checks.
 */
import assert from 'node:assert/strict'
import {launchStatus} from '../../src/core/finish.ts'
import {definitionText} from '../../src/core/job-fields.ts'
import {MIGRATIONS, SCHEMA_VERSION} from '../../src/store/sql/migrations.ts'
import type {LaunchListQuery} from '../../src/ports/history-store.ts'
import {ALL_JOBS, anEnd, aRow, aSpec, DAY, MINUTE, type Scene} from './exercise-store/scene.ts'

/** Start of the clock of a scene. */
const NOW = Date.UTC(2026, 0, 15, 12)
const SECOND = 1_000
/** Planned at each full minute. */
const MINUTELY = '0 * * * * *'

/** Schema of the previous release. */
export const PREVIOUS_MIGRATIONS = MIGRATIONS.filter(({version}) => version < 6)

const text = (value: string) => `'${value.replaceAll("'", "''")}'`

function job(
  id: number,
  name: string,
  over: {schedule?: string; parentJob?: string} = {},
  status = '',
): string {
  const spec = aSpec(name, {schedule: MINUTELY, ...over, disabled: name === 'off'})
  const nextAt = spec.disabled || spec.parentJob !== '' ? 'NULL' : NOW + MINUTE
  return `INSERT INTO jobs (id, name, displayname, search_text, schedule, parent, ephemeral, retries,
      disabled, revision, next_at, decided_until, anchor_at, success_count, error_count, last_success,
      last_error, status, status_group, created_at, updated_at, deleted_at, deleted_why, kept_group)
    VALUES (${id}, ${text(name)}, '', ${text(name)}, ${text(spec.schedule)}, ${text(spec.parentJob)}, 0, 0,
      ${spec.disabled ? 1 : 0}, 1, ${nextAt}, ${NOW}, ${NOW - DAY}, 3, 2, ${NOW - MINUTE}, ${NOW - MINUTE},
      ${text(status)}, 0, ${NOW - DAY}, ${NOW - DAY}, NULL, '', NULL);
    INSERT INTO definitions (job_id, definition) VALUES (${id}, ${text(definitionText(spec))});`
}

interface OldLaunch {
  readonly group: number
  readonly job?: readonly [number, string]
  readonly decision?: string
  readonly reason?: string
  readonly open?: number
  readonly parent?: number
  /** Status of the execution on each node. */
  readonly ends?: readonly string[]
}

function launch({
  group,
  job: [jobId, name] = [1, 'etl'],
  decision = 'launched',
  reason = '',
  open = 0,
  parent,
  ends = [],
}: OldLaunch): string {
  const at = NOW - (20 - group) * MINUTE
  const cause = parent === undefined ? 'schedule' : 'parent'
  const until = decision === 'launched' ? at : at + 10 * SECOND
  const executions = ends.map((status, index) => {
    const times = `${at}, ${at}, ${at}, ${status === 'running' ? 'NULL' : at + 30 * SECOND}`
    return `INSERT INTO executions (group_id, node_name, attempt, job_id, job_name, node_id, slot, status,
        revision, created_at, not_before, started_at, finished_at, exit_code, reason, output_head,
        output_foot, output_bytes, late_result, claim_token, incarnation, cancel_requested_at, cancel_reason)
      VALUES (${group}, 'node-${index + 1}', 1, ${jobId}, ${text(name)}, 'n${index + 1}', ${index},
        '${status}', 1, ${times}, ${status === 'failed' ? 3 : 'NULL'}, '', '', '', 0, '', 'old-token',
        'n1-incarnation-1', NULL, NULL);`
  })
  return `INSERT INTO launches (group_id, job_id, job_name, cause, decision, reason, scheduled_at,
      scheduled_until, planned_count, stored_at, decided_at, term, forced, parent_group, open, retries_ended,
      node_deaths)
    VALUES (${group}, ${jobId}, ${text(name)}, '${cause}', '${decision}', ${text(reason)}, ${at}, ${until},
      ${decision === 'launched' ? 1 : 2}, ${at}, ${at}, 1, 0, ${parent ?? 'NULL'}, ${open}, 0, 0);
    ${executions.join('\n')}`
}

/** Statements that insert rows into every table of the previous release, in the dialect of an engine. */
export function previousRows(engine: 'sqlite' | 'postgres'): string[] {
  const done = engine === 'sqlite' ? `X'646f6e65'` : `'\\x646f6e65'::bytea`
  const taken = (sequence: string) =>
    engine === 'sqlite'
      ? `UPDATE ${sequence}_numbers SET last = 20`
      : `SELECT setval('${sequence}_numbers', 20)`
  return [taken('job'), taken('launch'), ...ROWS, output(done)]
}

function output(bytes: string): string {
  return `INSERT INTO output (group_id, node_name, attempt, at_byte, bytes)
    VALUES (1, 'node-1', 1, 0, ${bytes})`
}

const ROWS = [
  job(1, 'etl', {}, 'partially_failed'),
  job(2, 'load', {schedule: '', parentJob: 'etl'}, 'success'),
  job(3, 'off'),
  launch({group: 1, ends: ['succeeded']}),
  launch({group: 2, job: [2, 'load'], parent: 1, ends: ['succeeded']}),
  launch({group: 3, ends: ['failed']}),
  launch({group: 4, ends: ['succeeded', 'failed']}),
  launch({group: 5, ends: ['cancelled']}),
  launch({group: 6, decision: 'skipped', reason: 'forbid: launch 5 is still open'}),
  launch({group: 7, open: 1, ends: ['running']}),
  `INSERT INTO job_metadata (job_id, key, value) VALUES (1, 'team', 'data')`,
  `UPDATE executions SET output_bytes = 4 WHERE group_id = 1`,
  `INSERT INTO output_sizes (bytes) VALUES (4)`,
  `INSERT INTO node_claims (node_id, token) VALUES ('n9', 'old-token')`,
  `INSERT INTO members (id, name, incarnation, address, port, tags, server, runs, version, slots, status,
      started_at, heartbeat_at, cordoned_at, drain_until)
    VALUES ('n9', 'node-9', 'n9-incarnation-1', '', 0, '{}', 0, 1, '0.2.0', 8, 'left', ${NOW}, ${NOW},
      NULL, NULL)`,
  `INSERT INTO statistics (day, success_count, failed_count) VALUES (${NOW - (NOW % DAY)}, 3, 2)`,
  `INSERT INTO policies (name, rules) VALUES ('readers', '{"/v1/jobs/*": ["read"]}')`,
  `INSERT INTO idempotency (scope, key, fingerprint, answer, created_at)
    VALUES ('jobs', 'k', 'f', '{}', ${NOW})`,
  `INSERT INTO tokens (accessor, digest, name, kind, policies, created_at)
    VALUES ('t1', 'd1', 'alice', 'client', '["readers"]', ${NOW - DAY})`,
  `INSERT INTO audit (at, actor, accessor, token_kind, address, action, result, target_kind, target, detail,
      job_id, revision_before, revision_after)
    VALUES (${NOW - DAY}, 'alice', 't1', 'client', '', 'job.create', 'done', 'job', 'etl', '', 1, 0, 1)`,
  `INSERT INTO secrets (name, ciphertext, set_at, set_by) VALUES ('key', 'sealed', ${NOW}, 'alice')`,
  `INSERT INTO firing_pauses (jobs_glob, pause_reason, paused_at, paused_by, paused_until, ended_at)
    VALUES ('none-*', 'storage', ${NOW}, 'alice', NULL, NULL)`,
]

const EVERY_LAUNCH: LaunchListQuery = {
  names: null,
  job: null,
  node: null,
  since: null,
  until: null,
  endedSince: null,
  metadata: [],
  decision: null,
  reason: null,
  cause: null,
  status: null,
  after: null,
  limit: 100,
}

/** Status in lists of all jobs, and in the history of the job, where it may follow from the executions. */
async function statuses(scene: Scene, query: Partial<LaunchListQuery> = {}) {
  const page = await scene.store.launchList({...EVERY_LAUNCH, ...query})
  return page.items
    .map(({group, status, closedAt, rootGroup, executions}) => {
      const follows = executions.length === 0 ? null : launchStatus(executions)
      return [group, status, closedAt, rootGroup, follows]
    })
    .toReversed()
}

/** A server of this release has opened a store with the rows of the previous one. */
export async function readsPreviousRows(scene: Scene): Promise<void> {
  const {store} = scene
  assert.equal((await store.info()).schemaVersion, SCHEMA_VERSION)
  // New columns are null. The history of a job and explanations compute the status of an old launch.
  assert.deepEqual(await statuses(scene), [
    [1, null, null, null, 'success'],
    [2, null, null, null, 'success'],
    [3, null, null, null, 'failed'],
    [4, null, null, null, 'partially_failed'],
    // The previous release has no status of its own for cancelled launches.
    [5, null, null, null, 'failed'],
    [6, null, null, null, null],
    [7, null, null, null, null],
  ])
  const explained = await store.explainFacts('etl', {kind: 'launch', group: 4})
  assert.equal(explained?.chosen?.status, 'partially_failed')
  // The index of what did not run has old rows; that of bad ends has launches that end from now on.
  assert.deepEqual((await statuses(scene, {decision: 'skipped'})).flat(), [
    6,
    null,
    null,
    null,
    null,
  ])
  assert.deepEqual(await statuses(scene, {status: 'failed', endedSince: 0}), [])
  const badly = {...EVERY_LAUNCH, exitCode: null, minDurationMs: null, outputBytes: 0} as const
  const executions = await store.executionList({...badly, status: 'failed', endedSince: 0})
  assert.deepEqual(
    executions.items.map(({group}) => group),
    [4, 3],
  )
  // An old child has its parent, and is no part of the trace: its root is not stored.
  assert.equal((await store.launchOfAny(2, null))?.parent?.group, 1)
  assert.deepEqual(
    (await store.trace(1, 10)).map(({group, endedAt}) => [group, endedAt]),
    [[1, NOW - 19 * MINUTE + 30 * SECOND]],
  )
  await keepsOtherRows(scene)

  // Executions that run during the upgrade end like all others.
  const {executions: running} = (await scene.launches('etl'))[0]!
  const [end] = await store.finish([
    anEnd(
      {
        execution: running[0]!,
        token: 'old-token',
        spec: aSpec('etl'),
        cause: 'schedule',
        scheduledAt: 0,
      },
      'failed',
    ),
  ])
  assert.equal(end?.kind, 'finished')
  assert.deepEqual((await statuses(scene)).at(-2), [7, 'failed', scene.now, null, 'failed'])
  assert.deepEqual((await scene.job('etl')).counters.errorCount, 3)
  const skipped = (await scene.launches('load'))[0]!
  assert.deepEqual(
    [skipped.reason, skipped.rootGroup],
    ['parent_failed: launch 7 of etl ended failed', 7],
  )
  // A job that was disabled before has no row that says so: it begins with the next disabling.
  scene.advance(10 * MINUTE)
  assert.deepEqual(await scene.launches('off'), [])
  await store.toggle('off')
  assert.deepEqual(await scene.launches('off'), [])
  await store.toggle('off')
  scene.advance(2 * MINUTE)
  assert.equal((await scene.launches('off'))[0]?.count, 2)
}

/** Rows of the other tables are as they were. */
async function keepsOtherRows({store}: Scene): Promise<void> {
  const jobs = await store.jobs({...ALL_JOBS, metadata: [{key: 'team', value: 'data'}]})
  assert.deepEqual(
    jobs.rows.map(({spec, counters, status}) => [spec.name, counters.successCount, status]),
    [['etl', 3, 'partially_failed']],
  )
  const key = {group: 1, node: 'node-1', attempt: 1}
  const output = await store.outputSince('etl', key, 0, 100)
  assert.equal(Buffer.from(output!.bytes).toString(), 'done')
  assert.deepEqual((await store.statistics(1))[0]?.failedCount, 2)
  assert.deepEqual(
    (await store.firingPauses()).map(({jobs: glob}) => glob),
    ['none-*'],
  )
  assert.deepEqual(
    (await store.policies()).map(({name}) => name),
    ['readers'],
  )
  assert.deepEqual(
    (await store.tokens()).map(({name}) => name),
    ['alice'],
  )
  assert.deepEqual(
    (await store.secrets()).map(({name}) => name),
    ['key'],
  )
  assert.deepEqual(
    (await store.members()).map(({name, version}) => [name, version]),
    [
      ['node-1', '1'],
      ['node-9', '0.2.0'],
    ],
  )
}

/** Enables the job as a server of the previous release does, which does not know the row of a span. */
function enabling(name: string, now: number): string[] {
  return [
    `UPDATE definitions SET definition = replace(definition, '"disabled":true', '"disabled":false')
      WHERE job_id = (SELECT id FROM jobs WHERE name = '${name}')`,
    `UPDATE jobs SET disabled = 0, revision = revision + 1, updated_at = ${now},
      next_at = ${now - (now % MINUTE) + MINUTE} WHERE name = '${name}'`,
  ]
}

/** `execute` runs a statement as another server. */
export async function closesLeftSpans(
  scene: Scene,
  execute: (sql: string) => unknown,
): Promise<void> {
  const disabled = async (name: string) =>
    (await scene.launches(name))
      .filter(({reason}) => reason.startsWith('disabled: '))
      .map(({count, scheduledAt, scheduledUntil}) => [count, scheduledAt, scheduledUntil])
  const begun = scene.now
  for (const name of ['a', 'b', 'c', 'd'])
    await scene.submit(name, {schedule: MINUTELY, disabled: true})
  scene.advance(2 * MINUTE + 30 * SECOND)
  for (const name of ['a', 'b', 'c'])
    for (const sql of enabling(name, scene.now)) await execute(sql)
  const enabledAt = scene.now
  const left = [[2, begun + MINUTE, begun + 2 * MINUTE]]
  // Reads count up to the enabling, and up to the first row after it if the job was changed later.
  scene.advance(3 * MINUTE)
  assert.deepEqual(await disabled('a'), left)
  const job = await scene.job('a')
  assert.deepEqual([job.spec.disabled, job.updatedAt], [false, enabledAt])
  await scene.decide(job, [aRow(begun + 3 * MINUTE, 'skipped')], scene.now + MINUTE)
  await scene.submit('a', {schedule: MINUTELY, owner: 'ops'})
  assert.deepEqual(await disabled('a'), left)
  const facts = await scene.store.explainFacts('a', {kind: 'at', text: '2026-01-15T12:02'})
  assert.equal(facts?.chosen?.launch.count, 2)

  // Disabled again: the old span ends, and a new one begins.
  await scene.store.toggle('b')
  scene.advance(2 * MINUTE)
  const again = begun + 6 * MINUTE
  assert.deepEqual(await disabled('b'), [[2, again, again + MINUTE], ...left])

  // Retention stores the end of the spans of enabled jobs; from then on they are rows like others.
  const keep = {keepLaunches: 100, keepExecutions: 100, keepMs: DAY, keepOutputBytes: 1e9}
  const round = {after: 0, jobLimit: 100, rowLimit: 100, round: 'all'} as const
  const prune = (keepUnlaunched: number) =>
    scene.store.prune({term: scene.term, ...keep, ...round, keepUnlaunched})
  assert.equal((await prune(100)).rowsDeleted, 0)
  const row0 = async (name: string) =>
    (await scene.store.launches(name, {start: 0, end: null, decision: 'skipped'}))!.rows.at(-1)!
  assert.deepEqual([(await row0('c')).decidedAt, (await row0('c')).count], [enabledAt, 2])
  await prune(0)
  for (const name of ['a', 'b', 'c', 'd'])
    assert.deepEqual(
      (await disabled(name)).length,
      name === 'b' || name === 'd' ? 1 : 0,
      `only spans that last are kept: ${name}`,
    )
}
