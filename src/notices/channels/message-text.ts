/**
 * Words that all channels share: the title of a message, the lines of an incident, and what is left out
 * when a receiver takes less. Texts come from jobs and their output, so all of them are cleaned once,
 * before any channel writes them in its own form.
 */
import {stripVTControlCharacters} from 'node:util'
import {
  INCIDENTS_MAX,
  type MessageKind,
  type NoticeIncident,
  type NoticeMessage,
} from '../../core/notice-message.ts'

const SENTENCES_MAX = 10
const LINE_LENGTH_MAX = 500
const OUTPUT_LENGTH_MAX = 4_000
const URL_LENGTH_MAX = 1_000

/** Controls, and characters that reorder, hide or break text. Tabs and line ends of output stay. */
const UNSAFE = /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/gu
const UNSAFE_IN_OUTPUT = /(?![\t\n])[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/gu

/** Summaries of the other kinds say it. */
const PREFIXES: Readonly<Record<MessageKind, string>> = {
  opened: '',
  closed: '',
  reminder: '',
  digest: 'Meanwhile: ',
  flapping: '',
  output: '',
  started: '',
  succeeded: '',
  alive: 'Alive: ',
  test: 'Test: ',
}

/** Title in one line, such as `Meanwhile: load failed`. */
export function titleOf({kind, summary}: Pick<NoticeMessage, 'kind' | 'summary'>): string {
  return `${PREFIXES[kind]}${summary}`
}

/** Origin of a message, for its last line. */
export function originOf({severity, rule, cluster}: NoticeMessage): string {
  return `${severity}, rule ${rule}, cluster ${cluster}`
}

/** The sentences and the advice of an incident, after its job. */
export function linesOf({job, closedAt, sentences, advice}: NoticeIncident): readonly string[] {
  const [first = closedAt === null ? 'It is open.' : 'It is over.', ...others] = sentences
  return [job === '' ? first : `${job}: ${first}`, ...others, ...(advice === '' ? [] : [advice])]
}

/** `''` = none. */
export function moreOf({more}: Pick<NoticeMessage, 'more'>): string {
  return more === 0 ? '' : `and ${more} more`
}

/** The message without control characters, within bounds. It may be hostile: jobs name themselves. */
export function cleanMessage(message: NoticeMessage): NoticeMessage {
  const {incidents, more} = withIncidents(message, INCIDENTS_MAX)
  return {
    ...message,
    rule: cleanLine(message.rule),
    cluster: cleanLine(message.cluster),
    summary: cleanLine(message.summary) || 'No summary',
    incidents: incidents.map(cleanIncident),
    more,
  }
}

function cleanIncident(incident: NoticeIncident): NoticeIncident {
  const output = stripVTControlCharacters(incident.outputTail.toWellFormed())
    .replaceAll('\r\n', '\n')
    .replaceAll(UNSAFE_IN_OUTPUT, ' ')
  return {
    ...incident,
    job: cleanLine(incident.job),
    sentences: incident.sentences.slice(0, SENTENCES_MAX).map(cleanLine),
    advice: cleanLine(incident.advice),
    outputTail: keepEnd(output, OUTPUT_LENGTH_MAX),
    url: linkOf(incident.url),
  }
}

/** `''` if it is no link that a browser opens with http. */
function linkOf(text: string): string {
  const url = URL.parse(text)
  const isLink = url !== null && /^https?:$/.test(url.protocol) && url.username === ''
  return isLink && url.href.length <= URL_LENGTH_MAX ? url.href : ''
}

function cleanLine(text: string): string {
  const line = stripVTControlCharacters(text.toWellFormed()).replaceAll(UNSAFE, ' ').trim()
  return keepStart(line, LINE_LENGTH_MAX)
}

/** Cuts a text to `max` characters (UTF-16), the last of which says so. */
export function keepStart(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max - 1).replace(/[\ud800-\udbff]$/, '')}…`
}

/** The end of a text, within `max` characters with the note about what is missing. */
export function keepEnd(text: string, max: number): string {
  if (text.length <= max) return text
  const note = (left: number) => `… ${left} characters before this are left out\n`
  const room = Math.max(0, max - note(text.length).length)
  const end = room === 0 ? '' : text.slice(-room).replace(/^[\udc00-\udfff]/, '')
  return `${note(text.length - end.length)}${end}`
}

/**
 * Breaks addresses apart with an invisible character: mail programs and phones make links of them, and a
 * job may print any.
 */
export function withoutLinks(text: string): string {
  return text.replaceAll(/:\/\/|www\./gi, (match) => `${match[0]}\u200b${match.slice(1)}`)
}

/** Output lengths that are tried, from the best; then numbers of incidents with one sentence each. */
const OUTPUT_STEPS = [1_500, 500, 200, 0]
const INCIDENT_STEPS = [20, 10, 5, 2, 1, 0]
const BRIEF_LENGTH_MAX = 200

/**
 * Renders a message so that its size is at most `max`: first with less output, then with fewer
 * incidents. Notes in the message say what is left out.
 */
export function fitted<Rendered>(
  message: NoticeMessage,
  max: number,
  render: (message: NoticeMessage) => Rendered,
  sizeOf: (rendered: Rendered) => number,
): Rendered {
  let rendered = render(message)
  for (const smaller of smallerForms(message)) {
    if (sizeOf(rendered) <= max) break
    rendered = render(smaller)
  }
  return rendered
}

function* smallerForms(message: NoticeMessage): Iterable<NoticeMessage> {
  for (const length of OUTPUT_STEPS) yield withOutput(message, length)
  for (const count of INCIDENT_STEPS) yield withIncidents(briefly(message), count)
}

function withOutput(message: NoticeMessage, length: number): NoticeMessage {
  const incidents = message.incidents.map((incident) => ({
    ...incident,
    outputTail: length === 0 ? '' : keepEnd(incident.outputTail, length),
  }))
  return {...message, incidents}
}

function briefly(message: NoticeMessage): NoticeMessage {
  const incidents = message.incidents.map((incident) => ({
    ...incident,
    sentences: incident.sentences.slice(0, 1).map((each) => keepStart(each, BRIEF_LENGTH_MAX)),
    advice: '',
    outputTail: '',
  }))
  return {...message, incidents}
}

function withIncidents(message: NoticeMessage, count: number): NoticeMessage {
  const incidents = message.incidents.slice(0, count)
  return {...message, incidents, more: message.more + message.incidents.length - incidents.length}
}
