/** The subject of an explanation: the span of time that a text means, and the launch of it to explain. */
import {DATE, instantOf} from '../schedule/instant.ts'
import type {LaunchRecord} from '../launch-record.ts'
import type {ExplainSubject} from './facts.ts'

/** A span of time: `until` is exclusive. */
export interface Span {
  readonly from: number
  readonly until: number
}

const SECOND_MS = 1_000
const MINUTE_MS = 60_000

/** A date is that day, a time without seconds that minute, another time its second. */
export function spanOf(text: string, zone: string): Span | null {
  const from = instantOf(text, zone)
  if (from === null) return null
  if (DATE.test(text)) {
    const next = Temporal.PlainDate.from(text).add({days: 1}).toZonedDateTime(zone)
    return {from, until: next.epochMilliseconds}
  }
  return {from, until: from + (from % MINUTE_MS === 0 ? MINUTE_MS : SECOND_MS)}
}

/**
 * The launch to explain, of `rows` newest first: of a day the newest that did not run, then the newest that
 * failed; of another time the first planned one.
 */
export function chooseLaunch(
  rows: readonly LaunchRecord[],
  subject: ExplainSubject,
): LaunchRecord | null {
  const isDay = subject.kind === 'at' && DATE.test(subject.text)
  const bad = isDay
    ? (rows.find(({decision}) => decision !== 'launched') ??
      rows.find(({status}) => status === 'failed' || status === 'partially_failed'))
    : rows.findLast(({cause}) => cause === 'schedule')
  return bad ?? rows[0] ?? null
}
