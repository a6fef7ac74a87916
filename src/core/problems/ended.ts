/** Attempts and launches that ended badly, run for long or wait: by chain, job, node and outage. */
import {endAdvice, isBad} from '../explain/executions.ts'
import {
  failureCause,
  failureHeadline,
  longHeadline,
  lostHeadline,
  notBack,
  slotHeadline,
  startedLateHeadline,
} from '../explain/headlines.ts'
import type {LaunchRecord} from '../launch-record.ts'
import {type Draft, draftOf, endedBy, type Folding} from './draft.ts'
import type {AttemptFacts, Problem, ProblemFacts} from './facts.ts'

/** Nodes that are lost within it went down together. */
const OUTAGE_MS = 90_000
/** A node is found to have failed this much after its last heartbeat, at most. */
export const FAILED_BEFORE_MS = 600_000
/** A shorter delay is no problem. */
export const LATE_MIN_MS = 60_000
const WAITING_MIN_MS = 600_000
/** An attempt runs for long beyond both. */
export const LONG_MIN_MS = 600_000
const LONG_TIMES = 3

/** Attempts lost with one node, or in one outage. */
interface Loss {
  readonly draft: Draft
  readonly nodes: Set<string>
  attempts: number
  readonly jobs: Set<string>
  readonly launches: Map<number, 'succeeded' | 'failed' | 'open'>
  first: number
  last: number
  /** Nodes that are not back. */
  readonly down: string[]
}

/** Adds a problem for each outage of nodes, with the event of the node. */
export function lostProblems(folding: Folding): void {
  const {facts, context} = folding
  const losses: Loss[] = []
  const newest = new Map<string, Loss>()
  const lost = facts.ends.filter(({status}) => status === 'lost')
  for (const attempt of lost.toSorted((a, b) => endOf(a) - endOf(b))) {
    const isOutage = attempt.reason === 'node_outage'
    const known = newest.get(isOutage ? '' : attempt.node)
    const loss =
      known !== undefined && endOf(attempt) - known.last <= OUTAGE_MS
        ? known
        : startLoss(folding, attempt, isOutage)
    if (loss !== known) {
      newest.set(isOutage ? '' : attempt.node, loss)
      losses.push(loss)
    }
    addLost(folding, loss, attempt)
  }
  if (!context.seesNodes) return
  for (const event of facts.events) {
    if (event.kind !== 'node_failed') continue
    const loss = losses.find(
      ({nodes, first, last}) =>
        nodes.has(event.subject) &&
        event.at >= first - FAILED_BEFORE_MS &&
        event.at <= last + OUTAGE_MS,
    )
    if (loss === undefined) continue
    folding.toldEvents.add(event.id)
    const backAt = endedBy(facts, event)
    if (backAt === null) loss.down.push(event.subject)
    loss.draft.add({count: 0, from: event.at, overAt: backAt})
  }
}

function startLoss(folding: Folding, attempt: AttemptFacts, isOutage: boolean): Loss {
  const key = `lost:${isOutage ? 'outage' : attempt.node}:${attempt.group}-${attempt.attempt}`
  const {reason} = attempt
  const nodes = new Set<string>()
  const jobs = new Set<string>()
  const launches: Loss['launches'] = new Map()
  const draft = draftOf(folding, {key, kind: 'lost', code: reason || 'lost'}, ({isOver}) => {
    const count = (end: string) => [...launches.values()].filter((each) => each === end).length
    const [succeeded, failed, open] = [count('succeeded'), count('failed'), count('open')]
    const names = [...nodes].toSorted()
    const counts = {attempts: loss.attempts, jobs: jobs.size, succeeded, failed, open}
    return {
      cause: {nodes: names, executions: loss.attempts, succeeded, failed, open},
      sentence: [
        lostHeadline({nodes: names, reason, ...counts}),
        ...loss.down.map((node) => notBack(node)),
      ].join(' '),
      advice: isOver ? '' : endAdvice({status: 'lost', reason}),
    }
  })
  const at = endOf(attempt)
  const loss: Loss = {
    draft,
    nodes,
    attempts: 0,
    jobs,
    launches,
    first: at,
    last: at,
    down: [],
  }
  return loss
}

function addLost({facts, byGroup}: Folding, loss: Loss, attempt: AttemptFacts): void {
  const {group, node, jobName} = attempt
  const launch = facts.endsOf.get(group)
  // A later page tells what the first one told: it is about the same time.
  const isOpen = launch !== undefined && (launch.open || (launch.closedAt ?? 0) > facts.to)
  const end =
    launch === undefined || (!isOpen && launch.status === 'cancelled')
      ? null
      : isOpen
        ? 'open'
        : launch.status === 'success'
          ? 'succeeded'
          : 'failed'
  loss.attempts += 1
  loss.last = endOf(attempt)
  loss.nodes.add(node)
  loss.jobs.add(jobName)
  if (end !== null) loss.launches.set(group, end)
  byGroup.set(group, loss.draft)
  loss.draft.add({
    job: jobName,
    group,
    count: loss.draft.has(group) ? 0 : 1,
    from: endOf(attempt),
    overAt: end === 'open' ? null : endOf(attempt),
  })
}

/** Adds launches that ended badly: a chain is one problem, and so are chains that fail in the same way. */
export function failedRows(folding: Folding): void {
  const {facts, byGroup} = folding
  const ends = lastBadEnds(facts)
  const lost = new Set(byGroup.keys())
  const traces = new Map<number, LaunchRecord[]>()
  for (const row of facts.failed) {
    const bad = ends.get(row.group)
    if (bad?.status === 'lost' && lost.has(row.group)) {
      byGroup.get(row.group)!.add({...failure(row), count: 0, overAt: succeededLater(facts, row)})
      continue
    }
    const trace = row.rootGroup ?? row.group
    const known = traces.get(trace)
    if (known === undefined) traces.set(trace, [row])
    else known.push(row)
  }
  for (const rows of traces.values()) {
    const chain = rows.toSorted((one, other) => one.group - other.group)
    const first = chain[0]!
    const ways = chain.map((row) => `${row.jobId} ${wayOf(ends.get(row.group))}`)
    const bad = ends.get(first.group) ?? null
    const key = `failed:${[...new Set(ways)].toSorted().join(' ')}`
    const code = bad === null ? first.status! : bad.reason || bad.status
    const others = [...new Set(chain.slice(1).map(({jobName}) => jobName))]
    const draft = draftOf(folding, {key, kind: 'failed', code}, ({isOver}) => {
      const more = others.map((job) => ` ${job} failed as well.`).join('')
      return {
        cause: {
          job: first.jobName,
          launch: first.group,
          exit_code: bad?.exitCode ?? null,
          reason: bad === null ? '' : failureCause(bad),
        },
        sentence: `${failureHeadline(first.jobName, first.status!, bad)}${more}`,
        advice: isOver ? '' : endAdvice(bad ?? {status: 'failed', reason: ''}),
        output: bad === null ? null : outputOf(bad),
      }
    })
    for (const row of chain) {
      byGroup.set(row.group, draft)
      draft.add({...failure(row), count: 1, overAt: succeededLater(facts, row)})
    }
  }
}

function failure({jobName: job, group, closedAt, scheduledAt}: LaunchRecord) {
  return {job, group, from: closedAt ?? scheduledAt}
}

function wayOf(bad: AttemptFacts | undefined): string {
  return bad === undefined ? '' : `${bad.status} ${bad.reason} ${bad.exitCode}`
}

/** The last bad end of each launch. */
function lastBadEnds({ends}: ProblemFacts): ReadonlyMap<number, AttemptFacts> {
  const last = new Map<number, AttemptFacts>()
  for (const end of ends) {
    const known = last.get(end.group)
    if (isBad(end.status) && (known === undefined || endOf(known) < endOf(end)))
      last.set(end.group, end)
  }
  return last
}

function outputOf({group, node, attempt, jobName}: AttemptFacts): NonNullable<Problem['output']> {
  return {group, node, attempt, jobName}
}

/** When a later launch of the job ended `success`; `null` = none did. */
function succeededLater({later}: ProblemFacts, {jobId, group}: LaunchRecord): number | null {
  const success = later.get(jobId)?.success ?? null
  return success !== null && success.group > group ? success.at : null
}

function endOf({finishedAt, notBefore}: AttemptFacts): number {
  return finishedAt ?? notBefore
}

/** Adds attempts that wait for a slot, run for long, or started late. */
export function attemptProblems(folding: Folding): void {
  const {facts, spans} = folding
  for (const attempt of facts.queued) {
    const {node, group, jobName: job, notBefore} = attempt
    const kind = facts.to - notBefore >= WAITING_MIN_MS ? 'waiting' : 'late'
    const identity = {key: `${kind}:waits_for_slot:${node}`, kind, code: 'waits_for_slot'} as const
    draftOf(folding, identity, ({plannedTimes}) => ({
      cause: {node},
      sentence: slotHeadline(node, plannedTimes),
      advice: 'Look at what runs there. More slots start more at once.',
    })).add({job, group, count: 1, from: notBefore, overAt: null})
  }
  for (const attempt of facts.running) {
    const {node, group, jobName: job, startedAt, scheduledAt, typicalMs} = attempt
    if (startedAt === null) continue
    const runsMs = facts.to - startedAt
    if (typicalMs !== null && runsMs >= LONG_MIN_MS && runsMs > LONG_TIMES * typicalMs) {
      const identity = {key: `long:${attempt.jobId}`, kind: 'long', code: 'long'} as const
      draftOf(folding, identity, ({since}) => ({
        cause: {node, runs_ms: facts.to - since, typical_ms: typicalMs},
        sentence: longHeadline(job, facts.to - since, typicalMs),
        advice: 'Cancel it if it hangs. A timeout limits later runs.',
      })).add({job, group, count: 1, from: startedAt, overAt: null})
    }
    const lateMs = startedAt - scheduledAt
    const isCovered = spans.some(({from, until}) => from <= startedAt && until >= scheduledAt)
    if (attempt.attempt > 1 || lateMs < LATE_MIN_MS || isCovered) continue
    const identity = {key: `late:started_late:${node}`, kind: 'late', code: 'started_late'} as const
    draftOf(folding, identity, ({plannedTimes, latestMs}) => ({
      cause: {node, late_ms: latestMs},
      sentence: startedLateHeadline(node, plannedTimes, latestMs),
      advice: '',
    })).add({job, group, count: 1, from: scheduledAt, overAt: startedAt, lateMs})
  }
}
