/**
 * The `Store` port over whatever runs its steps: each method is one named step, so an engine is only a way
 * to run them.
 */
import type {FinishItem, OutputAppend} from '../../ports/node-store.ts'
import type {Store} from '../../ports/store.ts'
import {cancelled, claim, releaseClaims, activeClaims, verifyClaims} from './claims.ts'
import {deleteJob, resetHistory} from './delete-job.ts'
import {cancelExecution, finish, rescue} from './finish.ts'
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
import {earlierRun, earlierSubmit, submit, toggle} from './jobs.ts'
import {applyLaunches, candidates, loadDue, loadRequests, requestRun} from './launches.ts'
import {acquireLease, heldLease, leader, renewLease, resignLease, vacateLease} from './lease.ts'
import {beat, failMember, pruneMembers, join, members, removeMember} from './members.ts'
import {appendOutput} from './output.ts'
import {prune} from './prune.ts'
import type {Query, Transaction} from './query.ts'
import {applyReassignments, endStuck, loadStuck} from './reassign.ts'
import {restore} from './restore-jobs.ts'
import {
  agreeTimezone,
  deletePolicy,
  establish,
  identity,
  paused,
  policies,
  policy,
  probe,
  putPolicy,
  setPaused,
} from './settings.ts'

export interface Runner {
  /** One transaction; resolves after its commit. */
  write<Name extends WriteName>(name: Name, ...input: WriteInput<Name>): Promise<WriteResult<Name>>
  /** One snapshot. */
  read<Name extends ReadName>(name: Name, ...input: ReadInput<Name>): Promise<ReadResult<Name>>
}

/** What an engine adds of its own. */
export type EngineMethods = Pick<Store, 'info' | 'backup' | 'close'>

export function assembleStore(runner: Runner, engine: EngineMethods): Store {
  const {write, read} = runner
  return {
    submit: (request) => write('submit', request),
    earlierSubmit: (idempotency) => read('earlierSubmit', idempotency),
    restore: (entries, options) => write('restore', entries, options),
    toggle: (name, ifMatch = null) => write('toggle', name, ifMatch),
    deleteJob: (name, ifMatch = null) => write('deleteJob', name, ifMatch),
    requestRun: (request) => write('requestRun', request),
    earlierRun: (idempotency) => read('earlierRun', idempotency),
    resetHistory: (name) => write('resetHistory', name),
    job: (name) => read('job', name),
    jobs: (query) => read('jobs', query),
    paused: () => read('paused'),
    setPaused: (paused) => write('setPaused', paused),

    executions: (name, query) => read('executions', name, query),
    execution: (name, key, outputBytes) => read('execution', name, key, outputBytes),
    outputSince: (name, key, from, limit) => read('outputSince', name, key, from, limit),
    busy: (query) => read('busy', query),
    launches: (name, query) => read('launches', name, query),
    launch: (name, group) => read('launch', name, group),
    statistics: (days) => read('statistics', days),
    totals: () => read('totals'),

    acquireLease: (request) => write('acquireLease', request),
    renewLease: (request) => write('renewLease', request),
    resignLease: (request) => write('resignLease', request),
    heldLease: () => read('heldLease'),
    leader: () => read('leader'),
    loadDue: (request) => read('loadDue', request),
    loadRequests: (request) => read('loadRequests', request),
    candidates: () => read('candidates'),
    applyLaunches: (request) => write('applyLaunches', request),
    loadStuck: (request) => read('loadStuck', request),
    applyReassignments: (request) => write('applyReassignments', request),
    endStuck: (request) => write('endStuck', request),
    rescue: (request) => write('rescue', request),
    prune: (request) => write('prune', request),

    claim: (requests) => write('claim', requests),
    verifyClaims: (claims) => read('verifyClaims', claims),
    appendOutput: (items) => write('appendOutput', items.map(compactAppend)),
    finish: (items) => write('finish', items.map(compactFinish)),
    cancelled: (nodeId) => read('cancelled', nodeId),
    beat: (heartbeats) => write('beat', heartbeats),

    join: (request, freshMs) => write('join', request, freshMs),
    members: () => read('members'),
    activeClaims: (life) => read('activeClaims', life),
    releaseClaims: (claims) => write('releaseClaims', claims),
    failMember: (request) => write('failMember', request),
    pruneMembers: (request) => write('pruneMembers', request),
    removeMember: (request) => write('removeMember', request),
    cancelExecution: (name, key) => write('cancelExecution', name, key),

    policies: () => read('policies'),
    policy: (name) => read('policy', name),
    putPolicy: (policy) => write('putPolicy', policy),
    deletePolicy: (name) => write('deletePolicy', name),

    agreeTimezone: (zone) => write('agreeTimezone', zone),
    probe: () => write('probe'),
    ...engine,
  }
}

function compactAppend(item: OutputAppend): OutputAppend {
  return {...item, bytes: compact(item.bytes)}
}

function compactFinish(item: FinishItem): FinishItem {
  return {...item, output: {...item.output, bytes: compact(item.output.bytes)}}
}

/** A view into a larger buffer would carry that whole buffer to wherever the step runs. */
function compact(bytes: Uint8Array): Uint8Array {
  return bytes.length === bytes.buffer.byteLength ? bytes : Uint8Array.from(bytes)
}

/*
 * Every read step by name: each sees one snapshot. Apart from the writes, so that a writer need not load
 * them.
 */

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
  loadStuck,
  verifyClaims,
  cancelled,
  activeClaims,
  members,
  policies,
  policy,
  identity,
}

/** What a step takes besides its transaction. */
export type InputOf<F> = F extends (tx: Transaction, ...input: infer Input) => unknown
  ? Input
  : never
export type ResultOf<F> = F extends (tx: Transaction, ...input: never[]) => Query<infer Result>
  ? Result
  : never

type Reads = typeof READS
export type ReadName = keyof Reads
export type ReadInput<Name extends ReadName> = InputOf<Reads[Name]>
export type ReadResult<Name extends ReadName> = ResultOf<Reads[Name]>

/** The step, for a driver that got its name as data; the facade is what keeps name and input together. */
export function readQuery(
  name: ReadName,
): (tx: Transaction, ...input: unknown[]) => Query<unknown> {
  // The steps take different inputs; which fits is checked where name and input are still together.
  return READS[name] as unknown as (tx: Transaction, ...input: unknown[]) => Query<unknown>
}

/*
 * Every write step by name: what the writer of an engine can be asked to run, each a transaction of its
 * own.
 */

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
  applyReassignments,
  endStuck,
  rescue,
  releaseClaims,
  prune,
  claim,
  appendOutput,
  finish,
  beat,
  join,
  failMember,
  pruneMembers,
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
export function writeQuery(
  name: WriteName,
): (tx: Transaction, ...input: unknown[]) => Query<unknown> {
  // The steps take different inputs; which fits is checked where name and input are still together.
  return WRITES[name] as unknown as (tx: Transaction, ...input: unknown[]) => Query<unknown>
}
