/**
 * Everything a caller can ask for, one function each. Whoever carries the asking (HTTP today) only
 * translates; whoever may not ask is turned away before it comes here. Refusals are thrown as `DomainError`.
 */
import {createBackup} from './backup.ts'
import {createMembers, createPause, createStatus} from './cluster.ts'
import type {OperationsDependencies} from './context.ts'
import {createHistory, createLaunches} from './executions.ts'
import {createFollow} from './follow.ts'
import {createJobs, createRuns} from './jobs.ts'
import {createPolicies} from './policies.ts'
import {createRestore} from './restore.ts'
import {createSchedules} from './schedules.ts'
import {StoreWithDeadlines} from './store-deadlines.ts'
import {createSubmit} from './submit.ts'

export function createOperations(dependencies: OperationsDependencies) {
  const store = new StoreWithDeadlines(dependencies.store, dependencies.clock)
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
