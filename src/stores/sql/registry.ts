/** Every step by name: what a driver can be asked to run. Writes run one after another; reads see one snapshot. */
import type {Step} from './command.ts'
import {applyLaunches} from './steps-apply-launches.ts'
import {cancelled, claim, verifyClaims} from './steps-claim.ts'
import {deleteJob, resetHistory} from './steps-delete.ts'
import {cancelExecution, finish, rescue} from './steps-finish.ts'
import {
  busy,
  execution,
  executions,
  launch,
  launches,
  outputSince,
  statistics,
  totals,
} from './steps-history.ts'
import {job, jobs} from './steps-job-list.ts'
import {candidates, loadDue, loadRequests} from './steps-launch.ts'
import {acquireLease, leader, renewLease, resignLease, vacateLease} from './steps-lease.ts'
import {beat, join, members, setMemberStatus} from './steps-member.ts'
import {agreeTimezone, establish, identity, paused, probe, setPaused} from './steps-meta.ts'
import {appendOutput} from './steps-output.ts'
import {deletePolicy, policies, policy, putPolicy} from './steps-policy.ts'
import {prune} from './steps-prune.ts'
import {restore} from './steps-restore.ts'
import {requestRun} from './steps-run-request.ts'
import {applyMoves, loadStray} from './steps-stray.ts'
import {submit, toggle} from './steps-submit.ts'
import type {Transaction} from './transaction.ts'

export const WRITES = {
  submit,
  restore,
  toggle,
  deleteJob,
  requestRun,
  resetHistory,
  setPaused,
  acquireLease,
  renewLease,
  resignLease,
  vacateLease,
  applyLaunches,
  applyMoves,
  rescue,
  prune,
  claim,
  appendOutput,
  finish,
  beat,
  join,
  setMemberStatus,
  cancelExecution,
  putPolicy,
  deletePolicy,
  establish,
  agreeTimezone,
  probe,
}

export const READS = {
  job,
  jobs,
  paused,
  executions,
  execution,
  outputSince,
  busy,
  launches,
  launch,
  statistics,
  totals,
  leader,
  loadDue,
  loadRequests,
  candidates,
  loadStray,
  verifyClaims,
  cancelled,
  members,
  policies,
  policy,
  identity,
}

type Writes = typeof WRITES
type Reads = typeof READS
export type WriteName = keyof Writes
export type ReadName = keyof Reads

type Tail<F> = F extends (tx: Transaction, ...input: infer Input) => unknown ? Input : never
type ResultOf<F> = F extends (tx: Transaction, ...input: never[]) => Step<infer Result>
  ? Result
  : never

export type WriteInput<Name extends WriteName> = Tail<Writes[Name]>
export type WriteResult<Name extends WriteName> = ResultOf<Writes[Name]>
export type ReadInput<Name extends ReadName> = Tail<Reads[Name]>
export type ReadResult<Name extends ReadName> = ResultOf<Reads[Name]>

/** A step by name, for a driver that got the name as data; the facade is what keeps name and input together. */
export type AnyStep = (tx: Transaction, ...input: unknown[]) => Step<unknown>

export function writeStep(name: WriteName): AnyStep {
  return WRITES[name] as unknown as AnyStep
}

export function readStep(name: ReadName): AnyStep {
  return READS[name] as unknown as AnyStep
}
