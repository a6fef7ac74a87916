/**
 * Table of all store methods, one line each. The facades, queues and batching of an engine derive from it.
 */
import {isIndependent} from '../../core/parents.ts'
import type {Idempotency, RestoreEntry} from '../../ports/job-store.ts'
import type {FinishItem, OutputAppend} from '../../ports/node-store.ts'
import type {Store} from '../../ports/store.ts'
import {bindToken, issueToken, tokenRefusal} from './access/agent-tokens.ts'
import {activeClaims, cancelled, claim, releaseClaims, verifyClaims} from './executions/claims.ts'
import {recordChanges} from './access/audit.ts'
import {audit, revision, revisions} from './access/audit-list.ts'
import {deleteJob, resetHistory} from './jobs/delete-job.ts'
import {cancelExecution, finish, markLost} from './executions/finish.ts'
import {
  busy,
  execution,
  executionOfEach,
  executions,
  launch,
  launches,
  outputSince,
  statistics,
  totals,
} from './launches/history.ts'
import {explainFacts} from './launches/explain.ts'
import {executionList, launchList, launchOfAny} from './launches/across-jobs.ts'
import {problemFacts} from './launches/problems.ts'
import {trace} from './launches/trace.ts'
import {endFiringPause, firingPauses, pauseFiring, removeEndedPauses} from './jobs/firing.ts'
import {job, jobs} from './jobs/job-list.ts'
import {earlierRun, earlierSubmit, keyOf} from './jobs/idempotency.ts'
import {toggle} from './jobs/jobs.ts'
import {applyLaunches, candidates, requestRun} from './launches/launches.ts'
import {acquireLease, heldLease, leader, renewLease, resignLease} from './cluster/lease.ts'
import {endFutureWaits, noteClockHeld, replan, resumeFiring} from './jobs/planning.ts'
import {pruneAudit} from './access/audit-prune.ts'
import {
  beat,
  failMember,
  join,
  members,
  nodeLoads,
  pruneMembers,
  removeMember,
  setScheduling,
} from './cluster/members.ts'
import {appendOutput} from './executions/output.ts'
import {prune} from './cluster/prune.ts'
import {
  listWrite,
  longRead,
  LONG_WRITE_MS,
  mergedWrite,
  nodeRead,
  ownRead,
  read,
  type ReadMethod,
  write,
  type WriteMethod,
} from './method.ts'
import type {Query, Transaction} from './query.ts'
import {evaluateNotices} from './notices/evaluation.ts'
import {claimSweep, noticesDue, noticesState} from './notices/looks.ts'
import {endStoreOutage, storeAlarms} from './notices/store-alarms.ts'
import {sweepNotices} from './notices/sweeps.ts'
import * as noticeLists from './notices/lists.ts'
import * as mutes from './notices/mutes.ts'
import {noticeHistory} from './notices/preview.ts'
import * as rules from './notices/rules.ts'
import {claimNotices, markNotice, pruneNotices} from './notices/messages.ts'
import {applyReassignments, endStuck, loadStuck} from './launches/reassign.ts'
import {restore} from './jobs/restore-jobs.ts'
import * as stored from './access/secrets.ts'
import * as notices from './notices/channels.ts'
import {conflictKeys, previewSubmit, submit} from './jobs/submit.ts'
import {clusterEvents} from './cluster/cluster-events.ts'
import {backupState, recordBackup} from './cluster/backup-state.ts'
import {
  agreeSignInKey,
  agreeTimezone,
  pausedSinceRestore,
  submissionsPaused,
  probe,
  setPaused,
} from './cluster/settings.ts'
import {createSession, sessions} from './access/sessions.ts'
import {defaultTimezone, planZone, setTimezone} from './jobs/timezone.ts'
import * as access from './access/tokens.ts'
import {loadDue, loadRequests} from './launches/undecided.ts'
import {usage} from './cluster/usage.ts'

export const METHODS = {
  submit: mergedWrite(submit, {
    queue: 'jobs',
    isShared: true,
    conflictKeys,
    isRepeatable: hasKey,
    jobNames: ({spec}) => [spec.name],
    definitionLock: ({spec}) => (isIndependent(spec) ? 'shared' : 'exclusive'),
    keyLock: keyLockOf,
  }),
  previewSubmit: read(previewSubmit),
  earlierSubmit: read(earlierSubmit),
  restore: write(restore, {
    queue: 'jobs',
    isRepeatable: never,
    isLong: true,
    isIdleLong: true,
    deadlineMs: LONG_WRITE_MS,
    jobNames: namesOf,
  }),
  toggle: write(toggle, {
    queue: 'jobs',
    isShared: true,
    isRepeatable: never,
    jobNames: (name) => [name],
    definitionLock: () => 'shared',
  }),
  deleteJob: write(deleteJob, {
    queue: 'jobs',
    isRepeatable: never,
    isLong: true,
    closesLaunches: true,
    jobNames: (name) => [name],
  }),
  requestRun: write(requestRun, {
    queue: 'jobs',
    isShared: true,
    isRepeatable: hasKey,
    jobNames: ({name}) => [name],
    definitionLock: () => 'none',
    keyLock: keyLockOf,
  }),
  earlierRun: read(earlierRun),
  resetHistory: write(resetHistory, {
    queue: 'jobs',
    isRepeatable: never,
    isLong: true,
    closesLaunches: true,
    jobNames: (name) => [name],
  }),
  job: read(job),
  jobs: longRead(jobs, (query) => query),
  submissionsPaused: read(submissionsPaused),
  setPaused: write(setPaused, {queue: 'jobs'}),
  pausedSinceRestore: read(pausedSinceRestore),
  resumeFiring: write(resumeFiring, {queue: 'jobs', isLong: true, deadlineMs: LONG_WRITE_MS}),
  defaultTimezone: read(defaultTimezone),
  // Exclusive: no job is planned with the old zone at the same time.
  setTimezone: write(setTimezone, {queue: 'jobs', hasReceipt: true}),
  firingPauses: read(firingPauses),
  pauseFiring: write(pauseFiring, {queue: 'other', hasReceipt: true}),
  endFiringPause: write(endFiringPause, {queue: 'other', hasReceipt: true}),

  executions: longRead(executions, (_name, query) => query),
  execution: read(execution),
  executionOfEach: read(executionOfEach),
  outputSince: read(outputSince),
  busy: longRead(busy, (query) => query),
  launches: read(launches),
  launch: read(launch),
  explainFacts: read(explainFacts),
  launchOfAny: read(launchOfAny),
  trace: read(trace),
  launchList: read(launchList),
  executionList: read(executionList),
  problemFacts: {...read(problemFacts), isLong: true},
  statistics: read(statistics),
  clusterEvents: read(clusterEvents),
  totals: read(totals),
  usage: read(usage),

  acquireLease: write(acquireLease, {queue: 'lease'}),
  renewLease: write(renewLease, {queue: 'lease'}),
  resignLease: write(resignLease, {queue: 'lease'}),
  heldLease: read(heldLease),
  leader: read(leader),
  loadDue: read(loadDue),
  loadRequests: read(loadRequests),
  candidates: read(candidates),
  applyLaunches: write(applyLaunches, {queue: 'launch'}),
  replan: write(replan, {queue: 'launch'}),
  endFutureWaits: write(endFutureWaits, {queue: 'launch', isLong: true}),
  planZone: write(planZone, {queue: 'launch', isLong: true}),
  removeEndedPauses: write(removeEndedPauses, {queue: 'launch'}),
  noteClockHeld: write(noteClockHeld, {queue: 'upkeep'}),
  loadStuck: read(loadStuck),
  applyReassignments: write(applyReassignments, {queue: 'upkeep'}),
  endStuck: write(endStuck, {queue: 'upkeep'}),
  markLost: write(markLost, {queue: 'upkeep'}),
  prune: write(prune, {queue: 'upkeep'}),
  backupState: read(backupState),
  recordBackup: write(recordBackup, {queue: 'upkeep'}),

  // Sorted by node, so that two servers that serve the same nodes cannot deadlock.
  claim: listWrite(claim, {queue: 'claim', sortKey: ({nodeId}) => nodeId, namesSecrets: true}),
  verifyClaims: nodeRead(verifyClaims),
  appendOutput: listWrite(appendOutput, {queue: 'output', detach: detachAppend}),
  finish: listWrite(finish, {queue: 'finish', detach: detachFinish}),
  cancelled: nodeRead(cancelled),
  beat: listWrite(beat, {queue: 'members', sortKey: ({nodeId}) => nodeId}),

  join: write(join, {queue: 'joins', locksNames: true}),
  members: read(members),
  nodeLoads: read(nodeLoads),
  setScheduling: write(setScheduling, {queue: 'other', hasReceipt: true}),
  activeClaims: nodeRead(activeClaims),
  releaseClaims: write(releaseClaims, {queue: 'upkeep'}),
  failMember: write(failMember, {queue: 'members'}),
  pruneMembers: write(pruneMembers, {queue: 'upkeep'}),
  removeMember: write(removeMember, {queue: 'upkeep', hasReceipt: true}),
  cancelExecution: write(cancelExecution, {queue: 'other', hasReceipt: true}),

  policies: read(access.policies),
  policy: read(access.policy),
  putPolicy: write(access.putPolicy, {queue: 'other'}),
  deletePolicy: write(access.deletePolicy, {queue: 'other', hasReceipt: true}),
  accessRevision: ownRead(access.accessRevision),
  access: ownRead(access.access),
  tokens: read(access.tokens),
  sessions: read(sessions),
  token: read(access.token),
  createToken: write(access.createToken, {queue: 'other'}),
  tokenRefusal: nodeRead(tokenRefusal),
  bindToken: write(bindToken, {queue: 'joins'}),
  issueToken: write(issueToken, {queue: 'joins'}),
  createSession: write(createSession, {queue: 'other'}),
  deleteToken: write(access.deleteToken, {queue: 'other', hasReceipt: true}),
  recordTokenUse: write(access.recordTokenUse, {queue: 'other'}),

  revisions: read(revisions),
  revision: read(revision),
  audit: longRead(audit, (query) => query),
  pruneAudit: write(pruneAudit, {queue: 'upkeep'}),
  // Repeated, it would record the same twice.
  recordAudit: write(recordChanges, {queue: 'other', isRepeatable: never}),

  secrets: read(stored.secrets),
  sealedSecrets: nodeRead(stored.sealedSecrets),
  putSecret: write(stored.putSecret, {queue: 'other', hasReceipt: true}),
  deleteSecret: write(stored.deleteSecret, {queue: 'other', hasReceipt: true}),
  discardSecrets: write(stored.discardSecrets, {queue: 'other', hasReceipt: true}),
  checkSecretKey: read(stored.checkSecretKey),

  channels: read(notices.channels),
  channel: read(notices.channel),
  putChannel: write(notices.putChannel, {queue: 'other', hasReceipt: true}),
  deleteChannel: write(notices.deleteChannel, {queue: 'other', hasReceipt: true}),
  recordPings: write(notices.recordPings, {queue: 'upkeep'}),
  // Repeated, it would record the same twice.
  recordChannelTest: write(notices.recordChannelTest, {queue: 'other', isRepeatable: never}),
  rules: read(rules.rules),
  rule: read(rules.rule),
  putRule: write(rules.putRule, {queue: 'other', hasReceipt: true}),
  deleteRule: write(rules.deleteRule, {queue: 'other', hasReceipt: true}),
  mutes: read(mutes.mutes),
  muteNotices: write(mutes.muteNotices, {queue: 'other', hasReceipt: true}),
  endMute: write(mutes.endMute, {queue: 'other', hasReceipt: true}),
  incidents: read(noticeLists.incidents),
  messages: read(noticeLists.messages),
  noticeMessage: read(noticeLists.noticeMessage),
  resendMessage: write(noticeLists.resendMessage, {queue: 'other', hasReceipt: true}),
  noticeHistory: read(noticeHistory),
  noticesDue: ownRead(noticesDue),
  // Repeated after an unknown outcome, it may say that another server makes the sweep: it is made later.
  claimSweep: write(claimSweep, {queue: 'upkeep'}),
  sweepNotices: ownRead(sweepNotices),
  noticesState: read(noticesState),
  storeAlarms: ownRead(storeAlarms),
  endStoreOutage: write(endStoreOutage, {queue: 'upkeep'}),
  evaluateNotices: write(evaluateNotices, {queue: 'upkeep', isLong: true}),
  claimNotices: write(claimNotices, {queue: 'upkeep'}),
  markNotice: write(markNotice, {queue: 'upkeep'}),
  pruneNotices: write(pruneNotices, {queue: 'upkeep'}),

  agreeTimezone: write(agreeTimezone, {queue: 'other'}),
  agreeSignInKey: write(agreeSignInKey, {queue: 'other'}),
  probe: write(probe, {queue: 'other'}),
} satisfies PortMethods

/** Methods that each engine implements itself. */
export type EngineMethods = Pick<Store, 'info' | 'backup' | 'close'>

type QueriedMethods = Omit<Store, keyof EngineMethods>

type PortMethods = {
  readonly [Name in keyof QueriedMethods]: QueriedMethods[Name] extends (
    ...input: infer Input
  ) => Promise<infer Result>
    ? ReadMethod<Input, Result> | WriteMethod<Input, Result>
    : never
}

export type WriteName = {
  [Name in keyof typeof METHODS]: (typeof METHODS)[Name]['kind'] extends 'write' ? Name : never
}[keyof typeof METHODS]

/** A write as an engine runs it: by name, its input as data. The facade keeps name and input together. */
interface AnyWrite extends Pick<
  WriteMethod<never, unknown>,
  | 'queue'
  | 'isShared'
  | 'isList'
  | 'isLong'
  | 'isIdleLong'
  | 'closesLaunches'
  | 'locksNames'
  | 'hasReceipt'
> {
  query(tx: Transaction, ...input: readonly unknown[]): Query<unknown>
  merged?(tx: Transaction, inputs: readonly unknown[]): Query<readonly unknown[]>
  conflictKeys(...input: readonly unknown[]): readonly string[] | null
  isRepeatable(...input: readonly unknown[]): boolean
  definitionLock(...input: readonly unknown[]): 'exclusive' | 'shared' | 'none'
  keyLock(...input: readonly unknown[]): string | null
  jobNames(...input: readonly unknown[]): readonly string[]
  sortKey(...input: readonly unknown[]): string
}

export const WRITES: Readonly<Record<WriteName, AnyWrite>> = METHODS

/** A request with an idempotency key is answered by what its first try stored. */
function hasKey({idempotency}: {readonly idempotency: Idempotency | null}): boolean {
  return idempotency !== null
}

function keyLockOf({idempotency}: {readonly idempotency: Idempotency | null}): string | null {
  return idempotency === null ? null : keyOf(idempotency).join(' ')
}

function never(): boolean {
  return false
}

function namesOf(entries: readonly RestoreEntry[]): string[] {
  return entries.map(({spec}) => spec.name)
}

function detachAppend(item: OutputAppend): OutputAppend {
  return {...item, bytes: detached(item.bytes)}
}

function detachFinish(item: FinishItem): FinishItem {
  return {...item, output: {...item.output, bytes: detached(item.output.bytes)}}
}

/** A view into a larger buffer is copied: sent to another thread, it would carry the whole buffer. */
function detached(bytes: Uint8Array): Uint8Array {
  return bytes.length === bytes.buffer.byteLength ? bytes : Uint8Array.from(bytes)
}
