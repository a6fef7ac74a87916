/**
 * Every write step by name: what the writer of an engine can be asked to run, each a transaction of its
 * own.
 */
import type {Step} from './query.ts'
import type {InputOf, ResultOf} from './reads.ts'
import {applyLaunches} from './launches.ts'
import {claim} from './claims.ts'
import {deleteJob, resetHistory} from './steps-delete.ts'
import {cancelExecution, finish, rescue} from './finish.ts'
import {forgetMembers, removeMember} from './steps-forget.ts'
import {giveBack} from './steps-give-back.ts'
import {acquireLease, renewLease, resignLease, vacateLease} from './lease.ts'
import {beat, failMember, join} from './members.ts'
import {agreeTimezone, establish, probe, setPaused} from './settings.ts'
import {appendOutput} from './output.ts'
import {deletePolicy, putPolicy} from './steps-policy.ts'
import {prune} from './prune.ts'
import {restore} from './restore-jobs.ts'
import {requestRun} from './steps-run-request.ts'
import {endStrays} from './steps-stray-end.ts'
import {applyMoves} from './reassign.ts'
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
  endStrays,
  rescue,
  giveBack,
  prune,
  claim,
  appendOutput,
  finish,
  beat,
  join,
  failMember,
  forgetMembers,
  removeMember,
  cancelExecution,
  putPolicy,
  deletePolicy,
  establish,
  agreeTimezone,
  probe,
}

type Writes = typeof WRITES
export type WriteName = keyof Writes
export type WriteInput<Name extends WriteName> = InputOf<Writes[Name]>
export type WriteResult<Name extends WriteName> = ResultOf<Writes[Name]>

/** The step, for a driver that got its name as data; the facade is what keeps name and input together. */
export function writeStep(
  name: WriteName,
): (tx: Transaction, ...input: unknown[]) => Step<unknown> {
  // The steps take different inputs; which fits is checked where name and input are still together.
  return WRITES[name] as unknown as (tx: Transaction, ...input: unknown[]) => Step<unknown>
}
