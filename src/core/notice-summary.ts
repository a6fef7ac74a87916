/** Summaries of messages: one line with the jobs by cause, for subjects and phones. Pure. */
import type {Incident} from './notice-incidents.ts'
import type {MessageKind} from './notice-message.ts'

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

/** `load, index and 192 more: exit status 3; mail: node web-2 failed`. */
export function summaryOf(kind: MessageKind, incidents: readonly Incident[]): string {
  const state = STATES[kind]
  if (state !== undefined) return `${namesOf(incidents)}: ${state}`
  const open = incidents.filter((incident) => incident.state === 'open')
  const over = incidents.filter((incident) => incident.state !== 'open')
  // The message about an opening shows it as it was, also if it is over by now.
  if (kind === 'opened') return causesOf(incidents)
  const parts = [
    ...(open.length === 0 ? [] : [causesOf(open)]),
    ...(over.length === 0 ? [] : [`over: ${namesOf(over)}`]),
  ]
  return parts.join('; ')
}

function causesOf(incidents: readonly Incident[]): string {
  const byCause = Map.groupBy(incidents, ({cause, condition}) => cause || words(condition))
  const groups = [...byCause].toSorted(([, a], [, b]) => b.length - a.length)
  const shown = groups.slice(0, CAUSES_MAX).map(([cause, of]) => `${namesOf(of)}: ${words(cause)}`)
  const rest = groups.slice(CAUSES_MAX).reduce((sum, [, of]) => sum + of.length, 0)
  return [...shown, ...(rest === 0 ? [] : [`${rest} more`])].join('; ')
}

function namesOf(incidents: readonly Incident[]): string {
  const names = [...new Set(incidents.map(({subject}) => subject))]
  const more = names.length - NAMES_MAX
  const shown = names.slice(0, NAMES_MAX).join(', ')
  return more > 0 ? `${shown} and ${more} more` : shown
}

/** No code is shown. */
function words(code: string): string {
  return code.replaceAll('_', ' ')
}
