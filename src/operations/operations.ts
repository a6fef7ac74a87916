/**
 * Everything a caller can ask for, one function each. Whoever carries the asking (HTTP today) only
 * translates; whoever may not ask is turned away before it comes here. Refusals are thrown as `DomainError`.
 */
import type {StringMap} from '../core/job.ts'
import {createBackup} from './backup.ts'
import {createMembers, createPause, createStatus} from './cluster.ts'
import type {OperationsDependencies} from './context.ts'
import {createHistory, createLaunches} from './executions.ts'
import {createFollow} from './follow.ts'
import {createJobs, createRuns} from './jobs.ts'
import {createPolicies} from './policies.ts'
import {createRestore} from './restore.ts'
import {createSchedules} from './schedules.ts'
import {readWithDeadline, withDeadlines} from './store-deadlines.ts'
import {createSubmit} from './submit.ts'

export function createOperations(given: OperationsDependencies) {
  const {clock} = given
  const store = withDeadlines(given.store, clock)
  // It reads the store too.
  const hasTarget = (tags: StringMap) => readWithDeadline(clock, () => given.hasTarget(tags))
  const dependencies = {...given, hasTarget}
  return {
    submit: createSubmit(dependencies, store),
    ...createJobs(dependencies, store),
    ...createRuns(dependencies, store),
    ...createHistory(store),
    ...createLaunches(store),
    ...createFollow(dependencies, store),
    ...createMembers(dependencies, store),
    ...createPolicies(store),
    ...createSchedules(dependencies, store),
    ...createPause(dependencies, store),
    ...createRestore(dependencies, store),
    ...createBackup(dependencies, store),
    ...createStatus(dependencies, store),
  }
}

export type Operations = ReturnType<typeof createOperations>
