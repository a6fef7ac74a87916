/**
 * The facts of an explanation: all that is stored about a job around one time, from one snapshot. Twelve
 * statements, whatever the number of launches, nodes and changes.
 */
import {isBad} from '../../../core/explain/executions.ts'
import {launchStatus} from '../../../core/finish.ts'
import type {LaunchRecord} from '../../../core/launch-record.ts'
import {decodeOutput} from '../../../wire/output.ts'
import type {
  AuditedChange,
  ClusterSpan,
  ExplainFacts,
  ExplainSubject,
  StoredLaunchFacts,
} from '../../../core/explain/facts.ts'
import {launchNamedIn} from '../../../core/explain/reasons.ts'
import {chooseLaunch, spanOf} from '../../../core/explain/subject.ts'
import type {JobRecord} from '../../../core/job.ts'
import {shownZone} from '../../../core/schedule/instant.ts'
import {zoneOf} from '../../../core/schedule/parse.ts'
import {FIRING_PAUSED} from '../cluster/settings.ts'
import {readOutput} from '../executions/output.ts'
import {launchSettings} from '../jobs/firing.ts'
import {countOpenSpans} from './disabled-spans.ts'
import {all, each, one, type Query, together, type Transaction, type Value} from '../query.ts'
import {
  EXECUTION_COLUMNS_BARE,
  executionOf,
  type ExecutionRow,
  FROM_JOBS,
  JOB_COLUMNS,
  jobOf,
  type JobRow,
  LAUNCH_COLUMNS,
  launchOf,
  type LaunchRow,
  memberOf,
  type MemberRow,
} from '../rows.ts'

/** Launches of one day, and open ones; further ones are not counted. */
const ROWS_MAX = 200
const OPEN_MAX = 20
/** Newest changes of the definition. */
const CHANGES_MAX = 20
/** Newest entries of all kinds, among which are cancels. */
const ENTRIES_MAX = 200
const SPANS_MAX = 20
/** Longer definitions are not compared. */
const REPLACED_LENGTH_MAX = 16 * 1024

interface SubjectRow extends JobRow {
  readonly typical_ms: number | null
  readonly parent_disabled: number | null
  /** `null` = no server leads. */
  readonly lease_until: number | null
  readonly put_back: number
}

type Surroundings = Pick<
  ExplainFacts,
  | 'now'
  | 'job'
  | 'typicalMs'
  | 'isParentDisabled'
  | 'settings'
  | 'isPutBack'
  | 'leaseUntil'
  | 'members'
>

/** The job and the cluster as they are. `null` = no such job. */
function* surroundingsOf(tx: Transaction, name: string): Query<Surroundings | null> {
  const [row, settings, members] = yield* together(
    one<SubjectRow>(
      `SELECT ${JOB_COLUMNS}, j.typical_ms,
        (SELECT p.disabled FROM jobs p
          WHERE p.name = j.parent AND p.deleted_at IS NULL) AS parent_disabled,
        (SELECT expires_at FROM leader WHERE holder <> '') AS lease_until,
        (SELECT count(*) FROM meta WHERE key = '${FIRING_PAUSED}') AS put_back
        ${FROM_JOBS} WHERE j.name = ? AND j.deleted_at IS NULL`,
      [name],
    ),
    launchSettings(),
    all<MemberRow>(
      `SELECT id, name, incarnation, address, port, tags, server, runs, version, slots, status,
        started_at, heartbeat_at, cordoned_at, drain_until FROM members ORDER BY name, id`,
    ),
  )
  if (row === null) return null
  return {
    now: tx.now,
    job: jobOf(row),
    typicalMs: row.typical_ms,
    isParentDisabled: row.parent_disabled === 1,
    settings,
    isPutBack: row.put_back > 0,
    leaseUntil: row.lease_until,
    members: members.map(memberOf),
  }
}

/** `null` = no such job. */
export function* explainFacts(
  tx: Transaction,
  name: string,
  subject: ExplainSubject,
): Query<ExplainFacts | null> {
  const surroundings = yield* surroundingsOf(tx, name)
  if (surroundings === null) return null
  const {job, settings} = surroundings
  const span = spanIn(subject, job, settings.defaultZone)
  const [found, open, changes, spans] = yield* together(
    rowsOf(job, subject, span, tx.now),
    all<LaunchRow>(
      `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE job_name = ? AND open = 1 AND job_id = ?
        ORDER BY group_id LIMIT ${OPEN_MAX}`,
      [name, job.id],
    ),
    changesOf(job),
    spansUntil(subject.kind === 'at' ? span.until : tx.now),
  )
  const counted = yield* countOpenSpans(tx, found.map(launchOf))
  const rows = counted.filter(({scheduledAt, scheduledUntil, count}) => {
    return count === 0 || (scheduledAt < span.until && scheduledUntil >= span.from)
  })
  const chosen = chooseLaunch(rows, subject)
  const {scheduledAt, scheduledUntil} = chosen ?? {
    scheduledAt: span.from,
    scheduledUntil: span.until - 1,
  }
  const about = chosen?.parentGroup ?? launchNamedIn(chosen?.reason ?? '')
  const [around, other] = yield* together(
    neighbours(job.id, scheduledAt, scheduledUntil),
    relatedLaunch(about, chosen?.parentGroup == null ? job.id : null),
  )
  const [related = null] = yield* countOpenSpans(tx, other === null ? [] : [launchOf(other)])
  const openLaunches = open.map(launchOf)
  const beside = yield* countOpenSpans(tx, around.map(launchOf))
  const executions = yield* executionsOf(
    [chosen, related, ...openLaunches].filter((each) => each !== null),
  )
  const complete = (launch: LaunchRecord) => launchFacts(launch, executions.get(launch.group) ?? [])
  const placed = (place: string) => {
    const launch = beside[around.findIndex((each) => each.place === place)]
    return launch === undefined ? null : complete(launch)
  }
  const explained = chosen === null ? null : complete(chosen)
  return {
    ...surroundings,
    rowsTotal: rows.length,
    chosen: explained,
    outputEnd: yield* outputEndOf(explained),
    related: related === null ? null : complete(related),
    before: placed('before'),
    after: placed('after'),
    oldest: placed('oldest'),
    open: openLaunches.map(complete),
    changes,
    spans,
  }
}

const ALL_TIME = {from: Number.MIN_SAFE_INTEGER, until: Number.MAX_SAFE_INTEGER}

/** The time in question. `at` was checked before; a text that is no time has no rows. */
function spanIn(
  subject: ExplainSubject,
  {spec}: JobRecord,
  defaultZone: string,
): {readonly from: number; readonly until: number} {
  if (subject.kind !== 'at') return ALL_TIME
  const zone = spec.timezone === '' ? defaultZone : spec.timezone
  return spanOf(subject.text, shownZone(zoneOf(spec.schedule, zone))) ?? {from: 0, until: 0}
}

/** The row of an open span, whose count is 0, is of each time from its start up to now. */
function* rowsOf(
  {id}: JobRecord,
  subject: ExplainSubject,
  {from, until}: {readonly from: number; readonly until: number},
  now: number,
): Query<LaunchRow[]> {
  const isOne = subject.kind === 'launch'
  const values: Value[] = [id, until, from, ...(isOne ? [subject.group] : [])]
  const openToo = from <= now ? ' OR planned_count = 0' : ''
  return yield* all<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE job_id = ? AND scheduled_at < ?
      AND (scheduled_until >= ?${openToo})${isOne ? ' AND group_id = ?' : ''}
      ORDER BY group_id DESC LIMIT ${subject.kind === 'at' ? ROWS_MAX : 1}`,
    values,
  )
}

/** The launch before, the one after, and the oldest that is kept. A job has few thousand rows. */
function* neighbours(
  jobId: number,
  from: number,
  until: number,
): Query<(LaunchRow & {place: string})[]> {
  const of = (place: string, where: string, order: string) =>
    `SELECT place, ${LAUNCH_COLUMNS} FROM (SELECT '${place}' AS place, ${LAUNCH_COLUMNS} FROM launches
      WHERE job_id = ?${where} ORDER BY ${order} LIMIT 1) AS ${place}_row`
  return yield* all(
    [
      of('before', ' AND scheduled_at < ?', 'scheduled_at DESC, group_id DESC'),
      of('after', ' AND scheduled_at > ?', 'scheduled_at, group_id'),
      of('oldest', '', 'group_id'),
    ].join(' UNION ALL '),
    [jobId, from, jobId, until, jobId],
  )
}

/** `jobId`: it must be of this job; `null` = of any live one. */
function* relatedLaunch(group: number | null, jobId: number | null): Query<LaunchRow | null> {
  if (group === null) return null
  const columns = LAUNCH_COLUMNS.split(',').map((column) => `l.${column.trim()}`)
  return yield* one<LaunchRow>(
    `SELECT ${columns.join(', ')} FROM launches l JOIN jobs j ON j.id = l.job_id
      WHERE l.group_id = ? AND j.deleted_at IS NULL${jobId === null ? '' : ' AND l.job_id = ?'}`,
    jobId === null ? [group] : [group, jobId],
  )
}

function* executionsOf(
  launches: readonly LaunchRecord[],
): Query<ReadonlyMap<number, readonly ExecutionRow[]>> {
  const groups = [...new Set(launches.map(({group}) => group))]
  const found = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS_BARE} FROM executions WHERE group_id = ?
      ORDER BY attempt, node_name`,
    groups.map((group) => [group]),
  )
  return new Map(groups.map((group, index) => [group, found[index] ?? []]))
}

/** Output that is read for its last line. */
const OUTPUT_END_BYTES = 1_024

/** The end of the output of the last attempt that ended badly; `''` = there is none. */
function* outputEndOf(explained: StoredLaunchFacts | null): Query<string> {
  const bad = explained?.executions.findLast(({status}) => isBad(status))
  if (bad === undefined || bad.outputBytes === 0) return ''
  const from = Math.max(0, bad.outputBytes - OUTPUT_END_BYTES)
  return decodeOutput((yield* readOutput(bad, from, OUTPUT_END_BYTES)).bytes)
}

/** A row of an earlier release has no status: it follows from the executions. */
function launchFacts(launch: LaunchRecord, found: readonly ExecutionRow[]): StoredLaunchFacts {
  const executions = found.map(executionOf)
  const ended = launch.open || executions.length === 0 ? null : launchStatus(executions)
  return {launch, executions, status: launch.status ?? ended}
}

/** Newest changes of the definition, its creation, and newest cancels, newest first. */
function* changesOf({id, spec}: JobRecord): Query<AuditedChange[]> {
  const columns = `id, at, actor, address, action, detail,
    CASE WHEN length(replaced) <= ${REPLACED_LENGTH_MAX} THEN replaced END AS replaced`
  const names = 'id, at, actor, address, action, detail, replaced'
  const rows = yield* all<AuditedChange & {id: number}>(
    `SELECT ${names} FROM (SELECT ${columns} FROM audit
        WHERE job_id = ? AND revision_after IS NOT NULL
        ORDER BY revision_after DESC LIMIT ${CHANGES_MAX}) AS newest
      UNION SELECT ${columns} FROM audit WHERE job_id = ? AND revision_after = 1
      UNION SELECT ${names} FROM (SELECT ${columns} FROM audit
        WHERE target = ? AND target_kind = 'job' ORDER BY id DESC LIMIT ${ENTRIES_MAX}) AS entries
        WHERE action = 'execution.cancel'
      ORDER BY id DESC`,
    [id, id, spec.name],
  )
  return rows.map(({id: _id, ...change}) => change)
}

/** Newest spans in which the cluster decided nothing. */
function* spansUntil(until: number): Query<ClusterSpan[]> {
  return yield* all<{kind: string; from: number; until: number | null}>(
    `SELECT event_kind AS kind, began_at AS "from", over_at AS "until" FROM cluster_events
      WHERE began_at < ? AND event_kind IN ('no_leader', 'clock_held')
      ORDER BY began_at DESC, id DESC LIMIT ${SPANS_MAX}`,
    [until],
  )
}
