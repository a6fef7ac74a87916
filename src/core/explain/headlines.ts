/**
 * Headlines: one sentence about many launches with one cause. A headline has no times: a list shows them
 * beside it. It never shows a code.
 */
import {parsePausedReason} from '../firing.ts'
import type {LaunchStatus} from '../launch-record.ts'
import {type Reason, reasonCode} from '../launch-reasons.ts'
import {roughDuration} from '../../lib/duration.ts'
import {END_WORDS, endCause} from './executions.ts'
import type {Around, ExecutionFacts} from './facts.ts'
import {tagList} from './nodes.ts'
import {actorName} from './reasons.ts'
import {counted, listed} from './words.ts'

/** Jobs of a headline. */
export interface Subject {
  /** The first names. */
  readonly jobs: readonly string[]
  readonly total: number
  /** Text of the newest stored reason after its code. */
  readonly detail: string
  readonly known: Pick<Around, 'spec' | 'nodes'>
}

type Headline = (subject: Subject) => string

const HEADLINES: Readonly<Record<Reason, Headline>> = {
  forbid: (of) =>
    `${were(of)} skipped: an earlier launch was still open, and launches must not overlap.`,
  no_target: (of) => {
    const {nodes} = of.known
    const isThere = nodes === undefined || nodes.matching + nodes.cordoned.length > 0
    const wanted = wantedNode(of)
    return isThere || nodes.gone.length > 0
      ? `No node${wanted} took work within the wait.`
      : `No node${wanted === '' ? ' runs jobs' : wanted.replace(' with', ' has')}.`
  },
  disabled: (of) => {
    const actor = disabledBy(of.detail)
    return actor === null
      ? `${named(of)} ${isAre(of)} disabled.`
      : `${actorName(actor)} disabled ${named(of)}.`
  },
  firing_paused: ({detail}) => {
    const {by, text} = parsePausedReason(detail)
    const why = text === '' ? '' : `: "${text}"`
    return `Firing was paused${by === '' ? '' : ` by ${by}`}${why}.`
  },
  outside_window: (of) =>
    `${parents(of)} succeeded outside of the time in which ${named(of)} ${of.total === 1 ? 'runs' : 'run'}.`,
  max_lateness: (of) => `Planned times of ${named(of)} were decided too late to run.`,
  catch_up_skip: (of) => `Planned times of ${named(of)} were missed, and are not caught up.`,
  catch_up_latest: (of) =>
    `Planned times of ${named(of)} were missed; only the newest one is caught up.`,
  catch_up_cap: (of) => `More planned times of ${named(of)} were missed than are caught up.`,
  edited: (of) => `A change of ${named(of)} moved the schedule past due times.`,
  restored: (of) =>
    `The store was put back from a backup: times of ${named(of)} before firing was resumed never run.`,
  quarantined: (of) => `Belfry disabled ${named(of)}: nodes died while executing it.`,
  schedule_unreadable: (of) =>
    `The schedule of ${named(of)} cannot be read: no planned time is decided.`,
  undecidable: (of) =>
    `Planned times of ${named(of)} cannot be decided${of.detail === '' ? '' : `: ${of.detail}`}.`,
  waits_for_open: (of) => `${named(of)} ${waits(of)} for an earlier launch to end.`,
  behind: (of) => `The nodes of ${named(of)} start launches more slowly than they are planned.`,
  waits_for_node: (of) => `${named(of)} ${waits(of)} for a node${wantedNode(of)}.`,
  parent_failed: (of) => `${parents(of)} did not succeed, so ${named(of)} did not run.`,
  parent_skipped: (of) => `${parents(of)} did not run, so ${named(of)} did not run.`,
}

/** `reason`: as stored. A code of another release is shown as words. */
export function headline(reason: string, subject: Omit<Subject, 'detail'>): string {
  const code = reasonCode(reason)
  if (reason === '') return dueHeadline(subject.total)
  const detail = reason.slice(reason.indexOf(':') + 1).trim()
  if (code !== null)
    return HEADLINES[code]({...subject, detail: reason.includes(':') ? detail : ''})
  const of = {...subject, detail}
  return `${were(of)} not run: ${reason.replaceAll('_', ' ')}.`
}

/** Name of the token in the reason of a disabled span; `null` = it names none. */
export function disabledBy(detail: string): string | null {
  return /^by (.+) since \S+Z$/.exec(detail)?.[1] ?? null
}

/** `load failed: exit code 3.` */
export function failureHeadline(
  job: string,
  status: LaunchStatus,
  bad: Pick<ExecutionFacts, 'status' | 'reason' | 'exitCode'> | null,
): string {
  const cause = bad === null ? '' : failureCause(bad)
  return `${job} ${END_WORDS[status]}${cause === '' ? '' : `: ${cause}`}.`
}

/** The cause of a bad end as a clause; `''` = it is not known. */
export function failureCause(bad: Pick<ExecutionFacts, 'status' | 'reason' | 'exitCode'>): string {
  return bad.status === 'timed_out' ? 'its time-out was over' : endCause(bad)
}

/** Attempts that were lost with their nodes, and what became of their launches. */
export function lostHeadline({
  nodes,
  attempts,
  jobs,
  reason,
  succeeded,
  failed,
  open,
}: {
  readonly nodes: readonly string[]
  readonly attempts: number
  readonly jobs: number
  readonly reason: string
  readonly succeeded: number
  readonly failed: number
  readonly open: number
}): string {
  const cause = endCause({status: 'lost', reason, exitCode: null})
  const were = attempts === 1 ? 'was' : 'were'
  const lost = `${counted(attempts, 'execution')} of ${counted(jobs, 'job')} ${were} lost on ${listed(nodes)}`
  const parts = [
    ...(succeeded === 0 ? [] : [`${succeeded} succeeded since`]),
    ...(failed === 0 ? [] : [`${failed} failed`]),
    ...(open === 0 ? [] : [`${open} ${open === 1 ? 'is' : 'are'} still open`]),
  ]
  const launches = parts.length === 0 ? '' : ` Of the launches, ${listed(parts)}.`
  return `${lost}${cause === '' ? '' : `: ${cause}`}.${launches}`
}

/** `load runs for 3h, 6 times as long as usual.` */
export function longHeadline(job: string, runsMs: number, typicalMs: number): string {
  const times = Math.round(runsMs / Math.max(1, typicalMs))
  const usual = `${counted(times, 'time')} its typical ${roughDuration(typicalMs)}`
  return `${job} runs for ${roughDuration(runsMs)}, ${usual}.`
}

export function slotHeadline(node: string, attempts: number): string {
  return `${counted(attempts, 'execution')} ${attempts === 1 ? 'waits' : 'wait'} for a free slot of ${node}.`
}

export function startedLateHeadline(node: string, attempts: number, lateMs: number): string {
  return `${counted(attempts, 'execution')} started up to ${roughDuration(lateMs)} late on ${node}.`
}

/** The cluster as a whole. `nodes`: names, as far as the caller may see them. */
export const CLUSTER_HEADLINES = {
  no_leader: ({lengthMs, isOver, count, nodes: [ended, began], storeFailed}: ClusterHeadline) => {
    const length = roughDuration(lengthMs)
    if (!isOver) return `No server has led for ${length}: nothing is launched.`
    const cause = storeFailed === true ? ', because the store took no writes' : ''
    const times = count === 1 ? `for ${length}` : `${count} times, for ${length} altogether`
    const names =
      began === undefined
        ? ''
        : ended === undefined || ended === began
          ? ` ${began} leads now.`
          : ` ${ended} ended, ${began} took over.`
    return `No server led ${times}${cause}.${names}`
  },
  clock_held: ({lengthMs, isOver}: ClusterHeadline) => {
    const held = `planned times ${isOver ? 'were' : 'have been'} held back for ${roughDuration(lengthMs)}`
    return `The clock of the store had jumped ahead: ${held}.`
  },
  store_restored: ({isOver}: ClusterHeadline) =>
    isOver
      ? 'The store was put back from a backup, and firing was resumed.'
      : 'The store was put back from a backup, and firing is not resumed: nothing is launched.',
  node_failed: ({isOver, nodes: [node = 'A node']}: ClusterHeadline) =>
    isOver ? `${node} failed, and is back or was removed.` : notBack(node),
  store: () => 'The store cannot be written: nothing is launched, and no result is stored.',
  notices_failing: ({nodes: [channel = '']}: ClusterHeadline) =>
    `The channel ${channel} of notices delivers nothing.`,
} as const satisfies Record<string, (facts: ClusterHeadline) => string>

export interface ClusterHeadline {
  readonly lengthMs: number
  readonly isOver: boolean
  /** Number of such spans. */
  readonly count: number
  readonly nodes: readonly string[]
  /** The store is known to be the cause. */
  readonly storeFailed?: boolean
}

/** Advice about problems of the cluster. */
export const CLUSTER_ADVICE: Readonly<Record<keyof typeof CLUSTER_HEADLINES, string>> = {
  no_leader: 'Look at the servers and their connection to the store.',
  clock_held: 'Correct the clock. A step that stays is believed after a while.',
  store_restored: 'Resume firing when the jobs may run here.',
  node_failed: 'Start the node again, or remove it.',
  store: 'Look at the disk of the store, and at its logs.',
  notices_failing: 'Correct the channel, then test it.',
}

/** A node that is still away. */
export function notBack(node: string): string {
  return `${node} failed, and is not back.`
}

/** Advice while jobs whose planned times were missed have not run since. */
export const MISSED_ADVICE =
  'Jobs that missed planned times have not run since: run them if they must.'

/** Planned times that were due while nothing was decided. */
export function timesOfSpan(late: number, missed: number): string {
  return `${counted(late, 'planned time')} ${late === 1 ? 'was' : 'were'} late, ${missed} missed.`
}

/** Planned times that are due, of so many jobs. */
export function dueHeadline(jobs: number): string {
  return `Planned times of ${counted(jobs, 'job')} are due, and not decided.`
}

function named({jobs, total}: Subject): string {
  return total === 1 ? (jobs[0] ?? 'a job') : counted(total, 'job')
}

/** At the begin of a sentence. */
function parents({total}: Subject): string {
  return total === 1 ? 'Its parent' : 'Their parents'
}

function isAre({total}: Subject): string {
  return total === 1 ? 'is' : 'are'
}

function waits({total}: Subject): string {
  return total === 1 ? 'waits' : 'wait'
}

function were(subject: Subject): string {
  return `${named(subject)} ${subject.total === 1 ? 'was' : 'were'}`
}

/** ` with group=web`, `''` without tags. */
function wantedNode({known: {spec}}: Subject): string {
  const tags = spec === undefined ? [] : tagList(spec.tags)
  return tags.length === 0 ? '' : ` with ${listed(tags)}`
}
