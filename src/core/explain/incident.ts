/**
 * Sentences and advice about an incident of a notice, from the facts of an explanation. They are those of
 * `belfry explain`; an incident whose launch is not kept any more has a short one. Never shows a code.
 */
import {roughDuration} from '../../lib/duration.ts'
import {shownZone} from '../schedule/instant.ts'
import {zoneOf} from '../schedule/parse.ts'
import type {Incident} from '../notice-incidents.ts'
import type {Condition} from '../notice-rule.ts'
import {causeWords} from '../notice-summary.ts'
import {explain, type ExplainContext, newestDisable} from './explain.ts'
import type {ExplainFacts, ExplainSubject, Told} from './facts.ts'
import {disabledTold, reasonTold} from './reasons.ts'
import {capitalised, counted, listed, type Words, wordsIn} from './words.ts'

export interface IncidentTold {
  readonly sentences: readonly string[]
  /** A sentence with the commands to try; `''` = none. */
  readonly advice: string
}

/** How the message sees the incident: as it opened, or as it closed. */
export type IncidentView = 'opened' | 'closed'

/** The launch that the sentences are about, and its execution. */
export function launchOfIncident(
  {launch, execution, closing}: Incident,
  view: IncidentView,
): Pick<Incident, 'launch' | 'execution'> {
  return view === 'closed' && closing !== null && closing.launch !== null
    ? {launch: closing.launch, execution: closing.execution}
    : {launch, execution}
}

/** The facts that `incidentTold` needs; `null` = none are stored. */
export function subjectOfIncident(incident: Incident, view: IncidentView): ExplainSubject | null {
  if (incident.job === '') return null
  const {launch} = launchOfIncident(incident, view)
  return launch === null ? {kind: 'now'} : {kind: 'launch', group: launch}
}

/**
 * `facts`: of `subjectOfIncident`, `null` = not stored, or not read. `dependents`: names of jobs that did not
 * run because of it.
 */
export function incidentTold(
  incident: Incident,
  view: IncidentView,
  facts: ExplainFacts | null,
  dependents: readonly string[],
  context: ExplainContext,
): IncidentTold {
  const words = wordsOf(facts)
  const told = view === 'closed' ? closedTold : openTold
  const {sentences, advice = '', commands = []} = told(incident, facts, words, context)
  const below =
    dependents.length === 0
      ? []
      : [`${counted(dependents.length, 'dependent')} did not run: ${listed(dependents)}.`]
  const steps = commands.length === 0 ? '' : `Try: ${commands.join('; ')}`
  return {
    sentences: [...sentences, ...below],
    advice: [advice, steps].filter((part) => part !== '').join(' '),
  }
}

/** Words in the zone of the job; in UTC with the day if nothing is known of it. */
function wordsOf(facts: ExplainFacts | null): Words {
  if (facts === null) return wordsIn('UTC', 0)
  const {job, settings, now} = facts
  const zone = job.spec.timezone === '' ? settings.defaultZone : job.spec.timezone
  return wordsIn(shownZone(zoneOf(job.spec.schedule, zone)), now)
}

type Tell = (
  incident: Incident,
  facts: ExplainFacts | null,
  words: Words,
  context: ExplainContext,
) => Told

const openTold: Tell = (incident, facts, words, context) => {
  const {condition, sentence, count, openedAt} = incident
  const own = sentence === '' ? [] : [sentence]
  const told = tellOf(incident, facts, words, context)
  const since = words.time(openedAt)
  const times =
    count > 1 && COUNTED[condition] !== undefined
      ? [`${counted(count, COUNTED[condition])} since ${since}.`]
      : []
  const sentences = [...own, ...told.sentences, ...times]
  return {...told, sentences: sentences.length === 0 ? [shortOf(incident)] : sentences}
}

/** Facts of an incident after the first, as people count them. */
const COUNTED: Readonly<Partial<Record<Condition, string>>> = {
  failed: 'failed launch',
  failed_times: 'failed launch',
  skipped: 'skipped row',
  missed: 'missed row',
}

function tellOf(
  {condition, launch, job}: Incident,
  facts: ExplainFacts | null,
  words: Words,
  context: ExplainContext,
): Told {
  if (facts === null) return {sentences: []}
  if (condition === 'disabled')
    return disabledTold(job, newestDisable(facts.changes, facts.now), words)
  const {chosen} = facts
  if (launch === null || chosen?.launch.group !== launch) return {sentences: []}
  if (condition !== 'quarantined') return explain(facts, {kind: 'launch', group: launch}, context)
  const {executions, status} = chosen
  const related = {group: launch, jobName: job, launch: chosen.launch, executions, status}
  const row = {...chosen.launch, reason: 'quarantined'}
  return reasonTold(row, {related, spec: facts.job.spec}, words)
}

const closedTold: Tell = (incident, facts, words, context) => {
  const {closing, openedAt, closedAt} = incident
  const chosen = facts?.chosen ?? null
  const isKept = chosen !== null && chosen.launch.group === closing?.launch
  const end = isKept
    ? explain(facts!, {kind: 'launch', group: chosen.launch.group}, context).sentences
    : [closing === null ? 'It is over.' : (CLOSED[closing.kind] ?? 'It is over.')]
  const length = closedAt === null ? '' : ` for ${roughDuration(closedAt - openedAt)}`
  return {sentences: [...end, `It was open${length} since ${words.time(openedAt)}.`]}
}

const CLOSED: Readonly<Record<string, string>> = {
  ended: 'The job succeeded.',
  launched: 'The job was launched.',
  enabled: 'The job was enabled.',
  deleted: 'The job was deleted.',
  created: 'There is a job of this name again.',
}

/** A sentence from the incident alone. */
function shortOf({condition, cause}: Incident): string {
  const state = SHORT[condition] ?? capitalised(condition.replaceAll('_', ' '))
  const why = causeWords(cause)
  return why === '' ? `${state}.` : `${state}: ${why}.`
}

const SHORT: Readonly<Partial<Record<Condition, string>>> = {
  failed: 'It failed',
  failed_times: 'It failed',
  skipped: 'It did not run',
  missed: 'It did not run',
  lost: 'It was lost',
  quarantined: 'Belfry disabled the job after two nodes died with it',
  disabled: 'The job was disabled',
  deleted: 'The job was deleted',
  output: 'It wrote output',
  succeeded: 'It succeeded',
  started: 'It was launched',
}
