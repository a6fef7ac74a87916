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
  type Query,
  together,
  type Transaction,
  type Values,
  yieldToEventLoop,
} from '../query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow, memberOf, type MemberRow} from '../rows.ts'
import {allOf, condition, ENDED_BADLY, hasMetadata, NOT_RUN, ofJobs, upTo} from './across-jobs.ts'
import {type HiddenJobs, hiddenJobs, isVisible, visibleRows} from './hidden-jobs.ts'
import {DEFINITIONS_MAX, definitionsOf, jobRows, keptFrom, laterFacts} from './later-launches.ts'
import {openSpans} from './open-spans.ts'
import {
  ALWAYS,
  badEnds,
  type Range,
  type Rows,
  ROWS_MAX,
  VISITED_MAX,
  waitingRows,
} from './problem-attempts.ts'
import {firstRecorded} from './recorded.ts'

const EVENTS_MAX = 500
/** Spans after which launches are looked at, and launches after each. */
const SPANS_MAX = 5
const AFTER_SPAN_MAX = 2_000

export function* problemFacts(tx: Transaction, query: ProblemQuery): Query<ProblemFacts> {
  const isNow = query.until === null || query.until >= tx.now
  const to = Math.min(query.firstUntil ?? tx.now, query.until ?? tx.now, tx.now)
  const from = 'at' in query.since ? query.since.at : to - query.since.agoMs
  const range = {from, to: to === tx.now ? ALWAYS : to}
  // Three steps of one round trip or a few: a request must stay under 100 ms with a distant database too.
  const [around, hidden, spans, waiting] = yield* together(
    surroundings(tx, {from, to}),
    hiddenJobs(tx),
    openSpans(tx, query, from, isNow),
    waitingRows(tx, query, isNow),
  )
  yield* yieldToEventLoop()
  const [notRun, failed, ends, late] = yield* together(
    notRunRows(tx, query, range, hidden),
    failedRows(tx, query, range, hidden),
    badEnds(tx, query, range, hidden),
    lateRows(tx, query, around.events),
  )
  yield* yieldToEventLoop()
  const rows = [...spans.rows, ...notRun.rows]
  const jobs = jobRows(rows, failed.rows)
  const lost = [
    ...new Set(ends.rows.filter(({status}) => status === 'lost').map(({group}) => group)),
  ]
  const ofNodes = [...rows, ...waiting.pending].filter(({reason}) => OF_NODES.test(reason))
  const [later, specs, endsOf, kept] = yield* together(
    laterFacts(jobs, range.to),
    definitionsOf(ofNodes),
    launchEnds(lost),
    keptFrom(jobs, from, query.keepLaunches),
  )
  const parts = [notRun, failed, ends, spans, waiting]
  return {
    ...around,
    from,
    to,
    now: tx.now,
    isPartial:
      parts.some(({isPartial}) => isPartial) ||
      new Set(ofNodes.map(({jobId}) => jobId)).size > DEFINITIONS_MAX,
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
    keptFrom: kept,
  }
}

const OF_NODES = /^(no_target|behind|waits_for_node)\b/

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
  hidden: HiddenJobs,
): Query<Rows<LaunchRecord>> {
  const conditions = [
    condition('l.planned_count > 0 AND l.stored_at <= ?', to),
    ...visibleRows(tx, 'l', query, hidden),
    ...query.metadata.map((filter) => hasMetadata(filter)),
  ]
  const list = {where: NOT_RUN, key: ['l.decided_at', 'l.group_id'], range: upTo(from)}
  return yield* launchRows(list, conditions, hidden)
}

function* failedRows(
  tx: Transaction,
  query: ProblemQuery,
  {from, to}: Range,
  hidden: HiddenJobs,
): Query<Rows<LaunchRecord>> {
  const conditions = [
    condition('l.closed_at <= ?', to),
    ...visibleRows(tx, 'l', query, hidden),
    ...query.metadata.map((filter) => hasMetadata(filter)),
  ]
  const list = {where: ENDED_BADLY, key: ['l.closed_at', 'l.group_id'], range: upTo(from)}
  return yield* launchRows(list, conditions, hidden)
}

function* launchRows(
  list: {
    readonly where: string
    readonly key: readonly string[]
    readonly range: ReturnType<typeof upTo>
  },
  conditions: readonly Condition[],
  hidden: HiddenJobs,
): Query<Rows<LaunchRecord>> {
  const {items, next} = yield* keysetPage<LaunchRow>(
    {
      columns: LAUNCH_COLUMNS,
      from: 'launches l',
      ...list,
      filter: {...allOf(conditions), visitedMax: VISITED_MAX},
      order: 'desc',
    },
    {after: null, limit: ROWS_MAX},
  )
  return {
    rows: items.map(launchOf).filter((row) => isVisible(hidden, row)),
    isPartial: next !== null,
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
  const over = events.filter(({kind, until}) => HOLDS_DECISIONS.has(kind) && until !== null)
  const found = yield* together(
    ...over.slice(0, SPANS_MAX).map(({at, until}) => rowsAfter({at, until: until!}, where, values)),
  )
  const rows = new Map(found.flat().map((row) => [row.group_id, row]))
  return [...rows.values()].map(launchOf)
}

function* rowsAfter(
  {at, until}: {readonly at: number; readonly until: number},
  where: string,
  values: Values,
): Query<LaunchRow[]> {
  const first = yield* firstRecorded(until)
  return yield* all<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches l WHERE l.group_id >= ? AND l.group_id < ?
      AND l.cause = 'schedule' AND l.decision = 'launched' AND l.scheduled_at >= ?
      AND l.scheduled_at < ? AND ${where} ORDER BY l.group_id`,
    [first, first + AFTER_SPAN_MAX, at, until, ...values],
  )
}

function* launchEnds(groups: readonly number[]): Query<ProblemFacts['endsOf']> {
  const rows = yield* each<Pick<LaunchRow, 'group_id' | 'open' | 'launch_status' | 'closed_at'>>(
    `SELECT group_id, open, launch_status, closed_at FROM launches WHERE group_id = ?`,
    groups.map((group) => [group]),
  )
  return new Map(
    rows.flat().map(({group_id: group, open, launch_status: status, closed_at: closedAt}) => {
      return [group, {open: open === 1, status, closedAt}]
    }),
  )
}
