/** Contract of the `Store` port: one file of cases for each subject, all run on every engine. */
import {describe} from 'node:test'
import {acrossJobsCases} from './across-jobs.ts'
import {auditCases} from './audit.ts'
import {caseWith, type Case} from './case.ts'
import {cancelCases} from './cancel.ts'
import {channelsCases} from './channels.ts'
import {chainCases} from './chain.ts'
import {claimCases} from './claim.ts'
import {countersCases} from './counters.ts'
import {clusterEventCases} from './cluster-events.ts'
import {disabledCases} from './disabled.ts'
import {deleteCases} from './delete.ts'
import {ephemeralCases} from './ephemeral.ts'
import {fanOutCases} from './fan-out.ts'
import {explainCases} from './explain.ts'
import {finishCases} from './finish.ts'
import {firingCases} from './firing.ts'
import {memberRetentionCases} from './member-retention.ts'
import {releaseClaimsCases} from './release-claims.ts'
import {historyCases} from './history.ts'
import {jobListCases} from './job-list.ts'
import {launchCases} from './launch.ts'
import {leaseCases} from './lease.ts'
import {memberCases} from './member.ts'
import {outputCases} from './output.ts'
import {problemCases} from './problems.ts'
import {pruneCases} from './prune.ts'
import {planningCases} from './planning.ts'
import {requestCases} from './request.ts'
import {lostCases} from './lost.ts'
import {restoreCases} from './restore.ts'
import {reassignCases} from './reassign.ts'
import {rulesCases} from './rules.ts'
import {submitCases} from './submit.ts'
import {concurrencyCases} from './concurrency.ts'
import {schedulingCases} from './scheduling.ts'
import {sessionsCases} from './sessions.ts'
import {settingsCases} from './settings.ts'
import {secretsCases} from './secrets.ts'
import {tokensCases} from './tokens.ts'
import {noticeCases} from './notices.ts'
import {sweepCases} from './sweeps.ts'
import type {OpenStore} from './scene.ts'

const SUBJECTS: readonly (readonly [string, (when: Case) => void])[] = [
  ['submit', submitCases],
  ['restore', restoreCases],
  ['delete', deleteCases],
  ['request', requestCases],
  ['lease', leaseCases],
  ['launch', launchCases],
  ['planning', planningCases],
  ['disabled', disabledCases],
  ['cluster events', clusterEventCases],
  ['firing', firingCases],
  ['reassign', reassignCases],
  ['claim', claimCases],
  ['concurrency', concurrencyCases],
  ['output', outputCases],
  ['finish', finishCases],
  ['fan-out', fanOutCases],
  ['chain', chainCases],
  ['ephemeral', ephemeralCases],
  ['cancel', cancelCases],
  ['lost', lostCases],
  ['release claims', releaseClaimsCases],
  ['counters', countersCases],
  ['prune', pruneCases],
  ['history', historyCases],
  ['explain', explainCases],
  ['job list', jobListCases],
  ['across jobs', acrossJobsCases],
  ['problems', problemCases],
  ['member', memberCases],
  ['member retention', memberRetentionCases],
  ['scheduling', schedulingCases],
  ['settings', settingsCases],
  ['tokens', tokensCases],
  ['audit', auditCases],
  ['secrets', secretsCases],
  ['channels of notices', channelsCases],
  ['rules of notices', rulesCases],
  ['sessions', sessionsCases],
  ['notices', noticeCases],
  ['sweeps of notices', sweepCases],
]

/** Runs every case on a fresh store from `open`, also those with many rows unless `hasManyRows` is false. */
export function exerciseStore(name: string, open: OpenStore, hasManyRows = true): void {
  describe(name, () => {
    for (const [subject, cases] of SUBJECTS)
      describe(subject, () => cases(caseWith(open, hasManyRows)))
  })
}
