/**
 * Why jobs do not run as planned: firing is paused, or a launch waits for a node. The statement that reads a
 * job finds the launches, and counts the pauses: a store without any reads nothing more.
 */
import type {JobConditions, ShownJob} from '../../../core/job.ts'
import {pausedUntil} from '../../../core/firing.ts'
import {storedPauses} from './firing.ts'
import type {Query} from '../query.ts'
import {jobOf, type JobRow} from '../rows.ts'
import {FIRING_PAUSED} from '../cluster/settings.ts'

/** Counts; 0 = none of these is the cause of anything. */
export interface Pauses {
  readonly put_back: number
  readonly pauses: number
}

/** Columns of a select list. */
export const PAUSES = `
  (SELECT count(*) FROM meta WHERE key = '${FIRING_PAUSED}') AS put_back,
  (SELECT count(*) FROM firing_pauses) AS pauses`

export interface ShownRow extends JobRow {
  /** 1 = a launch waits for a node. */
  readonly waits_for_node: number
}

/** Column of a select list over jobs `j`. The first condition is evaluated once, not for each job. */
export const WAITS_FOR_NODE = `CASE
  WHEN EXISTS (SELECT 1 FROM launches WHERE decision = 'pending')
    AND EXISTS (SELECT 1 FROM launches w WHERE w.job_name = j.name AND w.open = 1
      AND w.job_id = j.id AND w.decision = 'pending' AND w.reason = 'waits_for_node')
  THEN 1 ELSE 0 END AS waits_for_node`

/** The jobs of these rows, with the conditions of those that have any. */
export function* shownJobs(
  rows: readonly ShownRow[],
  {put_back: putBack, pauses: stored}: Pauses,
): Query<readonly ShownJob[]> {
  const pauses = stored === 0 ? [] : yield* storedPauses()
  return rows.map((row) => {
    const job = jobOf(row)
    const until = putBack === 0 ? pausedUntil(pauses, job.spec.name) : Infinity
    const conditions: JobConditions = {
      isPaused: job.nextAt !== null && job.nextAt < until,
      waitsForNode: row.waits_for_node === 1,
    }
    return conditions.isPaused || conditions.waitsForNode ? {...job, conditions} : job
  })
}
