/** Why a time has no launch: it is no planned time of the job, it is still to come, or it is undecided. */
import {formatTime} from '../../lib/rfc3339.ts'
import {nextPlanned, scheduleOf, undecidedTimes} from '../next-time.ts'
import type {Schedule} from '../schedule/parse.ts'
import type {ChangeFacts, ExplainFacts, Told} from './facts.ts'
import type {Span} from './subject.ts'
import {runsAfter} from './outlook.ts'
import {disabledTold} from './reasons.ts'
import {undecidedTold} from './undecided.ts'
import type {Words} from './words.ts'

/** Codes of times without a launch; docs/reference/jobs.md lists them. */
export const ABSENCES = {
  before_created: 'The time is before the creation of the job',
  before_starts_at: 'The time is before `starts_at`',
  after_expires_at: 'The time is not before `expires_at`',
  follows_parent: 'The job runs after its parent, and has no planned times',
  manual: 'The job has no schedule',
  schedule_unreadable: 'This server, or its time zone data, cannot read the schedule',
  disabled: 'The job is disabled',
  undecided: 'A planned time is due and not decided yet',
  planned: 'A planned time that is still to come',
  not_kept: 'A planned time that is older than the history of the job',
  not_planned: 'No planned time of the job',
} as const satisfies Record<string, string>
export type Absence = keyof typeof ABSENCES

export interface AbsenceTold extends Told {
  readonly code: Absence
}

/** The job, its schedule if it can be read, and who created and changed it last. */
interface Planned {
  readonly facts: ExplainFacts
  readonly span: Span
  readonly words: Words
  readonly schedule: Schedule | null
  readonly created: ChangeFacts | undefined
  readonly change: ChangeFacts | undefined
}

/** Tries the causes in this order; the last one is always true. */
export function absenceTold(
  facts: ExplainFacts,
  span: Span,
  words: Words,
  {created, change}: Pick<Planned, 'created' | 'change'>,
): AbsenceTold {
  const {job, settings} = facts
  const schedule = scheduleOf(job.spec, job.anchorAt, settings.defaultZone)
  const planned = {facts, span, words, schedule, created, change}
  return (
    outsideOfJob(planned) ??
    neverPlanned(planned) ??
    whileDisabled(planned) ??
    stillUndecided(planned) ??
    stillToCome(planned) ??
    notKept(planned) ??
    notPlanned(planned)
  )
}

function outsideOfJob({facts, span, words, created}: Planned): AbsenceTold | null {
  const {name, startsAt, expiresAt} = facts.job.spec
  const {createdAt} = facts.job
  const edit = [`belfry jobs edit ${name}`]
  if (span.until <= createdAt) {
    const by = created === undefined ? '' : ` by ${created.actor}`
    const sentence = `The job was created at ${words.time(createdAt)}${by}: it had no planned times before.`
    return {
      code: 'before_created',
      sentences: [sentence],
      facts: {created_at: formatTime(createdAt)},
    }
  }
  if (startsAt !== null && span.until <= startsAt)
    return {
      code: 'before_starts_at',
      sentences: [`The job has planned times from ${words.time(startsAt)} on.`],
      advice: 'Change starts_at if it must run before.',
      commands: edit,
      facts: {starts_at: formatTime(startsAt), setting: 'starts_at'},
    }
  if (expiresAt === null || span.from < expiresAt) return null
  const ends = expiresAt <= facts.now ? 'expired' : 'expires'
  return {
    code: 'after_expires_at',
    sentences: [`The job ${ends} at ${words.time(expiresAt)}: it has no planned times after that.`],
    advice: 'Change expires_at if it must run again.',
    commands: edit,
    facts: {expires_at: formatTime(expiresAt), setting: 'expires_at'},
  }
}

function neverPlanned({facts, schedule}: Planned): AbsenceTold | null {
  const {name, parentJob, schedule: text} = facts.job.spec
  if (parentJob !== '')
    return {
      code: 'follows_parent',
      sentences: [`The job has no planned times: it ${runsAfter(facts)}.`],
      commands: [`belfry explain ${parentJob}`],
      facts: {parent: parentJob},
    }
  if (text === '' || schedule?.kind === 'manual')
    return {
      code: 'manual',
      sentences: ['The job has no schedule: it runs by hand only.'],
      advice: 'Run it, or give it a schedule.',
      commands: [`belfry jobs run ${name}`],
    }
  if (schedule !== null) return null
  return {
    code: 'schedule_unreadable',
    sentences: [
      'The schedule of the job cannot be read by this server: its planned times are undecided.',
    ],
    advice: 'Correct the schedule, or upgrade all servers to one release.',
    commands: [`belfry jobs edit ${name}`],
  }
}

function whileDisabled({facts, span, words, change}: Planned): AbsenceTold | null {
  const {job} = facts
  const since = change?.at ?? job.updatedAt
  if (!job.spec.disabled || span.until <= since) return null
  const {name} = job.spec
  return {code: 'disabled', ...disabledTold(name, change, words)}
}

function stillUndecided({facts, span, words, schedule}: Planned): AbsenceTold | null {
  const {nextAt} = facts.job
  if (nextAt === null || schedule === null) return null
  const at = undecidedTimes(schedule, nextAt).next(span.from - 1)
  if (at === null || at > facts.now || at >= span.until) return null
  return {code: 'undecided', ...undecidedTold(facts, at, words)}
}

function stillToCome({facts, span, words}: Planned): AbsenceTold | null {
  const {job, now, settings} = facts
  const after = Math.max(span.from - 1, now)
  const next = nextPlanned(job.spec, job.anchorAt, after, settings.defaultZone)
  if (next === null || next >= span.until) return null
  return {
    code: 'planned',
    sentences: [`It is planned for ${words.time(next)}, which is still to come.`],
    facts: {planned_at: formatTime(next)},
  }
}

function notKept({facts, span, words, schedule}: Planned): AbsenceTold | null {
  const {oldest, job} = facts
  const isPlanned = (schedule?.count(span.from, span.until) ?? 0) > 0
  if (!isPlanned || oldest === null || oldest.launch.scheduledAt <= span.from) return null
  if (job.createdAt >= oldest.launch.scheduledAt) return null
  const from = oldest.launch.scheduledAt
  return {
    code: 'not_kept',
    sentences: [`The history of the job is kept from ${words.time(from)} on.`],
    facts: {kept_from_at: formatTime(from)},
  }
}

function notPlanned({facts, span, words, schedule, change}: Planned): AbsenceTold {
  const {job} = facts
  const {expiresAt, startsAt} = job.spec
  const before = schedule?.previous(span.from) ?? null
  const after = schedule?.next(span.from - 1) ?? null
  const isIn = (at: number | null) =>
    at !== null && (startsAt === null || at >= startsAt) && (expiresAt === null || at < expiresAt)
  const nearest = [before, after].filter((at) => isIn(at)).map((at) => at!)
  const changedAt = change?.at ?? job.updatedAt
  const isOlder = span.from < changedAt && changedAt > job.createdAt
  const by = change === undefined ? '' : ` by ${change.actor}`
  const changed = `The job was changed at ${words.time(changedAt)}${by}; before, it may have had others.`
  const list = nearest.map((at) => words.time(at)).join(' and ')
  const are = nearest.length === 1 ? 'the nearest one is' : 'the nearest are'
  return {
    code: 'not_planned',
    sentences: [
      nearest.length === 0
        ? `${words.time(span.from)} is no planned time of the job, and it has no others.`
        : `${words.time(span.from)} is no planned time of the job: ${are} ${list}.`,
      ...(isOlder ? [changed] : []),
    ],
    commands: [`belfry jobs next ${job.spec.name}`],
    facts: {nearest_at: nearest.map((at) => formatTime(at))},
  }
}
