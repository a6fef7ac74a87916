/** Launches that did not run, or wait, by cause: tags, a pause, a person, a span without a leader. */
import {formatTime} from '../../lib/rfc3339.ts'
import type {Fact} from '../explain/facts.ts'
import {disabledBy, headline, type Subject} from '../explain/headlines.ts'
import {nodeAdvice, nodeFacts, nodeSentences, tagFacts} from '../explain/nodes.ts'
import {launchNamedIn, reasonTold} from '../explain/reasons.ts'
import {latestPause, parsePausedReason} from '../firing.ts'
import type {JobSpec} from '../job-fields.ts'
import type {StringMap} from '../job.ts'
import type {LaunchRecord} from '../launch-record.ts'
import {covers} from './cluster.ts'
import {type Draft, draftOf, type Folding, type Telling} from './draft.ts'
import type {ProblemFacts} from './facts.ts'

/** Rows that note something about a job, and are no planned time. */
const NOTES: ReadonlySet<string> = new Set(['quarantined', 'schedule_unreadable', 'undecidable'])
const ON_PURPOSE: ReadonlySet<string> = new Set([
  'disabled',
  'firing_paused',
  'outside_window',
  'edited',
])
/** The row is a problem until the job is launched later: no person meant it so. */
export function isUnwanted(row: LaunchRecord): boolean {
  return !ON_PURPOSE.has(codeOf(row))
}

/** Reasons that are about nodes: jobs with equal tags have one problem. */
const OF_TAGS: ReadonlySet<string> = new Set(['no_target', 'behind', 'waits_for_node'])
/** Reasons that are about one job. */
const OF_JOB: ReadonlySet<string> = new Set(['forbid', 'quarantined', 'waits_for_open'])
/** A wait is a problem of its own from then on; before, it is late. */
const WAITING_MIN_MS = 600_000

/** Adds a row that did not run. False: it is the row of a dependent, which is folded under its cause. */
export function notRunRow(folding: Folding, row: LaunchRecord): boolean {
  const {facts, spans} = folding
  const code = codeOf(row)
  if (code === 'parent_failed' || code === 'parent_skipped') return false
  const span =
    row.decision === 'missed' && !ON_PURPOSE.has(code)
      ? spans.find((each) => covers(each, row))
      : undefined
  if (span !== undefined) {
    span.missed.push(row)
    folding.byGroup.set(row.group, span.draft)
    span.draft.add({...occurrenceOf(row), overAt: launchedLater(facts, row)})
    return true
  }
  const draft = ON_PURPOSE.has(code) ? onPurpose(folding, row, code) : problem(folding, row, code)
  folding.byGroup.set(row.group, draft)
  return true
}

function problem(folding: Folding, row: LaunchRecord, code: string): Draft {
  const {facts} = folding
  const kind = row.decision === 'missed' ? 'missed' : 'skipped'
  const draft = draftOf(
    folding,
    {key: `${kind}:${code}:${groupOf(facts, row, code)}`, kind, code},
    tellRows(row),
  )
  draft.add({...occurrenceOf(row), overAt: launchedLater(facts, row)})
  return draft
}

/** A disabled span that Belfry began is a problem. */
function onPurpose(folding: Folding, row: LaunchRecord, code: string): Draft {
  const {facts} = folding
  const detail = detailOf(row)
  const by = code === 'disabled' ? disabledBy(detail) : null
  if (by === 'belfry') {
    const quarantined = {...row, reason: 'quarantined'}
    const draft = problem(folding, {...quarantined, count: 0}, 'quarantined')
    draft.plannedTimes += row.count
    return draft
  }
  const key = `on_purpose:${code}:${code === 'disabled' ? (by ?? '') : detail}`
  const draft = draftOf(folding, {key, kind: 'on_purpose', code}, tellRows(row))
  draft.add({...occurrenceOf(row), overAt: isInForce(facts, row, code) ? null : lastOf(row)})
  return draft
}

function isInForce({pauses, openSpans}: ProblemFacts, row: LaunchRecord, code: string): boolean {
  if (code === 'disabled') return openSpans.has(row.group)
  return code === 'firing_paused' && latestPause(pauses, row.jobName) !== null
}

/**
 * Adds the row of a dependent to the problem of the launch that it follows from. `dependents`: all such rows,
 * by number.
 */
export function foldedRow(
  folding: Folding,
  row: LaunchRecord,
  dependents: ReadonlyMap<number, LaunchRecord>,
): void {
  let top = row
  while (top.parentGroup !== null && dependents.has(top.parentGroup))
    top = dependents.get(top.parentGroup)!
  const cause = folding.byGroup.get(top.parentGroup ?? 0) ?? folding.byGroup.get(row.rootGroup ?? 0)
  if (cause !== undefined) return cause.addDependent(row.jobName)
  const code = codeOf(top)
  // The parent was cancelled by a person, or the caller may not read it.
  const kind = detailOf(top).endsWith('was cancelled') ? 'on_purpose' : 'skipped'
  const key = `${kind}:${code}:${top.jobId}`
  const draft = draftOf(folding, {key, kind, code}, tellRows(top))
  if (row !== top) return draft.addDependent(row.jobName)
  const overAt = kind === 'on_purpose' ? lastOf(row) : launchedLater(folding.facts, row)
  draft.add({...occurrenceOf(row), overAt})
}

/** A launch without a decision. */
export function pendingRow(folding: Folding, row: LaunchRecord): void {
  const {facts} = folding
  const code = codeOf(row)
  const kind = facts.to - row.storedAt >= WAITING_MIN_MS ? 'waiting' : 'late'
  const key = `${kind}:${code}:${groupOf(facts, row, code)}`
  const told = draftOf(folding, {key, kind, code}, tellRows(row))
  told.add({...occurrenceOf(row), overAt: null})
}

function occurrenceOf(row: LaunchRecord) {
  const {jobName: job, group, count, scheduledAt: from} = row
  return {job, group, count: NOTES.has(codeOf(row)) ? 0 : count, from}
}

/** Rows of one problem have this in common, besides the code. */
function groupOf(facts: ProblemFacts, row: LaunchRecord, code: string): string {
  const spec = specOf(facts, row)
  if (OF_TAGS.has(code)) return spec === undefined ? `job ${row.jobId}` : tagSet(spec.tags)
  if (OF_JOB.has(code)) return `job ${row.jobId}`
  return NOTES.has(code) ? detailOf(row) : ''
}

/** The definition by which the row was decided. */
function specOf({specs}: ProblemFacts, {jobId, decidedAt}: LaunchRecord): JobSpec | undefined {
  return specs.get(jobId)?.find(({until}) => until > (decidedAt ?? -Infinity))?.spec
}

function tagSet(tags: StringMap): string {
  return Object.entries(tags)
    .map(([key, value]) => `${key}=${value}`)
    .toSorted()
    .join(' ')
}

/** When a later planned time of the job, or a later request, was launched; `null` = none was. */
function launchedLater({later}: ProblemFacts, row: LaunchRecord): number | null {
  const launched = later.get(row.jobId)?.launched ?? null
  if (launched === null) return null
  const isLater = launched.group > row.group && launched.scheduledAt > row.scheduledUntil
  return isLater ? launched.at : null
}

function lastOf({decidedAt, scheduledUntil}: LaunchRecord): number {
  return decidedAt ?? scheduledUntil
}

/** Sentences about rows with one reason. `newest`: rows are added newest first. */
function tellRows(newest: LaunchRecord): (draft: Draft, folding: Folding) => Telling {
  return (draft, {facts, context, words}) => {
    const {jobs, code} = draft
    const spec = specOf(facts, newest)
    const nodes =
      context.seesNodes && spec !== undefined && OF_TAGS.has(code)
        ? nodeFacts(spec.tags, facts.members, context.defaultTarget)
        : undefined
    const known = {spec, nodes}
    const subject: Omit<Subject, 'detail'> = {jobs, total: jobs.length, known}
    const {reason} = newest
    const isOfNodes = code === 'no_target' || code === 'waits_for_node'
    const told = reasonTold(newest, known, words)
    const nearest = isOfNodes
      ? nodeSentences(known, words).filter((each) => each.startsWith('Nearest'))
      : []
    const advice = isOfNodes
      ? (nodeAdvice(known, newest.jobName).advice ?? '')
      : (told.advice ?? '')
    return {
      cause: causeOf(code, newest, known),
      sentence: headline(reason, subject),
      advice: draft.isOver ? '' : [...nearest, ...(advice === '' ? [] : [advice])].join(' '),
    }
  }
}

function causeOf(
  code: string,
  row: LaunchRecord,
  known: Subject['known'],
): Readonly<Record<string, Fact>> {
  if (OF_TAGS.has(code)) return tagFacts(known)
  const detail = detailOf(row)
  switch (code) {
    case 'disabled':
      return {by: disabledBy(detail)}
    case 'firing_paused': {
      const {by, text, until} = parsePausedReason(detail)
      return {by, text, until_at: until === null ? null : formatTime(until)}
    }
    case 'forbid':
      return {open_launch: launchNamedIn(detail)}
    default:
      return {}
  }
}

/** The code of the reason, also one of another release. */
function codeOf({reason}: LaunchRecord): string {
  return reason.split(':', 1)[0]!
}

function detailOf({reason}: LaunchRecord): string {
  const at = reason.indexOf(':')
  return at === -1 ? '' : reason.slice(at + 1).trim()
}
