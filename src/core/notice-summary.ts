/** Summaries of messages: one line with the jobs by cause, for subjects and phones. Pure. */
import type {Incident} from './notice-incidents.ts'
import type {Reason} from './launch-reasons.ts'
import type {MessageKind} from './notice-message.ts'
import type {Condition} from './notice-rule.ts'
import {CLUSTER_SUBJECT} from './notice-sweeps.ts'

/** Jobs by name in a summary; the others are counted. */
const NAMES_MAX = 3
/** Causes in a summary. */
const CAUSES_MAX = 2

const STATES: Readonly<Partial<Record<MessageKind, string>>> = {
  closed: 'over',
  reminder: 'still open',
  flapping: 'opens and closes often',
  started: 'started',
  succeeded: 'succeeded',
  output: 'wrote output',
}

/** Conditions as the verb after the names of jobs. */
const HAPPENED: Readonly<Partial<Record<Condition, string>>> = {
  failed: 'failed',
  failed_times: 'failed often',
  skipped: 'did not run',
  missed: 'did not run',
  lost: 'lost',
  quarantined: 'disabled by Belfry',
  disabled: 'disabled',
  deleted: 'deleted',
}

/** Causes that say no more than the condition. */
const SAYS_NOTHING: readonly string[] = ['disabled', 'deleted', 'quarantined']

/** Reasons of rows that did not run; others are shown as words. */
const REASONS: Readonly<Partial<Record<Reason, string>>> = {
  forbid: 'the previous launch was open',
  no_target: 'no node took it',
  behind: 'too many launches waited for a slot',
  undecidable: 'its planned times cannot be decided',
  schedule_unreadable: 'its schedule cannot be read',
  parent_failed: 'its parent failed',
  parent_skipped: 'its parent did not run',
  max_lateness: 'it was too late',
  catch_up_skip: 'it was too late',
  catch_up_latest: 'it was too late',
  catch_up_cap: 'it was too late',
  restored: 'the store was put back from a backup',
  firing_paused: 'firing was paused',
}

/**
 * `load, index and 192 more failed: exit code 3; 2 dependents did not run`. `dependents`: jobs that did not
 * run because of the incidents.
 */
export function summaryOf(
  kind: MessageKind,
  incidents: readonly Incident[],
  dependents = 0,
): string {
  const state = STATES[kind]
  if (state !== undefined) return `${namesOf(incidents.map(byCause))}: ${state}`
  const open = incidents.filter((incident) => incident.state === 'open')
  const over = incidents.filter((incident) => incident.state !== 'open')
  const below =
    dependents === 0 ? [] : [`${dependents} dependent${dependents === 1 ? '' : 's'} did not run`]
  // The message about an opening shows it as it was, also if it is over by now.
  if (kind === 'opened') return [...causesOf(incidents), ...below].join('; ')
  return [
    ...causesOf(open),
    ...below,
    ...(over.length === 0 ? [] : [`over: ${namesOf(over)}`]),
  ].join('; ')
}

/** The cluster has many conditions: "cluster: over" says nothing of which. */
function byCause(incident: Incident): Incident {
  const cause = causeWords(incident.cause)
  return incident.subject === CLUSTER_SUBJECT && cause !== ''
    ? {...incident, subject: cause}
    : incident
}

function causesOf(incidents: readonly Incident[]): readonly string[] {
  const byCause = Map.groupBy(incidents, causeOf)
  const groups = [...byCause].toSorted(([, a], [, b]) => b.length - a.length)
  const shown = groups.slice(0, CAUSES_MAX).map(([cause, of]) => `${namesOf(of)}${cause}`)
  const rest = groups.slice(CAUSES_MAX).reduce((sum, [, of]) => sum + of.length, 0)
  return [...shown, ...(rest === 0 ? [] : [`${rest} more`])]
}

/** The words after the names; equal for incidents that are shown together. */
function causeOf({condition, cause}: Incident): string {
  const happened = HAPPENED[condition]
  const why = causeWords(cause)
  if (happened === undefined) return `: ${why === '' ? words(condition) : why}`
  return why === '' ? ` ${happened}` : ` ${happened}: ${why}`
}

/** A cause in words; `''` = it says no more than the condition. */
export function causeWords(cause: string): string {
  if (SAYS_NOTHING.includes(cause)) return ''
  const reasons: Readonly<Record<string, string>> = REASONS
  return Object.hasOwn(reasons, cause) ? reasons[cause]! : words(cause)
}

function namesOf(incidents: readonly Incident[]): string {
  const names = [...new Set(incidents.map(({subject}) => subject))]
  const more = names.length - NAMES_MAX
  const shown = names.slice(0, NAMES_MAX).join(', ')
  return more > 0 ? `${shown} and ${more} more` : shown
}

/** No code is shown; texts with blanks are none. */
function words(code: string): string {
  return code.includes(' ') ? code : code.replaceAll('_', ' ')
}
