/**
 * Carrying out writes: several in one transaction, each heard of only after the commit. One that is at
 * fault is taken out and refused alone; a transaction undone for another's sake is done again, within
 * bounds. When the connection breaks during the commit nobody knows what became of it: writes that may be
 * repeated are, and find out; the others say so.
 */
import type {Clock} from '../../ports/clock.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-failure.ts'
import type {Step} from '../sql/command.ts'
import type {StoreLimits, Transaction} from '../sql/transaction.ts'
import {writeStep, type WriteName} from '../sql/writes.ts'
import {postgresDialect} from './dialect.ts'
import {
  ConnectionLost,
  NoPrimary,
  sqlState,
  textOf,
  unavailable,
  verdictOf,
  type Verdict,
} from './failure.ts'
import type {Primary} from './primary.ts'
import {ANSWER_LIMIT_MS, type Session} from './session.ts'
import type {SessionPool} from './session-pool.ts'
import type {Statements} from './statements.ts'
import {beginTransaction, type StoreTime} from './transaction.ts'
import {lockDefinitions, lockNames, WRITE_PLANS} from './write-plan.ts'

/** A commit waits for the disk and for synchronous standbys, which may be far away; then it is given up. */
const COMMIT_LIMIT_MS = 8_000
/** For the few writes that touch as much as a job's whole history. */
const LONG_STATEMENT_MS = 30_000
const LONG_LIMITS = `SET LOCAL statement_timeout TO ${LONG_STATEMENT_MS};
  SET LOCAL idle_in_transaction_session_timeout TO ${LONG_STATEMENT_MS}`
/** Tries of one batch, and how long after its beginning a new one may begin. */
const TRIES_MAX = 6
const TRY_AGAIN_WITHIN_MS = 2_500
/** How long after the beginning a batch that failed is still worked through one by one. */
const ONE_BY_ONE_WITHIN_MS = 5_000

export interface Write {
  readonly name: WriteName
  readonly input: readonly unknown[]
}

export type Outcome =
  {readonly ok: true; readonly result: unknown} | {readonly ok: false; readonly error: Error}

/** Writes that are one step: one, or several that were joined. */
interface Unit {
  readonly name: WriteName
  readonly writes: readonly Write[]
}

type Attempt =
  | {readonly kind: 'committed'; readonly results: readonly unknown[]}
  /** The unit is at fault; nothing was changed. */
  | {readonly kind: 'refused'; readonly unit: Unit; readonly error: Error}
  | {readonly kind: 'failed'; readonly verdict: Verdict; readonly error: unknown}
  | {readonly kind: 'unknown'; readonly error: unknown}

export interface CommitterParts {
  readonly primary: Primary
  readonly statements: Statements
  readonly time: StoreTime
  readonly limits: StoreLimits
  readonly clock: Pick<Clock, 'monotonicMs'>
}

export class Committer {
  readonly #parts: CommitterParts
  readonly #pool: SessionPool

  constructor(parts: CommitterParts, pool: SessionPool) {
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
  readonly #parts: CommitterParts
  readonly #pool: SessionPool
  readonly #outcomes = new Map<Write, Outcome>()
  readonly #beganAt: number
  #units: readonly Unit[]
  #tries = 0
  /** A commit of these writes may have happened. */
  #mayBeStored = false

  constructor(parts: CommitterParts, pool: SessionPool, writes: readonly Write[]) {
    this.#parts = parts
    this.#pool = pool
    this.#units = joined(writes)
    this.#beganAt = parts.clock.monotonicMs()
  }

  async run(): Promise<Map<Write, Outcome>> {
    while (this.#units.length > 0) {
      const attempt = await this.#attempt(this.#units)
      this.#tries += 1
      switch (attempt.kind) {
        case 'committed':
          this.#settle(this.#units, attempt.results)
          break
        case 'refused':
          this.#refuse(attempt.unit, attempt.error)
          break
        case 'failed':
          await this.#failed(attempt.verdict, attempt.error)
          break
        case 'unknown':
          this.#mayBeStored = true
          this.#unknown(attempt.error)
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
      const answers = cut(unit, results[index])
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
      const [outcome] = (await new Batch(this.#parts, this.#pool, [write]).run()).values()
      this.#outcomes.set(write, outcome!)
    }
  }

  #unknown(error: unknown): void {
    const isRepeatable = ({name, input}: Write) => WRITE_PLANS[name].isRepeatable(input)
    const isRepeated = (unit: Unit) => this.#mayTryAgain && unit.writes.every(isRepeatable)
    const repeated = this.#units.filter(isRepeated)
    this.#units = this.#units.filter((unit) => !repeated.includes(unit))
    this.#giveUp(unknownOf(error))
    this.#units = repeated
  }

  #giveUp(error: Error): void {
    for (const {writes} of this.#units)
      for (const write of writes) this.#outcomes.set(write, {ok: false, error})
    this.#units = []
  }

  async #attempt(units: readonly Unit[]): Promise<Attempt> {
    const {primary} = this.#parts
    try {
      return await this.#pool.use((session) => this.#transaction(session, units))
    } catch (error) {
      const verdict = verdictOf(error)
      if (verdict === 'moved') primary.doubt()
      return {kind: 'failed', verdict, error}
    }
  }

  /** Throws when the fault is nobody's, with the session given up. */
  async #transaction(session: Session, units: readonly Unit[]): Promise<Attempt> {
    const {statements, limits, time} = this.#parts
    try {
      const now = await beginTransaction(session, 'READ COMMITTED', time)
      const tx = {now, dialect: postgresDialect, limits}
      const isLong = units.some(({name}) => WRITE_PLANS[name].isLong)
      if (isLong) await session.run(LONG_LIMITS)
      session.answerLimitMs = isLong ? LONG_STATEMENT_MS + ANSWER_LIMIT_MS : ANSWER_LIMIT_MS
      await statements.run(session, locksFor(units))
      const results: unknown[] = []
      for (const unit of units) {
        const refused = await this.#step(session, tx, unit, results)
        if (refused !== null) {
          await session.run('ROLLBACK')
          return refused
        }
      }
      return await this.#end(session, results)
    } catch (error) {
      session.destroy()
      throw error
    }
  }

  /** Runs a step; `null` and one more result, or why it is refused. */
  async #step(
    session: Session,
    tx: Transaction,
    unit: Unit,
    results: unknown[],
  ): Promise<Attempt | null> {
    try {
      results.push(await this.#parts.statements.run(session, stepOf(tx, unit)))
      return null
    } catch (error) {
      if (isOfTheDatabase(error) && verdictOf(error) !== 'fault') throw error
      return {kind: 'refused', unit, error: faultOf(error)}
    }
  }

  /** A commit that was refused changed nothing; one that was not answered, nobody knows. */
  async #end(session: Session, results: readonly unknown[]): Promise<Attempt> {
    try {
      if (await session.commit(COMMIT_LIMIT_MS)) return {kind: 'committed', results}
      const error = new Error('the server committed without waiting for its standbys')
      return {kind: 'unknown', error}
    } catch (error) {
      if (!(error instanceof ConnectionLost) && verdictOf(error) !== 'moved') throw error
      session.destroy()
      this.#parts.primary.doubt()
      return {kind: 'unknown', error}
    }
  }
}

function alone(write: Write): Unit {
  return {name: write.name, writes: [write]}
}

/** In the order their plan asks for, those that can be joined as one. */
function joined(writes: readonly Write[]): Unit[] {
  const units: Unit[] = []
  for (const write of sorted(writes)) {
    const last = units.at(-1)
    if (last?.name === write.name && WRITE_PLANS[write.name].merge !== null)
      units[units.length - 1] = {name: write.name, writes: [...last.writes, write]}
    else units.push(alone(write))
  }
  return units
}

function sorted(writes: readonly Write[]): readonly Write[] {
  const keyOf = ({name, input}: Write) => WRITE_PLANS[name].sortKey?.(input) ?? ''
  return writes.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
}

function stepOf(tx: Transaction, {name, writes}: Unit): Step<unknown> {
  const inputs = writes.map(({input}) => input)
  const {merge} = WRITE_PLANS[name]
  return writeStep(name)(tx, ...(merge === null ? inputs[0]! : merge.join(inputs)))
}

function cut({name, writes}: Unit, result: unknown): unknown[] {
  const {merge} = WRITE_PLANS[name]
  const inputs = writes.map(({input}) => input)
  return merge === null ? [result] : merge.split(inputs, result)
}

function* locksFor(units: readonly Unit[]): Step<void> {
  const writes = units.flatMap((unit) => unit.writes)
  const [first] = writes
  if (first === undefined) return
  if (WRITE_PLANS[first.name].lane === 'jobs') yield* lockDefinitions(writes)
  else if (first.name === 'join') yield* lockNames()
}

function isOfTheDatabase(error: unknown): boolean {
  return error instanceof ConnectionLost || sqlState(error) !== ''
}

/** A broken invariant or an expected refusal stays what it is; PostgreSQL's own errors get a sentence. */
function faultOf(error: unknown): Error {
  if (error instanceof Error && !isOfTheDatabase(error)) return error
  return new Error(`the store failed: ${textOf(error)}`, {cause: error})
}

function unknownOf(error: unknown): OutcomeUnknown {
  return new OutcomeUnknown(`whether it was stored is unknown: ${textOf(error)}`, {cause: error})
}
