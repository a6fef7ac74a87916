/**
 * The job: its spec (what the user wrote, normalised) and its state (results of its runs). Decisions about
 * jobs are in the files named after the step that makes them.
 */

import {parseLength} from '../lib/duration.ts'
import type {JobSpec} from './job-fields.ts'

export type {JobSpec, StringMap} from './job-fields.ts'
export type CatchUp = JobSpec['catchUp']

/** Why a job does not run as planned, besides its definition. */
export interface JobConditions {
  /** Firing is paused, so that `next` will be skipped. */
  readonly isPaused: boolean
  /** A launch waits for a node that matches the tags. */
  readonly waitsForNode: boolean
}

/** A job as a reader sees it. Absent conditions = it runs as planned. */
export type ShownJob = JobRecord & {readonly conditions?: JobConditions}

/** `''` = no launch of the job has finished yet. */
export type JobStatus = '' | 'success' | 'failed' | 'partially_failed'

/**
 * True when a node that is disconnected from the cluster ends its runs of the job: by `on_disconnect`, or
 * because `forbid` must not overlap with a run on another node.
 */
export function endsWhenDisconnected({
  onDisconnect,
  concurrency,
}: Pick<JobSpec, 'onDisconnect' | 'concurrency'>): boolean {
  return onDisconnect === 'stop' || (onDisconnect === '' && concurrency === 'forbid')
}

/** Oldest planned time that still runs, as an age in whole ms. Throws if the stored text is no duration. */
export function maxLatenessMs({maxLateness}: Pick<JobSpec, 'maxLateness'>): number {
  const ms = parseLength(maxLateness)
  if (ms === null) throw new Error(`max_lateness must be a duration: it is "${maxLateness}"`)
  return ms
}

/** Counts of the finished executions since the last reset or restore. */
export interface JobCounters {
  readonly successCount: number
  readonly errorCount: number
  readonly lastSuccess: number | null
  readonly lastError: number | null
}

/** The part of a job that decides its planned times. */
export type PlannedJob = Pick<
  JobRecord,
  'id' | 'spec' | 'revision' | 'nextAt' | 'decidedUntil' | 'anchorAt'
>

export interface JobRecord {
  /** Internal and never reused: a job created again under the same name gets a new id. */
  readonly id: number
  readonly spec: JobSpec
  /** Incremented by each accepted change of the definition; the first part of the `ETag`. */
  readonly revision: number
  /** The next undecided planned time; `null` when nothing is planned. */
  readonly nextAt: number | null
  /** Newest decided planned time; `next` is always later. */
  readonly decidedUntil: number | null
  /** Phase of `@every`: `startsAt`, or the second the schedule was accepted. */
  readonly anchorAt: number
  readonly counters: JobCounters
  readonly status: JobStatus
  readonly createdAt: number
  readonly updatedAt: number
  /** Names of the jobs whose parent is this one, sorted. */
  readonly dependentJobs: readonly string[]
}
