/**
 * The leader's look at the nodes: who is silent is failed, and what the dead had claimed is lost. It only
 * listens and judges; its verdicts are carried out beside it. Lives as long as a term.
 */
import {FailureDetector, type FailureLimits} from '../core/failure-detector.ts'
import type {MemberRecord} from '../core/node.ts'
import {AssertionFailed} from '../lib/assert.ts'
import {Loop, type Service} from '../lib/loop.ts'
import {type RescueDeps, rescueNode} from '../node/recover.ts'
import type {Events} from '../ports/events.ts'
import type {MemberStore} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

export interface FailureDetectorOptions extends RescueDeps {
  readonly store: RescueDeps['store'] & Pick<MemberStore, 'members' | 'failMember'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly limits: FailureLimits
  readonly lookEveryMs: number
}

export class FailureDetectorService implements Service {
  readonly #options: FailureDetectorOptions
  readonly #judge: FailureDetector
  readonly #loop: Loop
  readonly #failing: NodeFailureHandler
  readonly #rescue: NodeFailureHandler

  constructor(options: FailureDetectorOptions) {
    const {clock, events, over, lookEveryMs} = options
    this.#options = options
    this.#judge = new FailureDetector(options.limits)
    this.#loop = new Loop({
      clock,
      step: () => this.#look(),
      failed: (error) => {
        this.#judge.interrupted()
        if (error instanceof TermOver) over()
        events.emit('step_failed', {step: 'failure_detector', message: String(error)})
      },
    })
    const beside = {clock, events, over, againAfterMs: lookEveryMs}
    this.#failing = new NodeFailureHandler({
      ...beside,
      step: 'mark_failed',
      carryOut: (node) => this.#fail(node),
    })
    this.#rescue = new NodeFailureHandler({
      ...beside,
      step: 'mark_lost',
      carryOut: (node) => this.#end(node),
    })
  }

  start(): void {
    this.#failing.start()
    this.#rescue.start()
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await Promise.all([this.#loop.stop(), this.#failing.stop(), this.#rescue.stop()])
  }

  /** Nothing but the listening: what else failed or took long here would count as not having listened. */
  async #look(): Promise<number> {
    const {store, clock, lookEveryMs} = this.#options
    const members = await store.members()
    const {failed, lost} = this.#judge.look(members, clock.monotonicMs())
    const byId = new Map(members.map((member) => [member.id, member]))
    this.#failing.stand(failed.map((id) => byId.get(id)!))
    // Nothing can be claimed by a life that is silent, so what it had is ended once.
    this.#rescue.stand(lost.map((id) => byId.get(id)!))
    return lookEveryMs
  }

  async #fail({id: nodeId, name, incarnation, heartbeatAt}: MemberRecord): Promise<void> {
    const {store, term, events} = this.#options
    const observed = {incarnation, heartbeatAt}
    const isFailed = await store.failMember({term, nodeId, observed})
    if (isFailed) events.emit('member_changed', {node: name, status: 'failed'})
  }

  async #end({id: nodeId, incarnation, heartbeatAt, status}: MemberRecord): Promise<void> {
    const reason = status === 'left' ? 'node_stopped' : 'node_lost'
    const observed = {incarnation, heartbeatAt}
    const {term} = this.#options
    await rescueNode(this.#options, {term, nodeId, exceptIncarnation: null, observed, reason})
  }
}

/*
 * Carries out verdicts about nodes, each once, in a loop of its own: what is slow or fails here holds up
 * neither the judge, whose silence would void its verdicts, nor what follows for other nodes.
 */

export interface NodeFailureHandlerOptions {
  /** Repeatable; changes nothing once the node was heard again or has returned. */
  readonly carryOut: (member: MemberRecord) => Promise<unknown>
  /** Named in `step_failed`. */
  readonly step: string
  readonly over: () => void
  readonly clock: Clock
  readonly events: Events
  readonly againAfterMs: number
}

export class NodeFailureHandler implements Service {
  readonly #options: NodeFailureHandlerOptions
  readonly #loop: Loop
  #standing: readonly MemberRecord[] = []
  /** Those of the standing that need nothing any more. */
  #done = new Set<string>()

  constructor(options: NodeFailureHandlerOptions) {
    const {clock, events, step, over, againAfterMs} = options
    this.#options = options
    this.#loop = new Loop({
      clock,
      step: () => this.#carryOut(),
      failed: (error) => {
        if (error instanceof TermOver) over()
        events.emit('step_failed', {step, message: String(error)})
      },
      backoffMaxMs: againAfterMs,
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  /** These nodes, as the judge saw them, and no others any more. */
  stand(members: readonly MemberRecord[]): void {
    this.#standing = members
    this.#done = new Set(members.map(verdictText).filter((verdict) => this.#done.has(verdict)))
    if (this.#done.size < members.length) this.#loop.wake()
  }

  async #carryOut(): Promise<number> {
    const {carryOut, againAfterMs} = this.#options
    const failures: unknown[] = []
    for (const member of this.#standing) {
      if (this.#done.has(verdictText(member))) continue
      try {
        await carryOut(member)
        this.#done.add(verdictText(member))
      } catch (error) {
        if (error instanceof TermOver || error instanceof AssertionFailed) throw error
        failures.push(error)
      }
    }
    if (failures.length > 0) throw failures[0]
    return againAfterMs
  }
}

function verdictText({id, incarnation, heartbeatAt}: MemberRecord): string {
  return `${id} ${incarnation} ${heartbeatAt}`
}
