/**
 * The scene of a contract case: a store with an adjustable clock, a leader's term, nodes, and the actions of
 * cases (submit, launch, claim, end). Uses only the port, so that every engine runs the same cases.
 */
import assert from 'node:assert/strict'
import type {FinalStatus} from '../../../src/core/execution.ts'
import type {JobRecord, JobSpec, PlannedJob} from '../../../src/core/job.ts'
import type {StoredLaunch} from '../../../src/core/launch-record.ts'
import type {MemberStatus} from '../../../src/core/node.ts'
import type {ExecutionQuery, LaunchView} from '../../../src/ports/history-store.ts'
import type {JobQuery, SubmitRequest, SubmitResult} from '../../../src/ports/job-store.ts'
import type {DecidedLaunch} from '../../../src/ports/leader-store.ts'
import type {FinishOutcome} from '../../../src/core/end-requests.ts'
import type {ClaimedExecution, FinishItem, JoinRequest} from '../../../src/ports/node-store.ts'
import type {Store} from '../../../src/ports/store.ts'
import {PLAIN_SPEC} from '../../support/fixtures.ts'
import {beatAs, claimAs} from '../../support/single-calls.ts'

/** A fresh store for one case. */
export interface OpenedStore {
  readonly store: Store
  /** Time of the store's clock when it was opened: 2026-01-15T12:00:00Z. */
  readonly startedAt: number
  /** Advances the store's clock. */
  advance(ms: number): void
  /** Closes the store and removes its data. */
  close(): Promise<void>
}

export type OpenStore = () => Promise<OpenedStore>

export const MINUTE = 60_000
export const HOUR = 60 * MINUTE
export const DAY = 24 * HOUR

export const ALL_ROWS = {start: 0, end: null}
export const ALL_JOBS: JobQuery = {
  ...ALL_ROWS,
  metadata: [],
  text: '',
  status: null,
  disabled: null,
  sort: 'name',
  order: 'asc',
}
export const ALL_EXECUTIONS: ExecutionQuery = {
  ...ALL_ROWS,
  sort: 'id',
  order: 'desc',
  status: null,
  outputBytes: 1_000_000,
}

export function aSpec(name: string, over: Partial<JobSpec> = {}): JobSpec {
  const shell = {executor: 'shell', executorConfig: {command: 'true'}}
  return {...PLAIN_SPEC, ...shell, name, timezone: '', ...over}
}

export interface EndOptions {
  readonly reason?: string
  readonly durationMs?: number
  readonly exitCode?: number | null
  readonly head?: string
  readonly foot?: string
  readonly offset?: number
  readonly output?: string
  readonly totalBytes?: number
  readonly dropOutput?: boolean
}

export class Scene {
  readonly store: Store
  readonly opened: OpenedStore
  term = 0
  #tokens = 0
  readonly #joined = new Set<string>()
  #advancedMs = 0

  private constructor(opened: OpenedStore) {
    this.opened = opened
    this.store = opened.store
  }

  /** A store with zone UTC, a leader, and one alive node `n1` called `node-1`. */
  static async open(open: OpenStore): Promise<Scene> {
    const scene = new Scene(await open())
    await scene.store.agreeTimezone('UTC')
    await scene.lead('holder-1')
    await scene.join('n1')
    return scene
  }

  /** Time of the store's clock. */
  get now(): number {
    return this.opened.startedAt + this.#advancedMs
  }

  advance(ms: number): void {
    this.#advancedMs += ms
    this.opened.advance(ms)
  }

  async lead(holder: string): Promise<void> {
    const lease = await this.store.acquireLease({holder, nodeId: 'n1', ttlMs: 6_000})
    assert(lease !== null, 'the lease was free')
    this.term = lease.term
  }

  async join(
    id: string,
    incarnation = `${id}-incarnation-1`,
    name = id.replace('n', 'node-'),
    token?: JoinRequest['token'],
  ) {
    const fixed = {address: '127.0.0.1', port: 8080, server: true, runs: true, version: '1'}
    const member = {id, name, incarnation, tags: {node: name}, slots: 8, ...fixed}
    this.#joined.add(id)
    return await this.store.join({member, ...(token && {token})}, 10_000)
  }

  /** Marks a node as failed, with its current heartbeat as the observed one. */
  async fail(nodeId: string, incarnation: string): Promise<boolean> {
    const member = (await this.store.members()).find(({id}) => id === nodeId)
    const observed = {incarnation, heartbeatAt: member?.heartbeatAt ?? 0}
    return await this.store.failMember({term: this.term, nodeId, observed})
  }

  /** Writes `failed` as the failure detector does, every other status as a heartbeat of the node does. */
  async setStatus(nodeId: string, incarnation: string, status: MemberStatus): Promise<void> {
    if (status === 'failed') assert(await this.fail(nodeId, incarnation), `${nodeId} is failed`)
    else assert.equal(await beatAs(this.store, {nodeId, incarnation, status}), 'ok')
  }

  async trySubmit(
    spec: JobSpec,
    over: Partial<Omit<SubmitRequest, 'spec'>> = {},
  ): Promise<SubmitResult> {
    const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
    return await this.store.submit({spec, ...request, ...over})
  }

  /** Submits a job that must be accepted. */
  async submit(name: string, over: Partial<JobSpec> = {}): Promise<JobRecord> {
    const result = await this.trySubmit(aSpec(name, over))
    assert(result.kind === 'stored', `${name} is stored`)
    return result.job
  }

  /** Launches of the job, newest first. */
  async launches(name: string): Promise<readonly LaunchView[]> {
    const page = await this.store.launches(name, {start: 0, end: null, decision: null})
    assert(page !== null, `${name} is stored`)
    return page.rows
  }

  async job(name: string): Promise<JobRecord> {
    const job = await this.store.job(name)
    assert(job !== null, `${name} is stored`)
    return job
  }

  /** Requests a run by hand and launches it on these nodes; returns the launch number. */
  async run(name: string, nodes: readonly string[] = ['n1']): Promise<number> {
    const result = await this.store.requestRun({name, forced: true, idempotency: null})
    assert(result.kind === 'accepted', `${name} is accepted`)
    const decided = await this.launchRequest(result.group, nodes)
    assert.equal(decided?.launch.decision, 'launched')
    return result.group
  }

  async launchRequest(
    group: number,
    nodes: readonly string[] = ['n1'],
    forbid = false,
  ): Promise<DecidedLaunch | null> {
    const page = await this.store.loadRequests({afterGroup: group - 1, limit: 1})
    const revision = page.requests[0]?.job.revision ?? 1
    const decision = {group, revision, kind: 'launch', targets: targets(nodes), forbid} as const
    const applied = await this.store.applyLaunches({
      term: this.term,
      dues: [],
      requests: [decision],
    })
    return applied.requests[0] === 'applied' ? applied.decided[0]! : null
  }

  /** Applies the leader's decisions about a job, from its `next` on. */
  async decide(
    job: PlannedJob,
    rows: readonly StoredLaunch[],
    nextAt: number | null,
    forbid = false,
  ) {
    const due = {jobId: job.id, revision: job.revision, expectedNextAt: job.nextAt!}
    return await this.store.applyLaunches({
      term: this.term,
      dues: [{...due, nextAt, rows, forbid}],
      requests: [],
    })
  }

  /** Claims as the first incarnation of the node, which joins first if needed. */
  async claim(nodeId = 'n1', room = 100): Promise<readonly ClaimedExecution[]> {
    if (!this.#joined.has(nodeId)) await this.join(nodeId)
    this.#tokens += 1
    const incarnation = `${nodeId}-incarnation-1`
    const token = `token-${nodeId}-${this.#tokens}`
    const {claimed} = await claimAs(this.store, {nodeId, incarnation, token, room})
    return claimed
  }

  /** Claims the only pending execution of the node. */
  async claimOne(nodeId = 'n1'): Promise<ClaimedExecution> {
    const claimed = await this.claim(nodeId)
    assert.equal(claimed.length, 1)
    return claimed[0]!
  }

  async end(
    claimed: ClaimedExecution,
    status: FinalStatus,
    options: EndOptions = {},
  ): Promise<FinishOutcome> {
    const [outcome] = await this.store.finish([anEnd(claimed, status, options)])
    return outcome!
  }

  /** Launches, claims and ends the job once on one node; returns the launch number. */
  async complete(name: string, status: FinalStatus, options: EndOptions = {}): Promise<number> {
    const group = await this.run(name)
    const claimed = await this.claimOne()
    if (status === 'cancelled') await this.store.cancelExecution(name, claimed.execution)
    const outcome = await this.end(claimed, status, options)
    assert.equal(outcome.kind, 'finished')
    return group
  }
}

export function targets(nodes: readonly string[]): StoredLaunch['targets'] {
  return nodes.map((nodeId) => ({nodeId, nodeName: nodeId.replace('n', 'node-')}))
}

export function aRow(
  scheduledAt: number,
  decision: StoredLaunch['decision'],
  over: Partial<StoredLaunch> = {},
): StoredLaunch {
  const launched = decision === 'launched'
  return {
    scheduledAt,
    scheduledUntil: scheduledAt,
    count: 1,
    decision,
    reason: launched ? '' : 'forbid',
    targets: launched ? targets(['n1']) : [],
    ...over,
  }
}

export function anEnd(
  {execution, token}: ClaimedExecution,
  status: FinalStatus,
  options: EndOptions = {},
): FinishItem {
  const bytes = new TextEncoder().encode(options.output ?? '')
  const offset = options.offset ?? 0
  const {group, node, attempt} = execution
  return {
    key: {group, node, attempt},
    token,
    status,
    durationMs: options.durationMs ?? 5,
    startedAfterMs: 0,
    exitCode: options.exitCode ?? null,
    reason: options.reason ?? '',
    outputHead: options.head ?? '',
    outputFoot: options.foot ?? '',
    output: {offset, bytes, totalBytes: options.totalBytes ?? offset + bytes.length},
    dropOutput: options.dropOutput ?? false,
    jitter: 0.5,
  }
}

export function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}
