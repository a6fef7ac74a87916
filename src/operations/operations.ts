/**
 * All operations of the API, one function each. HTTP only translates requests into these calls, after
 * authentication. An operation rejects a request with a `DomainError`.
 */
import {createAudit, createRevisions} from './audit.ts'
import {createBackup} from './backup.ts'
import {createCancellations} from './cancel.ts'
import {createMembers, createPause, createStatus} from './cluster.ts'
import type {OperationsContext, OperationsDependencies} from './context.ts'
import {createHistory, createLaunches} from './executions.ts'
import {createDryRun} from './dry-run.ts'
import {createExplain} from './explain.ts'
import {createFiring} from './firing.ts'
import {createFollow} from './follow.ts'
import {createJobs, createRuns} from './jobs.ts'
import {createChannels, createChannelTests} from './channels.ts'
import {createNodes} from './nodes.ts'
import {createNotices} from './notices.ts'
import {createPatch} from './patch.ts'
import {createPolicies} from './policies.ts'
import {createProblems} from './problems.ts'
import {createRestore} from './restore.ts'
import {createMutes, createRules} from './rules.ts'
import {RunLimit} from './run-limit.ts'
import {createSchedules} from './schedules.ts'
import {createSecrets} from './secrets.ts'
import {createSessions} from './sessions.ts'
import {createSettings} from './settings.ts'
import {createSubmit} from './submit.ts'
import {createTokens} from './tokens.ts'

export function createOperations(dependencies: OperationsDependencies) {
  const {clock, settings} = dependencies
  const context: OperationsContext = {
    ...dependencies,
    runLimit: new RunLimit(clock, settings.runsPerMinute),
  }
  const submits = createSubmit(context)
  const firing = createFiring(context)
  const dryRuns = createDryRun(context)
  return {
    ...submits,
    ...dryRuns,
    ...createPatch(context, submits.submit, dryRuns.dryRun),
    ...createRevisions(context, submits.submit),
    ...createJobs(context),
    ...createRuns(context),
    ...createCancellations(context),
    ...createHistory(context),
    ...createLaunches(context),
    ...createExplain(context),
    ...createProblems(context),
    ...createFollow(context),
    ...createMembers(context),
    ...createNodes(context),
    ...createPolicies(context),
    ...createTokens(context),
    ...createSecrets(context),
    ...createChannels(context),
    ...createChannelTests(context),
    ...createRules(context),
    ...createMutes(context),
    ...createNotices(context),
    ...createSessions(context),
    ...createAudit(context),
    ...createSchedules(context),
    ...createPause(context),
    ...firing,
    ...createSettings(context, firing.firing),
    ...createRestore(context),
    ...createBackup(context),
    ...createStatus(context),
  }
}

export type Operations = ReturnType<typeof createOperations>
