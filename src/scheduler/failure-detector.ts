/**
 * Failure detector, leader only. Marks nodes without heartbeats as `failed`, then ends their executions as
 * `lost`. Writes run in loops of their own: a slow write must not pause detection, because a pause restarts
 * every silence window.
 */
import type {Limits} from '../config/limits.ts'
import {FailureDetector, type FailureLimits} from '../core/failure-detector.ts'
import {lostReason} from '../core/finish.ts'
import type {MemberRecord} from '../core/node.ts'
import {AssertionFailed} from '../lib/assert.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {type MarkLostDeps, markNodeLost} from '../node/recover.ts'
import type {Step} from '../core/steps.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {MemberStore} from '../ports/node-store.ts'
import {TermOver} from '../ports/store-errors.ts'
import type {TermOptions} from './leadership.ts'

export interface FailureDetectorOptions extends MarkLostDeps, TermOptions {
  readonly store: MarkLostDeps['store'] & Pick<MemberStore, 'members' | 'failMember'>
  readonly limits: FailureLimits & Pick<Limits, 'failureDetectorIntervalMs'>
}

export class FailureDetectorService implements Service {
  readonly #options: FailureDetectorOptions
  readonly #detector: FailureDetector
  readonly #loop: Loop
  readonly #markFailed: NodeFailureHandler
  readonly #markLost: NodeFailureHandler

  constructor(options: FailureDetectorOptions) {
    this.#options = options
    this.#detector = new FailureDetector(options.limits)
    this.#loop = stepLoop('failure_detector', {
      ...options,
      step: () => this.#detect(),
      onFailure: () => this.#detector.interrupted(),
    })
    const retryMs = options.limits.failureDetectorIntervalMs
    this.#markFailed = new NodeFailureHandler({
      ...options,
      step: 'mark_failed',
      handle: (member) => this.#fail(member),
      retryMs,
    })
    this.#markLost = new NodeFailureHandler({
      ...options,
      step: 'mark_lost',
      handle: (member) => this.#endExecutions(member),
      retryMs,
    })
  }

  start(): void {
    this.#markFailed.start()
    this.#markLost.start()
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await Promise.all([this.#loop.stop(), this.#markFailed.stop(), this.#markLost.stop()])
  }

  /** Reads members and nothing else: any other failure or delay here would count as a pause. */
  async #detect(): Promise<number> {
    const {store, clock, limits} = this.#options
    const members = await store.members()
    const {failed, lost} = this.#detector.look(members, clock.monotonicMs())
    const byId = new Map(members.map((member) => [member.id, member]))
    this.#markFailed.replaceMembers(failed.map((id) => byId.get(id)!))
    // A silent incarnation can claim nothing more, so its executions are ended once.
    this.#markLost.replaceMembers(lost.map((id) => byId.get(id)!))
    return limits.failureDetectorIntervalMs
  }

  async #fail({id: nodeId, name, incarnation, heartbeatAt}: MemberRecord): Promise<void> {
    const {store, term, events} = this.#options
    const observed = {incarnation, heartbeatAt}
    const isFailed = await store.failMember({term, nodeId, observed})
    if (isFailed) events.emit('member_changed', {node: name, status: 'failed'})
  }

  async #endExecutions(member: MemberRecord): Promise<void> {
    const {id, incarnation, heartbeatAt} = member
    await markNodeLost(this.#options, {
      term: this.#options.term,
      nodeId: id,
      exceptIncarnation: null,
      observed: {incarnation, heartbeatAt},
      reason: lostReason(member),
    })
  }
}

export interface NodeFailureHandlerOptions extends Omit<TermOptions, 'term'> {
  /** Value of `step` in `step_failed`. */
  readonly step: Step
  /** Idempotent. Changes nothing if the node has sent a heartbeat or rejoined since it was observed. */
  readonly handle: (member: MemberRecord) => Promise<unknown>
  readonly retryMs: number
}

/**
 * Handles detected nodes, each observation once, in a loop of its own. A node whose handling fails is
 * retried and does not delay other nodes.
 */
export class NodeFailureHandler implements Service {
  readonly #options: NodeFailureHandlerOptions
  readonly #loop: Loop
  #members: readonly MemberRecord[] = []
  /** Observations of `#members` that were handled. */
  #handled = new Set<string>()

  constructor(options: NodeFailureHandlerOptions) {
    this.#options = options
    this.#loop = stepLoop(options.step, {
      ...options,
      step: () => this.#handleAll(),
      backoffMaxMs: options.retryMs,
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  /** Handles these members, as the failure detector observed them, and drops all earlier ones. */
  replaceMembers(members: readonly MemberRecord[]): void {
    this.#members = members
    this.#handled = new Set(members.map(observationKey).filter((key) => this.#handled.has(key)))
    if (this.#handled.size < members.length) this.#loop.wake()
  }

  async #handleAll(): Promise<number> {
    const {handle, retryMs} = this.#options
    const failures: unknown[] = []
    for (const member of this.#members) {
      const key = observationKey(member)
      if (this.#handled.has(key)) continue
      try {
        await handle(member)
        this.#handled.add(key)
      } catch (error) {
        if (error instanceof TermOver || error instanceof AssertionFailed) throw error
        failures.push(error)
      }
    }
    if (failures.length > 0) throw failures[0]
    return retryMs
  }
}

function observationKey({id, incarnation, heartbeatAt}: MemberRecord): string {
  return `${id} ${incarnation} ${heartbeatAt}`
}
