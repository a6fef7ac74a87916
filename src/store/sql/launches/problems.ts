/**
 * The facts of problems in a range of time: launches that did not run or ended badly, attempts that were
 * lost, wait or run for long, and the events of the cluster. Each list is a range of an index that has no
 * other rows, and is bounded; a job costs a few look-ups more.
 */
import type {LaunchRecord} from '../../../core/launch-record.ts'
import {FAILED_BEFORE_MS} from '../../../core/problems/ended.ts'
import type {ProblemFacts, SilentChannel} from '../../../core/problems/facts.ts'
import {isInForce} from '../../../core/firing.ts'
import {shownZone} from '../../../core/schedule/instant.ts'
import type {ProblemQuery} from '../../../ports/history-store.ts'
import {clusterEvents} from '../cluster/cluster-events.ts'
import {launchSettings} from '../jobs/firing.ts'
import type {Condition} from '../jobs/name-filter.ts'
import {keysetPage} from '../keyset.ts'
import {
  all,
  each,
  one,
  oneEach,
  type Query,
  together,
  type Transaction,
  yieldToEventLoop,
} from '../query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow, memberOf, type MemberRow} from '../rows.ts'
import {
  allOf,
  condition,
  ENDED_BADLY,
  hasMetadata,
  isOfJobs,
  NOT_RUN,
  ofJobs,
  upTo,
} from './across-jobs.ts'
import {countOpenSpans} from './disabled-spans.ts'
import {definitionsOf, jobRows, keptFrom, laterFacts} from './later-launches.ts'
import {ALWAYS, badEnds, type Range, type Rows, ROWS_MAX, waitingRows} from './problem-attempts.ts'
import {firstRecorded} from './recorded.ts'

/** Jobs whose later launches are looked up, and launches of lost attempts. */
const JOBS_MAX = 5_000
const DISABLED_MAX = 1_000
const EVENTS_MAX = 500
/** Spans after which launches are looked at, and launches after each. */
const SPANS_MAX = 5
const AFTER_SPAN_MAX = 2_000

export function* problemFacts(tx: Transaction, query: ProblemQuery): Query<ProblemFacts> {
  const to = Math.min(query.until ?? tx.now, tx.now)
  const from = 'at' in query.since ? query.since.at : to - query.since.agoMs
  const isNow = to === tx.now
  const range = {from, to: isNow ? ALWAYS : to}
  const around = yield* surroundings(tx, {from, to})
  yield* yieldToEventLoop()
  const notRun = yield* notRunRows(tx, query, range)
  yield* yieldToEventLoop()
  const failed = yield* failedRows(tx, query, range)
  const ends = yield* badEnds(tx, query, range)
  yield* yieldToEventLoop()
  const spans = isNow ? yield* openSpans(tx, query, range) : NONE
  const waiting = isNow ? yield* waitingRows(tx, query) : NO_WAITS
  const late = yield* lateRows(tx, query, around.events)
  yield* yieldToEventLoop()
  const rows = [...spans.rows, ...notRun.rows]
  const jobs = jobRows(rows, failed.rows)
  const later = yield* laterFacts(jobs.slice(0, JOBS_MAX), range.to)
  yield* yieldToEventLoop()
  const lost = [
    ...new Set(ends.rows.filter(({status}) => status === 'lost').map(({group}) => group)),
  ]
  const ofNodes = [...rows, ...waiting.pending].filter(({reason}) => OF_NODES.test(reason))
  const specs = yield* definitionsOf(ofNodes)
  const endsOf = yield* launchEnds(lost.slice(0, JOBS_MAX))
  const parts = [notRun, failed, ends, spans, waiting]
  return {
    ...around,
    from,
    to,
    now: tx.now,
    isPartial:
      parts.some(({isPartial}) => isPartial) || jobs.length > JOBS_MAX || lost.length > JOBS_MAX,
    notRun: rows,
    openSpans: new Set(spans.rows.map(({group}) => group)),
    failed: failed.rows,
    ends: ends.rows,
    endsOf,
    pending: waiting.pending,
    queued: waiting.queued,
    running: waiting.running,
    due: waiting.due,
    late,
    later,
    specs,
    keptFrom: yield* keptFrom(jobs, from, query.keepLaunches),
  }
}

const OF_NODES = /^(no_target|behind|waits_for_node)\b/
const NONE = {rows: [], isPartial: false} as const
const NO_WAITS = {pending: [], queued: [], running: [], due: [], isPartial: false} as const

type Surroundings = Pick<
  ProblemFacts,
  'zone' | 'events' | 'leaseUntil' | 'members' | 'pauses' | 'silentChannels'
>

/** The cluster: its events, its nodes, and what is paused. */
function* surroundings(tx: Transaction, {from, to}: Range): Query<Surroundings> {
  const [settings, events, term, lease, members, channels] = yield* together(
    launchSettings(),
    // The node of an attempt that was lost in the range may have failed just before.
    clusterEvents(tx, {from: from - FAILED_BEFORE_MS, to: to + 1, limit: EVENTS_MAX}),
    one<{id: number; at: number; subject: string; detail: string}>(
      `SELECT id, began_at AS at, subject, detail FROM cluster_events
        WHERE event_kind = 'term_began' AND began_at < ? ORDER BY began_at DESC, id DESC LIMIT 1`,
      [from - FAILED_BEFORE_MS],
    ),
    one<{expires_at: number}>(`SELECT expires_at FROM leader WHERE holder <> ''`),
    all<MemberRow>(
      `SELECT id, name, incarnation, address, port, tags, server, runs, version, slots, status,
        started_at, heartbeat_at, cordoned_at, drain_until FROM members ORDER BY name, id`,
    ),
    all<SilentChannel>(
      `SELECT channel_name AS name, channel_failing_since AS since, last_error_text AS error
        FROM notice_channels WHERE channel_enabled = 1 AND channel_failing_since IS NOT NULL
        ORDER BY channel_name`,
    ),
  )
  const inRange = events.filter((event) => event.kind === 'term_began' || isIn(event, from))
  return {
    zone: shownZone(settings.defaultZone),
    events:
      term === null ? inRange : [...inRange, {...term, kind: 'term_began', until: null} as const],
    leaseUntil: lease?.expires_at ?? null,
    members: members.map(memberOf),
    pauses: settings.pauses.filter((pause) => isInForce(pause, tx.now)),
    silentChannels: to === tx.now ? channels : [],
  }
}

/** A failed node may have been lost with attempts that ended in the range. */
function isIn(
  {kind, at, until}: {readonly kind: string; readonly at: number; readonly until: number | null},
  from: number,
): boolean {
  return kind === 'node_failed' || (until ?? Infinity) >= from || at >= from
}

/** Newest decisions first. The row of an open span of a disabled job has no planned time yet. */
function* notRunRows(
  tx: Transaction,
  query: ProblemQuery,
  {from, to}: Range,
): Query<Rows<LaunchRecord>> {
  const conditions = [
    condition('l.planned_count > 0 AND l.stored_at <= ?', to),
    ...ofJobs(tx, 'l', query),
    ...query.metadata.map((filter) => hasMetadata(filter)),
  ]
  const list = {where: NOT_RUN, key: ['l.decided_at', 'l.group_id'], range: upTo(from)}
  return yield* launchRows(list, conditions)
}

function* failedRows(
  tx: Transaction,
  query: ProblemQuery,
  {from, to}: Range,
): Query<Rows<LaunchRecord>> {
  const conditions = [
    condition('l.closed_at <= ?', to),
    ...ofJobs(tx, 'l', query),
    ...query.metadata.map((filter) => hasMetadata(filter)),
  ]
  const list = {where: ENDED_BADLY, key: ['l.closed_at', 'l.group_id'], range: upTo(from)}
  return yield* launchRows(list, conditions)
}

function* launchRows(
  list: {
    readonly where: string
    readonly key: readonly string[]
    readonly range: ReturnType<typeof upTo>
  },
  conditions: readonly Condition[],
): Query<Rows<LaunchRecord>> {
  const {items, next} = yield* keysetPage<LaunchRow>(
    {
      columns: LAUNCH_COLUMNS,
      from: 'launches l',
      ...list,
      filter: {...allOf(conditions), visitedMax: ROWS_MAX},
      order: 'desc',
    },
    {after: null, limit: ROWS_MAX},
  )
  return {rows: items.map(launchOf), isPartial: next !== null}
}

/** Spans of disabled jobs that have not ended, counted from the begin of the range. */
function* openSpans(
  tx: Transaction,
  query: ProblemQuery,
  {from}: Range,
): Query<Rows<LaunchRecord>> {
  const {where, values} = allOf(isOfJobs(query))
  const jobs = yield* all<{id: number}>(
    `SELECT j.id FROM jobs j WHERE j.disabled = 1 AND j.deleted_at IS NULL AND ${where}
      ORDER BY j.id DESC LIMIT ?`,
    [...values, DISABLED_MAX + 1],
  )
  const found = yield* oneEach<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE job_id = ? AND cause = 'schedule'
      AND planned_count = 0 ORDER BY scheduled_at DESC LIMIT 1`,
    jobs.slice(0, DISABLED_MAX).map(({id}) => [id]),
  )
  const rows = found.flatMap((row) => {
    if (row === null) return []
    const launch = launchOf(row)
    return [{...launch, scheduledAt: Math.max(launch.scheduledAt, from)}]
  })
  const counted = yield* countOpenSpans(tx, rows)
  return {
    rows: counted.filter(({count}) => count > 0),
    isPartial: jobs.length > DISABLED_MAX,
  }
}

const HOLDS_DECISIONS: ReadonlySet<string> = new Set(['no_leader', 'clock_held', 'store_restored'])

/** Launches that were planned in a span without decisions, and decided after it. */
function* lateRows(
  tx: Transaction,
  query: ProblemQuery,
  events: ProblemFacts['events'],
): Query<readonly LaunchRecord[]> {
  const {where, values} = allOf([
    ...ofJobs(tx, 'l', query),
    ...query.metadata.map((filter) => hasMetadata(filter)),
  ])
  const rows = new Map<number, LaunchRow>()
  const over = events.filter(({kind, until}) => HOLDS_DECISIONS.has(kind) && until !== null)
  for (const {at, until} of over.slice(0, SPANS_MAX)) {
    const first = yield* firstRecorded(until!)
    const found = yield* all<LaunchRow>(
      `SELECT ${LAUNCH_COLUMNS} FROM launches l WHERE l.group_id >= ? AND l.group_id < ?
        AND l.cause = 'schedule' AND l.decision = 'launched' AND l.scheduled_at >= ?
        AND l.scheduled_at < ? AND ${where} ORDER BY l.group_id`,
      [first, first + AFTER_SPAN_MAX, at, until, ...values],
    )
    for (const row of found) rows.set(row.group_id, row)
  }
  return [...rows.values()].map(launchOf)
}

function* launchEnds(groups: readonly number[]): Query<ProblemFacts['endsOf']> {
  const rows = yield* each<Pick<LaunchRow, 'group_id' | 'open' | 'launch_status'>>(
    `SELECT group_id, open, launch_status FROM launches WHERE group_id = ?`,
    groups.map((group) => [group]),
  )
  return new Map(
    rows.flat().map((row) => [row.group_id, {open: row.open === 1, status: row.launch_status}]),
  )
}
