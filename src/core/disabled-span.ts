/**
 * The launch row of a span in which a job was disabled. It is stored at the start, with a count of 0, and
 * names who disabled the job. The planned times that did not launch are counted by arithmetic when the span
 * ends, and at each read before that.
 */
import type {JobSpec} from './job.ts'
import {reasonText} from './launch-reasons.ts'
import type {LaunchRecord, StoredLaunch} from './launch-record.ts'
import {keepsPlan, nextPlanned, scheduleOf} from './next-time.ts'

/** The part of a job that has the planned times of a span. */
export interface SpanJob {
  readonly spec: JobSpec
  readonly anchorAt: number
  /** Times up to it have a row; `null` = none has. */
  readonly decidedUntil: number | null
  /** Last change of the definition. */
  readonly updatedAt: number
}

/** Effect of a changed definition on the span of its job. */
export function spanChange(
  existing: JobSpec | null,
  spec: JobSpec,
): {readonly closes: boolean; readonly opens: boolean} {
  const was = existing?.disabled ?? false
  const staysSame = was && spec.disabled && existing !== null && keepsPlan(existing, spec)
  return {closes: was && !staysSame, opens: spec.disabled && !staysSame}
}

/**
 * The row of a span that begins now; `null` = the job would have no planned times. `by`: name of the token.
 * Planned times up to now are decided otherwise, so the row begins after it.
 */
export function openSpan(
  {spec, anchorAt}: Pick<SpanJob, 'spec' | 'anchorAt'>,
  now: number,
  zone: string,
  by: string,
): StoredLaunch | null {
  if (nextPlanned({...spec, disabled: false}, anchorAt, now, zone) === null) return null
  const sentence = `by ${by} since ${new Date(now).toISOString()}`
  return {
    scheduledAt: now + 1,
    scheduledUntil: now + 1,
    count: 0,
    decision: 'skipped',
    reason: reasonText('disabled', sentence),
    targets: [],
  }
}

/** A row of a span that has not ended. */
export function isOpenSpan({cause, count}: Pick<LaunchRecord, 'cause' | 'count'>): boolean {
  return cause === 'schedule' && count === 0
}

/**
 * Last instant of an open span. That of a disabled job lasts until now. A server of the previous release
 * enables a job and leaves its span open: it ended at the last change of the job at the latest, and before
 * the next row, which begins at `nextRowAt` (`null` = there is none).
 */
export function spanEnd({spec, updatedAt}: SpanJob, nextRowAt: number | null, now: number): number {
  return spec.disabled ? now : Math.min(now, updatedAt, (nextRowAt ?? Infinity) - 1)
}

/** First and last planned time of an open span up to `end`, and their number; `null` = there was none. */
export function countSpan(
  {spec, anchorAt, decidedUntil}: SpanJob,
  {scheduledAt: from}: Pick<LaunchRecord, 'scheduledAt'>,
  end: number,
  zone: string,
): Pick<LaunchRecord, 'scheduledAt' | 'scheduledUntil' | 'count'> | null {
  // A clock that was set back has decided times after the start; an enabled job, those after the end.
  const decided = spec.disabled ? (decidedUntil ?? -Infinity) : -Infinity
  const after = Math.max(from - 1, decided)
  const first = nextPlanned({...spec, disabled: false}, anchorAt, after, zone)
  const schedule = scheduleOf(spec, anchorAt, zone)
  const until = Math.min(end + 1, spec.expiresAt ?? Infinity)
  if (first === null || schedule === null || first >= until) return null
  const scheduledUntil = schedule.previous(until) ?? first
  return {scheduledAt: first, scheduledUntil, count: schedule.count(first, until)}
}
