/**
 * Carrying out writes: several in one transaction, each heard of only after the commit. One that is at
 * fault is taken out and refused alone; a transaction undone for another's sake is done again, within
 * bounds. When the connection breaks during the commit nobody knows what became of it: writes that may be
 * repeated are, and find out; the others say so.
 */
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-failure.ts'
import {attempt, faultOf, type AttemptParts} from './attempt.ts'
import {NoPrimary, textOf, unavailable, type Verdict} from './failure.ts'
import type {SessionPool} from './session-pool.ts'
import {alone, answersOf, isRepeatable, joined, type Unit, type Write} from './unit.ts'

/** Tries of one batch, and how long after its beginning a new one may begin. */
const TRIES_MAX = 6
const TRY_AGAIN_WITHIN_MS = 2_500
/** How long after the beginning a batch that failed is still worked through one by one. */
const ONE_BY_ONE_WITHIN_MS = 5_000

export type Outcome =
  {readonly ok: true; readonly result: unknown} | {readonly ok: false; readonly error: Error}

export class Committer {
  readonly #parts: AttemptParts
  readonly #pool: SessionPool

  constructor(parts: AttemptParts, pool: SessionPool) {
    this.#parts = parts
    this.#pool = pool
  }

  /** Answers each write; never throws. All of them are of one lane. */
  async commit(writes: readonly Write[]): Promise<Map<Write, Outcome>> {
    return await new Batch(this.#parts, this.#pool, writes).run()
  }
}

/** One batch on its way, perhaps through several transactions. */
class Batch {
  readonly #parts: AttemptParts
  readonly #pool: SessionPool
  readonly #outcomes = new Map<Write, Outcome>()
  readonly #beganAt: number
  #units: readonly Unit[]
  #tries = 0
  /** A commit of these writes may have happened. */
  #mayBeStored: boolean

  constructor(
    parts: AttemptParts,
    pool: SessionPool,
    writes: readonly Write[],
    mayBeStored = false,
  ) {
    this.#parts = parts
    this.#mayBeStored = mayBeStored
    this.#pool = pool
    this.#units = joined(writes)
    this.#beganAt = parts.clock.monotonicMs()
  }

  async run(): Promise<Map<Write, Outcome>> {
    while (this.#units.length > 0) {
      const tried = await attempt(this.#parts, this.#pool, this.#units)
      this.#tries += 1
      switch (tried.kind) {
        case 'committed':
          this.#settle(this.#units, tried.results)
          break
        case 'refused':
          this.#refuse(tried.unit, tried.error)
          break
        case 'failed':
          await this.#failed(tried.verdict, tried.error)
          break
        case 'unknown':
          this.#mayBeStored = true
          this.#unknown(tried.error)
          break
      }
    }
    return this.#outcomes
  }

  get #elapsedMs(): number {
    return this.#parts.clock.monotonicMs() - this.#beganAt
  }

  get #mayTryAgain(): boolean {
    return this.#tries < TRIES_MAX && this.#elapsedMs < TRY_AGAIN_WITHIN_MS
  }

  #settle(units: readonly Unit[], results: readonly unknown[]): void {
    units.forEach((unit, index) => {
      const answers = answersOf(unit, results[index])
      unit.writes.forEach((write, at) => {
        this.#outcomes.set(write, {ok: true, result: answers[at]})
      })
    })
    this.#units = []
  }

  /** The others go on without it; joined writes are tried one by one: only one of them may be at fault. */
  #refuse(unit: Unit, error: Error): void {
    if (unit.writes.length === 1) this.#outcomes.set(unit.writes[0]!, {ok: false, error})
    const parts = unit.writes.length === 1 ? [] : unit.writes.map((write) => alone(write))
    this.#units = this.#units.flatMap((other) => (other === unit ? parts : [other]))
  }

  async #failed(verdict: Verdict, error: unknown): Promise<void> {
    if ((verdict === 'again' || verdict === 'moved') && this.#mayTryAgain) return
    const writes = this.#units.flatMap((unit) => unit.writes)
    const isOfTheServer =
      verdict === 'moved' || error instanceof StoreUnavailable || error instanceof NoPrimary
    if (writes.length === 1 || isOfTheServer || this.#elapsedMs >= ONE_BY_ONE_WITHIN_MS) {
      const isFault = verdict === 'fault'
      const told = isFault ? faultOf(error) : unavailable(error)
      this.#giveUp(this.#mayBeStored ? unknownOf(error) : told)
      return
    }
    // One of them may be too much for the store; it must not take the others with it.
    this.#units = []
    for (const write of writes) {
      const batch = new Batch(this.#parts, this.#pool, [write], this.#mayBeStored)
      const [outcome] = (await batch.run()).values()
      this.#outcomes.set(write, outcome!)
    }
  }

  #unknown(error: unknown): void {
    const repeated = this.#mayTryAgain ? this.#units.filter(isRepeatable) : []
    this.#units = this.#units.filter((unit) => !repeated.includes(unit))
    this.#giveUp(unknownOf(error))
    this.#units = repeated
  }

  #giveUp(error: Error): void {
    for (const {writes} of this.#units)
      for (const write of writes) this.#outcomes.set(write, {ok: false, error})
    this.#units = []
  }
}

function unknownOf(error: unknown): OutcomeUnknown {
  return new OutcomeUnknown(`whether it was stored is unknown: ${textOf(error)}`, {cause: error})
}
