/**
 * Carries out verdicts about nodes, each once, in a loop of its own: what is slow or fails here holds up
 * neither the judge, whose silence would void its verdicts, nor what follows for other nodes.
 */
import type {MemberRecord} from '../core/node.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import {TermOver} from '../ports/store-errors.ts'
import {AssertionFailed} from '../lib/assert.ts'
import {Loop} from '../lib/loop.ts'
import type {Service} from '../lib/service.ts'

export interface VerdictsOptions {
  /** Repeatable; changes nothing once the node was heard again or has returned. */
  readonly carryOut: (member: MemberRecord) => Promise<unknown>
  /** Named in `step_failed`. */
  readonly step: string
  readonly over: () => void
  readonly clock: Clock
  readonly events: Events
  readonly againAfterMs: number
}

export class Verdicts implements Service {
  readonly #options: VerdictsOptions
  readonly #loop: Loop
  #standing: readonly MemberRecord[] = []
  /** Those of the standing that need nothing any more. */
  #done = new Set<string>()

  constructor(options: VerdictsOptions) {
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
    if (this.#done.size < members.length) this.#loop.ring()
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
