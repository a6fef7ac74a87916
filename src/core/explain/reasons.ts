/**
 * Sentences for launches that did not run, or wait: one entry for each reason code. The stored reason is a
 * code and a text; the other facts make the sentences exact. Never shows a code.
 */
import {formatTime} from '../../lib/rfc3339.ts'
import type {Actor} from '../audit.ts'
import {type FiringPause, isInForce} from '../firing.ts'
import {isNodeDeath} from '../finish.ts'
import type {JobSpec} from '../job.ts'
import {type Reason, reasonCode} from '../launch-reasons.ts'
import {END_WORDS, executionSentence} from './executions.ts'
import type {Around, ChangeFacts, ClusterSpan, LaunchFacts, RelatedLaunch, Told} from './facts.ts'
import {nodeAdvice, nodeSentences, nodeWith, tagFacts} from './nodes.ts'
import {capitalised, lengthFrom, listed, type Words} from './words.ts'

/** A launch with the text of its reason after the code. */
interface Row extends LaunchFacts {
  readonly detail: string
}

const TELL: Readonly<Record<Reason, (row: Row, known: Around, words: Words) => Told>> = {
  forbid: (row, {related}, words) => {
    const planned = /planned at (\S+Z)/.exec(row.detail)?.[1]
    const number = related?.group ?? launchNamedIn(row.detail)
    const other = number === null ? 'Another launch' : `Launch ${number}`
    const subject =
      planned === undefined ? other : `The launch planned for ${words.time(Date.parse(planned))}`
    const rule = 'and launches of this job must not overlap'
    if (related === undefined)
      return {sentences: [`${subject} was open, ${rule}.`], facts: {open_launch: number}}
    const end = related.status
    return {
      sentences: [
        `${subject} was open since ${openOn(related, words)}, ${rule}.`,
        end !== null ? `It ${END_WORDS[end]} since.` : 'It is still open.',
      ],
      ...(end !== null
        ? {
            advice: 'Plan fewer times, limit the run with a timeout, or set concurrency: allow.',
            commands: [`belfry jobs edit ${row.jobName}`],
          }
        : endOf(related)),
      facts: {open_launch: related.group, nodes: nodesOf(related)},
    }
  },
  no_target: (row, known, words) => {
    const waited = lengthFrom(row.storedAt ?? null, row.decidedAt)
    const wait = waited === null ? 'It waited' : `It waited ${waited}`
    const sentence = `${wait} for ${nodeWith(known)}, and none took it.`
    const then = row.detail === '' ? [] : [`At the end: ${words.text(row.detail)}.`]
    return {
      sentences: [sentence, ...then, ...nodeSentences(known, words)],
      ...nodeAdvice(known, row.jobName),
      facts: {
        ...tagFacts(known),
        setting: 'target_wait',
        ...(waited === null ? {} : {waited_ms: row.decidedAt! - row.storedAt!}),
      },
    }
  },
  disabled: ({detail, jobName, count}, {change, spec}, words) => {
    const [, actor = change?.actor, since] = /^by (.+) since (\S+Z)$/.exec(detail) ?? []
    const at = since === undefined ? change?.at : Date.parse(since)
    const known = actor === undefined || at === undefined ? undefined : {at, actor}
    const told = disabledTold(jobName, known && {address: change?.address ?? '', ...known}, words)
    const {facts, sentences} = told
    return {
      ...(spec?.disabled === false ? {sentences} : told),
      facts: {...facts, planned_times: count},
    }
  },
  firing_paused: ({detail, jobName, scheduledUntil}, {pause}, words) =>
    pause === undefined
      ? {
          sentences: [
            `Firing of ${jobName} was paused${detail === '' ? '' : `: ${words.text(detail)}`}.`,
          ],
        }
      : pauseTold(pause, scheduledUntil, words),
  outside_window: ({jobName, scheduledAt}, {spec}, words) => ({
    sentences: [
      spec === undefined
        ? 'Its parent ended outside of the time in which the job runs.'
        : `Its parent ended at ${words.time(scheduledAt)}; the job runs ${windowOf(spec, words)}.`,
    ],
    advice: 'Change starts_at or expires_at if it must run then.',
    commands: [`belfry jobs edit ${jobName}`],
  }),
  max_lateness: (row, {spec, span}, words) => ({
    sentences: [
      ...decidedLate(row, span, words),
      spec === undefined
        ? 'That was later than the job allows.'
        : `The job runs planned times that are at most ${spec.maxLateness} late.`,
    ],
    advice: 'Allow later runs with max_lateness, or run it now.',
    commands: [`belfry jobs run ${row.jobName}`],
    facts: {...spanFacts(span), setting: 'max_lateness'},
  }),
  catch_up_skip: (row, {span}, words) => ({
    sentences: [...decidedLate(row, span, words), 'The job does not catch up missed times.'],
    advice: 'Set catch_up to latest or all to catch up missed times, or run it now.',
    commands: [`belfry jobs run ${row.jobName}`],
    facts: {...spanFacts(span), setting: 'catch_up'},
  }),
  catch_up_latest: (row, known, words) => ({
    sentences: [
      ...decidedLate(row, known.span, words),
      `Only the newest missed time ran${insteadOf(known, words)}.`,
    ],
    advice: 'Set catch_up to all to run each missed time.',
    commands: [`belfry jobs edit ${row.jobName}`],
    facts: {...spanFacts(known.span), setting: 'catch_up', instead: known.instead?.group ?? null},
  }),
  catch_up_cap: (row, known, words) => ({
    sentences: [
      ...decidedLate(row, known.span, words),
      `More times were missed than a job catches up, and the newest ran${insteadOf(known, words)}.`,
    ],
    advice: 'Run it now if its work is missing.',
    commands: [`belfry jobs run ${row.jobName}`],
    facts: {...spanFacts(known.span), setting: 'catch_up', instead: known.instead?.group ?? null},
  }),
  edited: ({jobName}, {change, changed = []}, words) => {
    const what = changed.length === 0 ? 'the job' : listed(changed)
    const by = change === undefined ? '' : ` by ${change.actor} at ${words.time(change.at)}`
    return {
      sentences: [`A change of ${what}${by} moved the schedule past it while it was due.`],
      advice: 'Run it now if its work is missing.',
      commands: [`belfry jobs diff ${jobName}`, `belfry jobs run ${jobName}`],
      facts: changeFacts(change),
    }
  },
  restored: ({decidedAt, jobName}, _known, words) => ({
    sentences: [
      'The store was put back from a backup.',
      `Times before firing was resumed${decidedAt === null ? '' : ` at ${words.time(decidedAt)}`} never run.`,
    ],
    advice: 'Run it now if its work is missing.',
    commands: [`belfry jobs run ${jobName}`],
  }),
  quarantined: ({detail, jobName}, {related, spec}) => {
    const group = related?.group ?? launchNamedIn(detail)
    const dead = related === undefined ? [] : nodesThatDied(related)
    const nodes =
      dead.length === 0 ? 'Two nodes' : `${dead.length === 1 ? 'Node' : 'Nodes'} ${listed(dead)}`
    return {
      sentences: [
        `${nodes} died while executing ${group === null ? 'a launch of it' : `launch ${group}`}.`,
        'Belfry disabled the job.',
      ],
      advice: `Look at memory and kernel logs of ${dead[0] ?? 'the nodes'}, then enable the job.`,
      commands: spec?.disabled === false ? [] : [`belfry jobs enable ${jobName}`],
      facts: {fatal_launch: group, nodes: dead},
    }
  },
  schedule_unreadable: ({detail, jobName}) => ({
    sentences: [
      `Its planned times are undecided: ${detail === '' ? 'its schedule cannot be read' : detail}.`,
    ],
    advice: 'Correct the schedule, or upgrade all servers to one release.',
    commands: [`belfry jobs edit ${jobName}`],
  }),
  undecidable: ({detail, jobName}) => ({
    sentences: [`Its planned times cannot be decided${detail === '' ? '' : `: ${detail}`}.`],
    advice: 'Edit the job: a changed definition is tried at once.',
    commands: [`belfry jobs edit ${jobName}`],
  }),
  waits_for_open: (_row, {related}, words) =>
    related === undefined
      ? {sentences: ['It waits for the previous launch to end.']}
      : {
          sentences: [
            `It waits for launch ${related.group}, open since ${openOn(related, words)}.`,
          ],
          ...endOf(related),
          facts: {open_launch: related.group, nodes: nodesOf(related)},
        },
  behind: ({jobName}, {queuedMax}) => ({
    sentences: [
      `${queuedMax ?? 'Too many'} earlier launches of it waited for a free slot.`,
      'Its nodes start them more slowly than the schedule plans them.',
    ],
    advice: 'Give its nodes more slots, or plan fewer times.',
    commands: ['belfry members', `belfry jobs edit ${jobName}`],
  }),
  waits_for_node: (row, known, words) => {
    const since = row.storedAt === undefined ? '' : ` since ${words.time(row.storedAt)}`
    return {
      sentences: [`It waits for ${nodeWith(known)}${since}.`, ...nodeSentences(known, words)],
      ...nodeAdvice(known, row.jobName),
      facts: {...tagFacts(known), setting: 'target_wait'},
    }
  },
  parent_failed: (_row, {parent}, words) => {
    if (parent === undefined) return {sentences: ['Its parent did not succeed.']}
    const {jobName, group, status, executions} = parent
    const last = executions.findLast((execution) => execution.status !== 'succeeded')
    return {
      sentences: [
        `${jobName} ${status === null ? 'did not succeed' : END_WORDS[status]} in launch ${group}.`,
        ...(last === undefined ? [] : [executionSentence(last, words)]),
      ],
      ...explainParent(parent),
    }
  },
  parent_skipped: (_row, {parent}, words) =>
    parent === undefined
      ? {sentences: ['Its parent did not run.']}
      : {
          sentences: [
            `${parent.jobName} did not run (launch ${parent.group}).`,
            ...reasonTold(parent.launch, {}, words).sentences,
          ],
          ...explainParent(parent),
        },
}

/** The person who disabled the job, and how it is enabled. */
export function disabledTold(jobName: string, change: ChangeFacts | undefined, words: Words): Told {
  const from = change === undefined || change.address === '' ? '' : ` from ${change.address}`
  return {
    sentences: [
      change === undefined
        ? 'The job was disabled.'
        : `${actorName(change.actor)} disabled it at ${words.time(change.at)}${from}.`,
    ],
    advice: 'Enable the job: then it runs as planned.',
    commands: [`belfry jobs enable ${jobName}`],
    facts: {
      by: change?.actor ?? null,
      since_at: change === undefined ? null : formatTime(change.at),
    },
  }
}

/** Sentence that names who deleted the job, and from where; the time is that of the incident. */
export function deletedSentence({name, address}: Pick<Actor, 'name' | 'address'>): string {
  return `${actorName(name)} deleted it${address === '' ? '' : ` from ${address}`}.`
}

/** The sentences for a row without a launch; a code of another release stays as it is. */
export function reasonTold(launch: LaunchFacts, known: Around, words: Words): Told {
  const code = reasonCode(launch.reason)
  if (code === null) return {sentences: launch.reason === '' ? [] : [launch.reason]}
  const detail = launch.reason.slice(code.length).replace(/^:\s*/, '')
  return TELL[code]({...launch, detail}, known, words)
}

/** Number of the launch that a stored reason names; `null` = none. */
export function launchNamedIn(reason: string): number | null {
  const digits = /\blaunch ([1-9]\d{0,15})\b/.exec(reason)?.[1]
  return digits === undefined ? null : Number(digits)
}

/** A pause of firing that covers a planned time. */
export function pauseTold(pause: FiringPause, now: number, words: Words): Told {
  const {jobs, reason, pausedAt, pausedBy, until} = pause
  const end = until === null ? '' : ` until ${words.time(until)}`
  const why = reason === '' ? '' : `: "${reason}"`
  const glob = jobs === '*' ? '' : ` --jobs '${jobs}'`
  const what = jobs === '*' ? 'all jobs' : jobs
  return {
    sentences: [
      `Firing of ${what} was paused by ${pausedBy} from ${words.time(pausedAt)}${end}${why}.`,
    ],
    ...(isInForce(pause, now)
      ? {
          advice: 'End the pause: planned times after it run again.',
          commands: [`belfry unpause --firing${glob}`],
        }
      : {}),
    facts: {
      by: pausedBy,
      paused_jobs: jobs,
      since_at: formatTime(pausedAt),
      until_at: until === null ? null : formatTime(until),
    },
  }
}

/** The job's window, as in `from 02:00:00 until 04:00:00`. */
function windowOf({startsAt, expiresAt}: JobSpec, words: Words): string {
  const from = startsAt === null ? [] : [`from ${words.time(startsAt)}`]
  const until = expiresAt === null ? [] : [`until ${words.time(expiresAt)}`]
  return [...from, ...until].join(' ')
}

/** How late a planned time was decided, and why. */
function decidedLate(row: Row, span: ClusterSpan | undefined, words: Words): readonly string[] {
  const late = lengthFrom(row.scheduledAt, row.decidedAt)
  const decided =
    late === null || row.decidedAt === null
      ? []
      : [`It was decided at ${words.time(row.decidedAt)}, ${late} late.`]
  return span === undefined ? decided : [...decided, spanSentence(span, words)]
}

const SPAN_SENTENCES: Readonly<Record<string, (when: string) => string>> = {
  no_leader: (when) => `No server led ${when}.`,
  clock_held: (when) =>
    `Planned times were held back ${when}: the clock of the store had jumped ahead.`,
}

/** A span without decisions. */
function spanSentence({kind, from, until}: ClusterSpan, words: Words): string {
  const when = `from ${words.time(from)} to ${until === null ? 'now' : words.time(until)}`
  return (SPAN_SENTENCES[kind] ?? (() => `The cluster decided nothing ${when}.`))(when)
}

function spanFacts(span: ClusterSpan | undefined): NonNullable<Told['facts']> {
  if (span === undefined) return {}
  const {kind, from, until} = span
  return {
    span: kind,
    from_at: formatTime(from),
    until_at: until === null ? null : formatTime(until),
  }
}

function insteadOf({instead}: Around, words: Words): string {
  if (instead === undefined) return ''
  return `: launch ${instead.group}, planned for ${words.time(instead.scheduledAt)}`
}

function changeFacts(change: ChangeFacts | undefined): NonNullable<Told['facts']> {
  return change === undefined ? {} : {by: change.actor, changed_at: formatTime(change.at)}
}

/** `belfry` is Belfry itself. */
export function actorName(actor: string): string {
  return actor === 'belfry' ? capitalised(actor) : actor
}

/** Start of an open launch, and its nodes. */
function openOn(related: RelatedLaunch, words: Words): string {
  const {decidedAt, scheduledAt} = related.launch
  const nodes = nodesOf(related)
  return `${words.time(decidedAt ?? scheduledAt)}${nodes.length === 0 ? '' : ` on ${listed(nodes)}`}`
}

function nodesOf({executions}: RelatedLaunch): readonly string[] {
  return [...new Set(executions.map(({node}) => node))]
}

function nodesThatDied({executions}: RelatedLaunch): readonly string[] {
  return [...new Set(executions.filter(isNodeDeath).map(({node}) => node))]
}

/** How an open launch is ended. */
function endOf({jobName, group}: RelatedLaunch): Pick<Told, 'advice' | 'commands'> {
  return {
    advice: 'Wait for its end, or cancel it. A timeout limits later ones.',
    commands: [`belfry runs cancel --job ${jobName} --launch ${group}`],
  }
}

function explainParent({jobName, group}: RelatedLaunch): Pick<Told, 'commands' | 'facts'> {
  return {
    commands: [`belfry explain ${jobName} --launch ${group}`],
    facts: {parent: jobName, parent_launch: group},
  }
}
