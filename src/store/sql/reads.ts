/**
 * Every read step by name: each sees one snapshot. Apart from the writes, so that a writer need not load
 * them.
 */
import type {Step} from './query.ts'
import {earlierRun, earlierSubmit} from './idempotency.ts'
import {cancelled, standingClaims, verifyClaims} from './claims.ts'
import {
  busy,
  execution,
  executions,
  launch,
  launches,
  outputSince,
  statistics,
  totals,
} from './history.ts'
import {job, jobs} from './job-list.ts'
import {candidates, loadDue, loadRequests} from './steps-launch.ts'
import {heldLease, leader} from './lease.ts'
import {members} from './members.ts'
import {identity, paused} from './settings.ts'
import {policies, policy} from './steps-policy.ts'
import {loadStray} from './reassign.ts'
import type {Transaction} from './transaction.ts'

export const READS = {
  job,
  jobs,
  paused,
  earlierSubmit,
  earlierRun,
  executions,
  execution,
  outputSince,
  busy,
  launches,
  launch,
  statistics,
  totals,
  leader,
  heldLease,
  loadDue,
  loadRequests,
  candidates,
  loadStray,
  verifyClaims,
  cancelled,
  standingClaims,
  members,
  policies,
  policy,
  identity,
}

/** What a step takes besides its transaction. */
export type InputOf<F> = F extends (tx: Transaction, ...input: infer Input) => unknown
  ? Input
  : never
export type ResultOf<F> = F extends (tx: Transaction, ...input: never[]) => Step<infer Result>
  ? Result
  : never

type Reads = typeof READS
export type ReadName = keyof Reads
export type ReadInput<Name extends ReadName> = InputOf<Reads[Name]>
export type ReadResult<Name extends ReadName> = ResultOf<Reads[Name]>

/** The step, for a driver that got its name as data; the facade is what keeps name and input together. */
export function readStep(name: ReadName): (tx: Transaction, ...input: unknown[]) => Step<unknown> {
  // The steps take different inputs; which fits is checked where name and input are still together.
  return READS[name] as unknown as (tx: Transaction, ...input: unknown[]) => Step<unknown>
}
