/** The contract of the `Store` port as cases, one file a step; every engine runs all of them. */
import {describe} from 'node:test'
import {caseWith, type Case} from './case.ts'
import {cancelCases} from './cancel.ts'
import {chainCases} from './chain.ts'
import {claimCases} from './claim.ts'
import {countersCases} from './counters.ts'
import {deleteCases} from './delete.ts'
import {ephemeralCases} from './ephemeral.ts'
import {finishCases} from './finish.ts'
import {forgetCases} from './member-retention.ts'
import {giveBackCases} from './release-claims.ts'
import {historyCases} from './history.ts'
import {jobListCases} from './job-list.ts'
import {launchCases} from './launch.ts'
import {leaseCases} from './lease.ts'
import {memberCases} from './member.ts'
import {outputCases} from './output.ts'
import {pruneCases} from './prune.ts'
import {requestCases} from './request.ts'
import {rescueCases} from './lost.ts'
import {restoreCases} from './restore.ts'
import {strayCases} from './reassign.ts'
import {submitCases} from './submit.ts'
import {togetherCases} from './concurrency.ts'
import {wholeCases} from './settings.ts'
import type {OpenStore} from './scene.ts'

const STEPS: readonly (readonly [string, (when: Case) => void])[] = [
  ['submit', submitCases],
  ['restore', restoreCases],
  ['delete', deleteCases],
  ['request', requestCases],
  ['lease', leaseCases],
  ['launch', launchCases],
  ['stray', strayCases],
  ['claim', claimCases],
  ['together', togetherCases],
  ['output', outputCases],
  ['finish', finishCases],
  ['chain', chainCases],
  ['ephemeral', ephemeralCases],
  ['cancel', cancelCases],
  ['rescue', rescueCases],
  ['give back', giveBackCases],
  ['counters', countersCases],
  ['prune', pruneCases],
  ['history', historyCases],
  ['job list', jobListCases],
  ['members', memberCases],
  ['forget', forgetCases],
  ['the whole', wholeCases],
]

/** Runs every case against stores made by `open`. */
export function exerciseStore(name: string, open: OpenStore): void {
  describe(name, () => {
    for (const [step, cases] of STEPS) describe(step, () => cases(caseWith(open)))
  })
}
