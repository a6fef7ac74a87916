/**
 * Problems of the cluster: times without a leader, a held clock, a store that was put back or takes no write,
 * nodes that failed, channels that deliver nothing. Planned times that one of them covers are part of it.
 */
import {type ClusterEvent, STORE_FAILED} from '../cluster-event.ts'
import {
  CLUSTER_ADVICE,
  CLUSTER_HEADLINES,
  dueHeadline,
  MISSED_ADVICE,
  notBack,
  timesOfSpan,
} from '../explain/headlines.ts'
import type {LaunchRecord} from '../launch-record.ts'
import {Draft, draftOf, endedBy, type Folding, type SpanGroup} from './draft.ts'
import type {ProblemFacts} from './facts.ts'

type Code = keyof typeof CLUSTER_HEADLINES

const SPAN_CODES: readonly SpanGroup['code'][] = ['no_leader', 'clock_held', 'store_restored']
/** Servers that restart one after another make one problem. */
const TOGETHER_MS = 600_000
/** A shorter time without a leader delays nothing that anyone would ask about. */
const SPAN_MIN_MS = 1_000
/** Nodes that fail within it of their lease are the leader that ended. */
const LEADER_FAILED_MS = 90_000
/** Notices that a channel has not delivered for this long. */
const SILENT_MIN_MS = 3_600_000

interface Span {
  readonly from: number
  readonly until: number
}

/** A span, and whether it is known that the store was its cause. */
interface CausedSpan extends Span {
  readonly storeFailed: boolean
}

export function spanGroups(facts: ProblemFacts): readonly SpanGroup[] {
  return SPAN_CODES.flatMap((code) => {
    const spans = facts.events
      .filter(({kind}) => kind === code)
      .map(({at, until, detail}) => ({
        from: at,
        until: until ?? Infinity,
        storeFailed: code === 'no_leader' && detail === STORE_FAILED,
      }))
      .toSorted((one, other) => one.from - other.from)
    const isOpen = spans.some(({until}) => until === Infinity)
    // The next leader records the event: until then only the lease says so.
    if (code === 'no_leader' && !isOpen && isWithoutLeader(facts))
      spans.push({from: facts.leaseUntil ?? facts.now, until: Infinity, storeFailed: false})
    const groups: CausedSpan[][] = []
    for (const span of spans) {
      const last = groups.at(-1)?.at(-1)
      const isSame = last?.storeFailed === span.storeFailed
      if (isSame && span.from - last.until < TOGETHER_MS) groups.at(-1)!.push(span)
      else groups.push([span])
    }
    return groups.map((group) => spanGroup(facts, code, group))
  })
}

function isWithoutLeader({leaseUntil, now, to}: ProblemFacts): boolean {
  return to === now && (leaseUntil === null || leaseUntil < now)
}

function spanGroup(
  facts: ProblemFacts,
  code: SpanGroup['code'],
  spans: readonly CausedSpan[],
): SpanGroup {
  const {from, storeFailed} = spans[0]!
  const until = spans.at(-1)!.until
  const end = (span: Span) => Math.min(span.until, facts.to)
  const lengthMs = spans.reduce((sum, span) => sum + Math.max(0, end(span) - span.from), 0)
  const isOver = until <= facts.to
  const missed: LaunchRecord[] = []
  const down: string[] = []
  const identity = {key: `cluster:${code}:${from}`, kind: 'cluster', code} as const
  const draft = new Draft(identity, (whole, folding) => {
    const {seesNodes} = folding.context
    const nodes = code === 'no_leader' && seesNodes ? leadersAround(facts, from, until) : []
    const count = spans.length
    const sentence = CLUSTER_HEADLINES[code]({lengthMs, isOver, count, nodes, storeFailed})
    const late = facts.late.filter((row) => covers({from, until}, row)).length
    const lost = missed.reduce((sum, {count}) => sum + count, 0)
    const due = isOver ? [] : facts.due
    return {
      cause: {
        late,
        missed: lost,
        ...(storeFailed ? {store_failed: true} : {}),
        ...(isOver ? {} : {due: due.length}),
      },
      sentence: [
        sentence,
        ...down.map((node) => notBack(node)),
        ...(late + lost === 0 ? [] : [timesOfSpan(late, lost)]),
        ...(due.length === 0 ? [] : [dueHeadline(new Set(due.map((each) => each.jobName)).size)]),
      ].join(' '),
      advice: whole.isOver
        ? ''
        : isOver
          ? down.length > 0
            ? CLUSTER_ADVICE.node_failed
            : MISSED_ADVICE
          : CLUSTER_ADVICE[code],
    }
  })
  draft.add({count: 0, from, overAt: isOver ? until : null})
  return {code, from, until, lengthMs, draft, missed, down}
}

/** The row was planned in the span, or before, and decided in it or after. */
export function covers({from, until}: Span, row: LaunchRecord): boolean {
  return from <= (row.decidedAt ?? row.storedAt) && until >= row.scheduledAt
}

/** Names of the leader that ended and of the one that took over. */
function leadersAround({events}: ProblemFacts, from: number, until: number): string[] {
  const terms = events.filter(({kind}) => kind === 'term_began')
  const ended = terms.find(({at}) => at <= from)
  const began = terms.find(({at}) => at >= from && at <= until)
  return [ended, began].flatMap((event) => (event === undefined ? [] : [event.subject]))
}

/** Adds planned times that are due and not decided, to the open span if there is one. */
export function dueProblem(folding: Folding): void {
  const {facts, spans} = folding
  const {due} = facts
  if (due.length === 0) return
  const open = spans.find(({until}) => until > facts.to)
  const identity = {key: 'late:undecided', kind: 'late', code: 'undecided'} as const
  const draft =
    open?.draft ??
    draftOf(folding, identity, ({jobs}) => ({
      cause: {},
      sentence: dueHeadline(jobs.length),
      advice: 'If it stays so, look at the leader.',
    }))
  for (const {jobName: job, at} of due)
    draft.add({job, count: 1, from: open === undefined ? at : open.from, overAt: null})
}

export function clusterProblems(folding: Folding): void {
  const {facts, spans, context, drafts} = folding
  for (const {draft, from, until, lengthMs, missed} of spans) {
    const late = facts.late.filter((row) => covers({from, until}, row))
    for (const {jobName: job, group, decidedAt} of late)
      draft.add({job, group, count: 1, from, overAt: decidedAt})
    if (lengthMs >= SPAN_MIN_MS || until > facts.to || missed.length + late.length > 0)
      drafts.set(draft.key, draft)
  }
  if (context.isStoreDown) storeProblem(folding)
  if (context.seesNodes) nodeProblems(folding)
  for (const {name, since, error} of facts.silentChannels) {
    if (facts.now - since < SILENT_MIN_MS) continue
    const telling = tell('notices_failing', [name], {channel: name, error})
    const identity = {key: `cluster:notices_failing:${name}`, kind: 'cluster' as const}
    draftOf(folding, {...identity, code: 'notices_failing'}, telling).add({
      count: 0,
      from: since,
      overAt: null,
    })
  }
}

/** A store that cannot be written has no leader either: both are one problem. */
function storeProblem(folding: Folding): void {
  const {facts, spans, drafts} = folding
  const open = spans.find(({code, until}) => code === 'no_leader' && until > facts.to)
  if (open !== undefined) drafts.delete(open.draft.key)
  const identity = {key: 'cluster:store', kind: 'cluster', code: 'store'} as const
  const draft = draftOf(folding, identity, tell('store', [], {}))
  draft.add({count: 0, from: open?.from ?? facts.now, overAt: null})
  for (const {jobName: job} of facts.due)
    draft.add({job, count: 1, from: draft.since, overAt: null})
}

/** A node that failed; that of the leader belongs to the time without one. */
function nodeProblems(folding: Folding): void {
  const {facts, spans, toldEvents} = folding
  for (const event of facts.events) {
    if (event.kind !== 'node_failed' || toldEvents.has(event.id)) continue
    const span = spans.find((each) => isLeaderOf(facts, each, event))
    const code = 'node_failed'
    const identity = {key: `cluster:${code}:${event.subject}`, kind: 'cluster', code} as const
    const draft =
      span?.draft ?? draftOf(folding, identity, tell(code, [event.subject], {node: event.subject}))
    const backAt = endedBy(facts, event)
    if (backAt === null) span?.down.push(event.subject)
    draft.add({count: 0, from: event.at, overAt: backAt})
  }
}

function isLeaderOf(facts: ProblemFacts, span: SpanGroup, event: ClusterEvent): boolean {
  const [ended] = leadersAround(facts, span.from, span.until)
  const isNear =
    event.at >= span.from - LEADER_FAILED_MS && event.at <= span.until + LEADER_FAILED_MS
  return span.code === 'no_leader' && ended === event.subject && isNear
}

function tell(
  code: Code,
  nodes: readonly string[],
  cause: Readonly<Record<string, string>>,
): Draft['tell'] {
  return ({isOver}) => ({
    cause,
    sentence: CLUSTER_HEADLINES[code]({lengthMs: 0, isOver, count: 1, nodes}),
    advice: isOver ? '' : CLUSTER_ADVICE[code],
  })
}
