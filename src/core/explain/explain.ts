/**
 * Explains a job at a time: why it ran, did not run, or waits, what it does next, and what to do about it.
 * Makes sentences from stored facts; never shows a code, or a job that the caller may not read.
 */
import {formatDuration} from '../../lib/duration.ts'
import {matchesText} from '../access/glob.ts'
import {JOB_FIELD_LIST, specOf} from '../job-fields.ts'
import type {StringMap} from '../job.ts'
import {reasonCode, type Reason} from '../launch-reasons.ts'
import {shownZone} from '../schedule/instant.ts'
import {zoneOf} from '../schedule/parse.ts'
import type {DefaultTarget} from '../target.ts'
import {type Absence, absenceTold} from './absences.ts'
import {launchedTold} from './executions.ts'
import type {
  Around,
  AuditedChange,
  ChangeFacts,
  ExplainFacts,
  ExplainSubject,
  RelatedLaunch,
  StoredLaunchFacts,
  Told,
} from './facts.ts'
import {nodeFacts} from './nodes.ts'
import {type NextTold, nextTold, type NowTold, nowTold} from './outlook.ts'
import {reasonTold} from './reasons.ts'
import {type Span, spanOf} from './subject.ts'
import {counted, type Words, wordsIn} from './words.ts'

/**
 * `not_run`: a row says why. `waiting`: it is not decided. `absent`: there is no launch, and the code says
 * why.
 */
export const EXPLANATION_KINDS = ['launched', 'not_run', 'waiting', 'absent'] as const

export interface Explanation extends Required<Told> {
  readonly job: string
  readonly timezone: string
  /** The time that is explained. */
  readonly at: number
  readonly kind: (typeof EXPLANATION_KINDS)[number]
  /** Reason of the launch, `launched`, or why there is no launch; `''` = it has no reason yet. */
  readonly code: Reason | Absence | 'launched' | ''
  readonly before: StoredLaunchFacts | null
  readonly after: StoredLaunchFacts | null
  readonly now: NowTold
  readonly next: readonly NextTold[]
}

export interface ExplainContext {
  readonly defaultTarget: DefaultTarget
  readonly targetWaitMs: number
  /** The caller may list the members. */
  readonly seesNodes: boolean
  /** The caller may read the output of the job. */
  readonly seesOutput: boolean
  readonly queuedMax: number
  /** The caller may read the job of this name. */
  readonly mayRead: (job: string) => boolean
}

export function explain(
  stored: ExplainFacts,
  subject: ExplainSubject,
  context: ExplainContext,
): Explanation {
  const {job, now, settings, chosen} = stored
  const {spec} = job
  const isParentDisabled = stored.isParentDisabled && context.mayRead(spec.parentJob)
  const facts = {...stored, isParentDisabled}
  const zone = spec.timezone === '' ? settings.defaultZone : spec.timezone
  const timezone = shownZone(zoneOf(spec.schedule, zone))
  const words = wordsIn(timezone, now)
  const whole = subject.kind === 'at' ? spanOf(subject.text, timezone) : null
  const span = whole ?? {from: now, until: now + 1}
  const known = aroundOf(facts, context)
  const disabledBy = newestDisable(facts.changes, now)
  const told =
    chosen === null
      ? absent(facts, span, words, disabledBy, context)
      : storedTold(chosen, facts, known, words, subject.kind === 'at' ? span : null)
  const {sentences, advice = '', commands = [], facts: shown = {}} = told
  return {
    job: spec.name,
    timezone,
    at: chosen?.launch.scheduledAt ?? span.from,
    kind: told.kind,
    code: told.code,
    sentences,
    advice,
    commands,
    facts: shown,
    before: facts.before,
    after: facts.after,
    now: nowTold(facts, known, disabledBy, words),
    next: nextTold(facts, known, formatDuration(context.targetWaitMs), words),
  }
}

type Answer = Told & Pick<Explanation, 'kind' | 'code'>

function absent(
  facts: ExplainFacts,
  span: Span,
  words: Words,
  disabledBy: ChangeFacts | undefined,
  {mayRead}: ExplainContext,
): Answer {
  const created = facts.changes.find(({action}) => action === 'job.create')
  const change = facts.job.spec.disabled ? disabledBy : facts.changes.find(isDefinition)
  const told = absenceTold(facts, span, words, {created, change})
  const isHidden = told.code === 'follows_parent' && !mayRead(facts.job.spec.parentJob)
  return {...told, kind: 'absent', commands: isHidden ? [] : (told.commands ?? [])}
}

/** A row of the history. `span`: further rows of a day are counted. */
function storedTold(
  {launch, executions, status}: StoredLaunchFacts,
  facts: ExplainFacts,
  known: Around,
  words: Words,
  span: Span | null,
): Answer {
  const others = facts.rowsTotal - 1
  const day =
    span === null || others === 0
      ? []
      : [
          `${counted(others, 'other row')} of the history ${others === 1 ? 'is' : 'are'} of this time.`,
        ]
  if (launch.decision === 'launched') {
    const told = launchedTold(launch, executions, status, known, words)
    return {...told, sentences: [...told.sentences, ...day], kind: 'launched', code: 'launched'}
  }
  const tags = tagsThen(facts, launch)
  const then = tags === null ? known : {...known, spec: {...facts.job.spec, tags}, nodes: undefined}
  const told = reasonTold(launch, then, words)
  const since = tags === null ? [] : ['Its tags were changed since.']
  const isWaiting = launch.decision === 'pending'
  const reason = told.sentences.length === 0 ? ['It is not decided yet.'] : told.sentences
  return {
    ...told,
    kind: isWaiting ? 'waiting' : 'not_run',
    code: reasonCode(launch.reason) ?? '',
    sentences: [openingOf(launch, isWaiting, words), ...reason, ...since, ...day],
    facts: {launch: launch.group, ...told.facts},
  }
}

/** The tags by which a launch found no node, if they were changed since; else `null`. */
function tagsThen(
  {changes, job}: ExplainFacts,
  {reason, decidedAt}: StoredLaunchFacts['launch'],
): StringMap | null {
  if (decidedAt === null || reasonCode(reason) !== 'no_target') return null
  // The newest change comes first: the first one after the decision replaced what it was decided by.
  const next = changes.filter((entry) => isDefinition(entry) && entry.at > decidedAt).at(-1)
  if (next === undefined || next.replaced === null) return null
  const {tags} = specOf(next.replaced)
  return JSON.stringify(tags) === JSON.stringify(job.spec.tags) ? null : tags
}

function openingOf(
  {cause, scheduledAt, scheduledUntil, count}: StoredLaunchFacts['launch'],
  isWaiting: boolean,
  words: Words,
): string {
  const [from, until] = [words.time(scheduledAt), words.time(scheduledUntil)]
  if (count > 1) return `${counted(count, 'planned time')} from ${from} to ${until} did not run.`
  const end = isWaiting ? '.' : ', and did not run.'
  switch (cause) {
    case 'schedule':
      // The row of a span without a planned time so far.
      return count === 0
        ? `It has had no planned time since ${from}.`
        : `It was planned for ${from}${end}`
    case 'parent':
      return `Its parent ended at ${from}${isWaiting ? '.' : ', and it did not run.'}`
    case 'manual':
    case 'create':
      return `It was requested at ${from}${end}`
  }
}

function aroundOf(facts: ExplainFacts, context: ExplainContext): Around {
  const {job, chosen, related, members, settings, changes, spans, after, typicalMs} = facts
  const {spec} = job
  const {seesNodes, seesOutput, mayRead, defaultTarget, queuedMax} = context
  const launch = chosen?.launch
  const nodes = seesNodes ? nodeFacts(spec.tags, members, defaultTarget) : undefined
  const other = related !== null && mayRead(related.launch.jobName) ? relatedOf(related) : undefined
  const isParent = related !== null && related.launch.group === launch?.parentGroup
  const previous =
    launch !== undefined && reasonCode(launch.reason) === 'waits_for_open'
      ? facts.open.find(({launch: {group}}) => group < launch.group)
      : undefined
  const decidedAt = launch?.decidedAt ?? launch?.storedAt ?? facts.now
  const change =
    launch !== undefined && reasonCode(launch.reason) === 'disabled'
      ? newestDisable(changes, decidedAt)
      : changes.find((entry) => isDefinition(entry) && entry.at <= decidedAt)
  const pause = settings.pauses.find(
    ({jobs, pausedAt}) =>
      matchesText(jobs, spec.name) && pausedAt <= (launch?.scheduledUntil ?? facts.now),
  )
  const span = spans.find(
    ({from, until}) =>
      launch !== undefined && from <= decidedAt && (until ?? Infinity) >= launch.scheduledAt,
  )
  const instead = after?.launch.decision === 'launched' ? after.launch : undefined
  return {
    spec,
    nodes,
    related: previous === undefined ? (isParent ? undefined : other) : relatedOf(previous),
    parent: isParent ? other : undefined,
    change,
    pause,
    span,
    instead,
    typicalMs: typicalMs ?? undefined,
    lastLine: seesOutput ? lastLineOf(facts.outputEnd) : undefined,
    queuedMax,
    changed: change === undefined ? undefined : changedFields(facts, change),
    cancels: cancelsOf(changes),
  }
}

/** A longer line is cut. */
const LINE_LENGTH_MAX = 200

/** `undefined` = there is none. */
export function lastLineOf(output: string): string | undefined {
  const line = output.trimEnd().split('\n').at(-1)!.trim()
  return line === '' ? undefined : line.slice(0, LINE_LENGTH_MAX)
}

/** Wire names of the fields that differ between the definition before the change and the one after it. */
function changedFields(
  {changes, job}: ExplainFacts,
  change: AuditedChange,
): readonly string[] | undefined {
  if (change.replaced === null) return undefined
  const newer = changes.filter((entry) => isDefinition(entry) && entry.at > change.at).at(-1)
  if (newer?.replaced === null) return undefined
  const before = specOf(change.replaced)
  const after = newer === undefined ? job.spec : specOf(newer.replaced)
  return JOB_FIELD_LIST.filter(
    ({key}) => JSON.stringify(before[key]) !== JSON.stringify(after[key]),
  ).map(({wire}) => wire)
}

function relatedOf({launch, executions, status}: StoredLaunchFacts): RelatedLaunch {
  return {group: launch.group, jobName: launch.jobName, launch, executions, status}
}

/** The entry is a change of the definition. */
function isDefinition({action}: AuditedChange): boolean {
  return action !== 'execution.cancel'
}

/** The newest change up to then that disabled the job, as far as its entry says so. */
export function newestDisable(
  changes: readonly AuditedChange[],
  until: number,
): AuditedChange | undefined {
  const earlier = changes.filter((entry) => isDefinition(entry) && entry.at <= until)
  return earlier.find(({detail}) => detail.startsWith('disabled')) ?? earlier[0]
}

const CANCELLED = /^execution (\S+)$/

function cancelsOf(changes: readonly AuditedChange[]): ReadonlyMap<string, string> {
  return new Map(
    changes.flatMap(({action, detail, actor}) => {
      const id = action === 'execution.cancel' ? CANCELLED.exec(detail)?.[1] : undefined
      return id === undefined ? [] : [[id, actor]]
    }),
  )
}
