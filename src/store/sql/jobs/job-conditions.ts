/**
 * Why jobs do not run as planned: firing is paused, or a launch waits for a node. The statement that reads a
 * job says in `DISTURBANCES` whether there is anything to find: a store without any reads nothing more.
 */
import type {JobConditions, JobRecord, ShownJob} from '../../../core/job.ts'
import {pausedUntil} from '../../../core/firing.ts'
import {storedPauses} from './firing.ts'
import {oneEach, type Query} from '../query.ts'
import {FIRING_PAUSED} from '../cluster/settings.ts'

/** Counts; 0 = none of these is the cause of anything. */
export interface Disturbances {
  readonly put_back: number
  readonly pauses: number
  /** At most 1: there may be many. */
  readonly undecided: number
}

/** Columns of a select list. */
export const DISTURBANCES = `
  (SELECT count(*) FROM meta WHERE key = '${FIRING_PAUSED}') AS put_back,
  (SELECT count(*) FROM firing_pauses) AS pauses,
  (SELECT count(*) FROM
    (SELECT 1 FROM launches WHERE decision = 'pending' LIMIT 1) p) AS undecided`

const WAITS_FOR_NODE = `SELECT group_id FROM launches WHERE job_name = ? AND open = 1 AND job_id = ?
  AND decision = 'pending' AND reason = 'waits_for_node' LIMIT 1`

/** The jobs in the same order, with the conditions of those that have any. */
export function* withConditions(
  jobs: readonly JobRecord[],
  {put_back: putBack, pauses: stored, undecided}: Disturbances,
): Query<readonly ShownJob[]> {
  if (putBack + stored + undecided === 0) return jobs
  const pauses = stored === 0 ? [] : yield* storedPauses()
  const waiting = yield* oneEach(
    WAITS_FOR_NODE,
    undecided === 0 ? [] : jobs.map(({id, spec}) => [spec.name, id]),
  )
  return jobs.map((job, index) => {
    const until = putBack === 0 ? pausedUntil(pauses, job.spec.name) : Infinity
    const conditions: JobConditions = {
      isPaused: job.nextAt !== null && job.nextAt < until,
      waitsForNode: (waiting[index] ?? null) !== null,
    }
    return conditions.isPaused || conditions.waitsForNode ? {...job, conditions} : job
  })
}
