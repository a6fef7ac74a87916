/**
 * Jobs, launches, executions and nodes with a method per state. Every method returns a new builder,
 * so a fixture can be shared and varied; `spec`, `record` and `candidate` return the plain data.
 */
import type {ExecutionRecord, FinalStatus} from '../../src/core/execution.ts'
import type {CatchUp, JobCounters, JobRecord, JobSpec, StringMap} from '../../src/core/job.ts'
import {DEFAULT_SPEC} from '../../src/core/job-fields.ts'
import type {LaunchCause, LaunchDecision, LaunchRecord} from '../../src/core/launch-record.ts'
import type {Candidate, MemberRecord, MemberStatus} from '../../src/core/node.ts'
import type {ClaimResult} from '../../src/ports/node-store.ts'

/** Answer to a claim that takes nothing. */
export const NOTHING_CLAIMED: ClaimResult = {
  claimed: [],
  newest: '',
  isCordoned: false,
  secrets: {},
  waiting: 0,
  nextDueInMs: null,
}

/** 2026-03-01T12:00:00Z, a Sunday: the default time of fixtures. */
export const NOON = Date.parse('2026-03-01T12:00:00Z')

/** The defaults of the API, and what a job needs. */
export const PLAIN_SPEC: JobSpec = {
  ...DEFAULT_SPEC,
  name: 'job',
  schedule: '@every 1m',
  timezone: 'UTC',
  executor: 'scripted',
}

const NO_RUNS: JobCounters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

const PLAIN_JOB: Omit<JobRecord, 'spec'> = {
  id: 1,
  revision: 1,
  nextAt: null,
  decidedUntil: null,
  anchorAt: NOON,
  counters: NO_RUNS,
  status: '',
  createdAt: NOON,
  updatedAt: NOON,
  dependentJobs: [],
}

export class JobFixture {
  readonly #spec: JobSpec
  readonly #record: Omit<JobRecord, 'spec'>

  constructor(spec: JobSpec = PLAIN_SPEC, record: Omit<JobRecord, 'spec'> = PLAIN_JOB) {
    this.#spec = spec
    this.#record = record
  }

  get spec(): JobSpec {
    return this.#spec
  }

  get record(): JobRecord {
    return {...this.#record, spec: this.#spec}
  }

  with(changes: Partial<JobSpec>): JobFixture {
    return new JobFixture({...this.#spec, ...changes}, this.#record)
  }

  stored(changes: Partial<Omit<JobRecord, 'spec'>>): JobFixture {
    return new JobFixture(this.#spec, {...this.#record, ...changes})
  }

  named(name: string): JobFixture {
    return this.with({name})
  }

  scheduled(schedule: string): JobFixture {
    return this.with({schedule})
  }

  every(duration: string): JobFixture {
    return this.with({schedule: `@every ${duration}`})
  }

  /** Never fires by itself. */
  manual(): JobFixture {
    return this.with({schedule: '@manually'})
  }

  disabled(): JobFixture {
    return this.with({disabled: true}).stored({nextAt: null})
  }

  forbidding(): JobFixture {
    return this.with({concurrency: 'forbid'})
  }

  retrying(retries: number): JobFixture {
    return this.with({retries})
  }

  ephemeral(): JobFixture {
    return this.with({ephemeral: true})
  }

  childOf(parentJob: string): JobFixture {
    return this.with({parentJob, schedule: ''})
  }

  tagged(tags: StringMap): JobFixture {
    return this.with({tags})
  }

  catchingUp(catchUp: CatchUp, maxLateness = '24h'): JobFixture {
    return this.with({catchUp, maxLateness})
  }

  between(startsAt: number | null, expiresAt: number | null): JobFixture {
    return this.with({startsAt, expiresAt})
  }

  /** Sets the oldest undecided planned time. */
  due(nextAt: number): JobFixture {
    return this.stored({nextAt})
  }
}

export function aJob(name = 'job'): JobFixture {
  return new JobFixture().named(name)
}

const PLAIN_EXECUTION: ExecutionRecord = {
  group: 1,
  node: 'node-a',
  attempt: 1,
  jobId: 1,
  jobName: 'job',
  status: 'pending',
  slot: 0,
  revision: 0,
  createdAt: NOON,
  notBefore: NOON,
  startedAt: null,
  finishedAt: null,
  cancelRequestedAt: null,
  exitCode: null,
  reason: '',
  outputHead: '',
  outputFoot: '',
  outputBytes: 0,
  lateResult: '',
}

export class ExecutionFixture {
  readonly record: ExecutionRecord

  constructor(record: ExecutionRecord = PLAIN_EXECUTION) {
    this.record = record
  }

  with(changes: Partial<ExecutionRecord>): ExecutionFixture {
    return new ExecutionFixture({...this.record, ...changes})
  }

  onSlot(slot: number): ExecutionFixture {
    return this.with({slot})
  }

  attempt(attempt: number): ExecutionFixture {
    return this.with({attempt})
  }

  pending(): ExecutionFixture {
    return this.with({status: 'pending', startedAt: null, finishedAt: null})
  }

  running(): ExecutionFixture {
    return this.with({status: 'running', startedAt: NOON, revision: 1})
  }

  /** Running, with a cancel request. */
  cancelling(): ExecutionFixture {
    return this.running().with({cancelRequestedAt: NOON})
  }

  succeeded(): ExecutionFixture {
    return this.#ended('succeeded')
  }

  failed(): ExecutionFixture {
    return this.#ended('failed').with({exitCode: 1})
  }

  timedOut(): ExecutionFixture {
    return this.#ended('timed_out')
  }

  cancelled(): ExecutionFixture {
    return this.#ended('cancelled')
  }

  lost(reason = 'node_lost'): ExecutionFixture {
    return this.#ended('lost').with({reason})
  }

  #ended(status: FinalStatus): ExecutionFixture {
    return this.running().with({status, finishedAt: NOON + 1_000})
  }
}

export function anExecution(): ExecutionFixture {
  return new ExecutionFixture()
}

const PLAIN_LAUNCH: LaunchRecord = {
  group: 1,
  jobId: 1,
  jobName: 'job',
  cause: 'schedule',
  decision: 'launched',
  reason: '',
  scheduledAt: NOON,
  scheduledUntil: NOON,
  count: 1,
  storedAt: NOON,
  decidedAt: NOON,
  term: 1,
  forced: false,
  parentGroup: null,
  open: true,
  retriesEnded: false,
  nodeDeaths: 0,
  status: null,
  closedAt: null,
  rootGroup: null,
}

export class LaunchFixture {
  readonly record: LaunchRecord

  constructor(record: LaunchRecord = PLAIN_LAUNCH) {
    this.record = record
  }

  with(changes: Partial<LaunchRecord>): LaunchFixture {
    return new LaunchFixture({...this.record, ...changes})
  }

  /** Stored, not decided yet. */
  waiting(cause: LaunchCause, reason = ''): LaunchFixture {
    return this.with({cause, decision: 'pending', reason, decidedAt: null, term: null})
  }

  forced(): LaunchFixture {
    return this.with({forced: true})
  }

  decided(decision: LaunchDecision, reason = ''): LaunchFixture {
    return this.with({decision, reason, open: decision === 'pending' || decision === 'launched'})
  }

  /** Ends its retries, as a cancelled execution does. */
  cancelled(): LaunchFixture {
    return this.with({retriesEnded: true})
  }

  deaths(nodeDeaths: number): LaunchFixture {
    return this.with({nodeDeaths})
  }
}

export function aLaunch(group = 1): LaunchFixture {
  return new LaunchFixture().with({group})
}

const PLAIN_MEMBER: MemberRecord = {
  id: 'id-of-node-a',
  name: 'node-a',
  incarnation: 'first-incarnation',
  address: '127.0.0.1',
  port: 8080,
  tags: {},
  server: true,
  runs: true,
  version: '0.1.0',
  slots: 16,
  status: 'alive',
  startedAt: NOON,
  heartbeatAt: NOON,
  cordonedAt: null,
  drainUntil: null,
}

export class NodeFixture {
  readonly record: MemberRecord
  readonly #load: number

  constructor(record: MemberRecord = PLAIN_MEMBER, load = 0) {
    this.record = record
    this.#load = load
  }

  get candidate(): Candidate {
    const {id, name, tags, slots, cordonedAt} = this.record
    return {id, name, tags, slots, load: this.#load, isCordoned: cordonedAt !== null}
  }

  with(changes: Partial<MemberRecord>): NodeFixture {
    return new NodeFixture({...this.record, ...changes}, this.#load)
  }

  tagged(tags: StringMap): NodeFixture {
    return this.with({tags})
  }

  slots(slots: number): NodeFixture {
    return this.with({slots})
  }

  loaded(load: number): NodeFixture {
    return new NodeFixture(this.record, load)
  }

  status(status: MemberStatus): NodeFixture {
    return this.with({status})
  }

  /** The node as a new incarnation: its process restarted. */
  returned(incarnation: string): NodeFixture {
    return this.with({incarnation})
  }

  beaten(heartbeatAt: number): NodeFixture {
    return this.with({heartbeatAt})
  }
}

export function aNode(name = 'node-a'): NodeFixture {
  return new NodeFixture().with({name, id: `id-of-${name}`})
}
