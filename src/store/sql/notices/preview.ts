/**
 * The last days as facts of a rule: what it would have been about. Successes are read only of jobs that
 * failed or did not run, so a preview costs what went wrong, not what ran.
 */
import type {NoticeFact} from '../../../core/notice-incidents.ts'
import type {NoticeJob, RuleDefinition} from '../../../core/notice-rule.ts'
import type {LaunchDecision, LaunchStatus} from '../../../core/launch-record.ts'
import {reasonCode} from '../../../core/launch-reasons.ts'
import type {NameFilter} from '../../../core/access/authorization.ts'
import type {NoticeHistory, PreviewRequest} from '../../../ports/notice-store.ts'
import {type Condition, isShownName} from '../jobs/name-filter.ts'
import {firstRecorded} from '../launches/recorded.ts'
import {all, each, one, type Query, together, type Transaction, type Value} from '../query.ts'
import {jobOf, type JobRow, SELECT_JOB} from '../rows.ts'

/** Names in a reply. */
const NAMES_MAX = 100
/** Jobs whose launches are read. */
const JOBS_MAX = 200
/** Rows that are searched for them. */
const ROWS_MAX = 20_000
/** Launches of one job. */
const LAUNCHES_MAX = 1_000
/** Facts that are evaluated: the newest. */
const FACTS_MAX = 2_000

interface Launch {
  readonly group_id: number
  readonly decision: LaunchDecision
  readonly reason: string
  readonly decided_at: number | null
  readonly closed_at: number | null
  readonly launch_status: LaunchStatus | null
}

interface Covered {
  readonly id: number
  readonly job: NoticeJob
}

export function* noticeHistory(
  tx: Transaction,
  {rule, names, lastMs}: PreviewRequest,
): Query<NoticeHistory> {
  const since = tx.now - lastMs
  const owned = rule.owner === '' ? null : yield* ownedJobs(rule, names)
  const isCovered = owned === null ? coverage(rule, names) : isOneOf(owned)
  const [counted, named, troubled, first] = yield* together(
    one<{total: number}>(`SELECT count(*) AS total FROM jobs j WHERE ${isCovered.sql}`, [
      ...isCovered.values,
    ]),
    all<{name: string}>(
      `SELECT j.name FROM jobs j WHERE ${isCovered.sql} ORDER BY j.name LIMIT ${NAMES_MAX}`,
      [...isCovered.values],
    ),
    troubledJobs(isCovered, since),
    firstRecorded(since),
  )
  const jobs = troubled.slice(0, JOBS_MAX)
  const [launches, lost] = yield* together(
    each<Launch>(
      `SELECT group_id, decision, reason, decided_at, closed_at, launch_status FROM launches
        WHERE job_id = ? AND group_id >= ? ORDER BY group_id DESC LIMIT ${LAUNCHES_MAX}`,
      jobs.map(({id}) => [id, first]),
    ),
    each<{group_id: number; node_name: string; finished_at: number}>(
      `SELECT group_id, node_name, finished_at FROM executions WHERE job_id = ? AND group_id >= ?
        AND status = 'lost' ORDER BY group_id DESC LIMIT ${LAUNCHES_MAX}`,
      'lost' in rule.when ? jobs.map(({id}) => [id, first]) : [],
    ),
  )
  const facts = jobs
    .flatMap(({job}, index) => [
      ...factsOf(job, launches[index]!),
      ...(lost[index] ?? []).map((row): NoticeFact => {
        const cause = `node ${row.node_name} failed`
        return {...aFact(job, row.group_id, row.finished_at, cause), kind: 'lost'}
      }),
    ])
    .filter(({at}) => at >= since)
    .toSorted((a, b) => a.at - b.at)
  return {
    now: tx.now,
    jobs: named.map(({name}) => name),
    jobsTotal: counted!.total,
    facts: facts.slice(-FACTS_MAX),
    isPartial:
      troubled.length > JOBS_MAX ||
      facts.length > FACTS_MAX ||
      launches.some(({length}) => length === LAUNCHES_MAX),
  }
}

/** Jobs that the rule covers and the caller may read. */
function coverage({jobs, metadata}: RuleDefinition, names: NameFilter): Condition {
  const conditions = [
    {sql: 'j.deleted_at IS NULL', values: []},
    isShownName('j.name', names),
    isShownName('j.name', [{pattern: jobs, shown: true}]),
    ...Object.entries(metadata).map(([key, value]) => ({
      sql: `(SELECT count(*) FROM job_metadata m WHERE m.job_id = j.id AND m.key = ? AND m.value = ?) > 0`,
      values: [key, value],
    })),
  ]
  return {
    sql: conditions.map(({sql}) => sql).join(' AND '),
    values: conditions.flatMap(({values}): readonly Value[] => values),
  }
}

/** The owner is a part of the definition, so the definitions are read. */
function* ownedJobs(rule: RuleDefinition, names: NameFilter): Query<readonly number[]> {
  const {sql, values} = coverage(rule, names)
  const rows = yield* all<JobRow>(`${SELECT_JOB} WHERE ${sql}`, [...values])
  return rows.map(jobOf).flatMap(({id, spec}) => (spec.owner === rule.owner ? [id] : []))
}

/** Numbers are in the statement: they may be more than a statement has parameters. */
function isOneOf(ids: readonly number[]): Condition {
  return {sql: `j.id IN (${ids.length === 0 ? 'NULL' : ids.join(', ')})`, values: []}
}

/** Jobs with a launch that failed or did not run, one more than are read. */
function* troubledJobs({sql, values}: Condition, since: number): Query<readonly Covered[]> {
  const of = (where: string, time: string) =>
    all<{job_id: number}>(
      `SELECT DISTINCT job_id FROM (SELECT l.job_id FROM launches l WHERE ${where}
        AND l.${time} >= ? ORDER BY l.${time} DESC LIMIT ${ROWS_MAX}) AS newest
        WHERE (SELECT count(*) FROM jobs j WHERE j.id = newest.job_id AND ${sql}) > 0
        LIMIT ${JOBS_MAX + 1}`,
      [since, ...values],
    )
  const found = yield* together(
    of(`l.launch_status IN ('failed', 'partially_failed')`, 'closed_at'),
    of(`l.decision IN ('skipped', 'missed')`, 'decided_at'),
  )
  const ids = [...new Set(found.flat().map((row) => row.job_id))]
    .slice(0, JOBS_MAX + 1)
    .toSorted((a, b) => a - b)
  const rows = yield* each<JobRow>(
    `${SELECT_JOB} WHERE j.id = ?`,
    ids.map((id) => [id]),
  )
  return rows.flat().map((row) => ({id: row.id, job: jobOf(row).spec}))
}

function aFact({name, owner, metadata}: NoticeJob, launch: number, at: number, cause: string) {
  return {at, job: {name, owner, metadata}, launch, execution: '', sentence: '', cause}
}

/** `launches`: the newest first. */
function factsOf(job: NoticeJob, launches: readonly Launch[]): NoticeFact[] {
  let streak = 0
  return launches.toReversed().flatMap((row): NoticeFact[] => {
    const {group_id: group, decision, reason, decided_at: decidedAt, closed_at: closedAt} = row
    if (decidedAt === null) return []
    const code = reasonCode(reason) ?? ''
    const decided = aFact(job, group, decidedAt, code)
    if (decision === 'skipped') return [{...decided, kind: 'skipped', code}]
    if (decision === 'missed')
      return code === 'edited' || code === 'disabled' ? [] : [{...decided, kind: 'missed'}]
    const launched = {...decided, cause: '', kind: 'launched'} as const
    const {launch_status: status} = row
    if (closedAt === null || status === null) return [launched]
    if (status === 'success') streak = 0
    else if (status !== 'cancelled') streak += 1
    const ended = {kind: 'ended', status, streak, hasOutput: false} as const
    return [launched, {...aFact(job, group, closedAt, ''), ...ended}]
  })
}
