/**
 * Runs batches of writes on one connection: one transaction a batch, one savepoint a write, or a run of
 * writes that one query carries out. Synchronous and without a clock, so that the same code runs in the
 * writer's thread and in simulations.
 */
import {assert} from '../../lib/assert.ts'
import {type WriteName, WRITES} from '../sql/methods.ts'
import type {Query, StoreLimits} from '../sql/query.ts'
import {type Connection, sqliteDialect} from './connection.ts'
import {
  commitFailureOf,
  errorOf,
  type Failure,
  failureOf,
  isDamaged,
  isUnavailable,
} from './errors.ts'

/** Write as it is sent to the writer's thread. */
export interface WriteRequest {
  readonly name: WriteName
  readonly input: readonly unknown[]
  /** The store's clock at the call, ms since the epoch. */
  readonly now: number
}

export type WriteAnswer =
  {readonly ok: true; readonly result: unknown} | {readonly ok: false; readonly failure: Failure}

/**
 * Answers as the writer's thread sends them. As text they take a third of the time that copies of the objects
 * take. So a result is plain data: no bytes, maps or sets.
 */
export function encodeAnswers(answers: readonly WriteAnswer[]): string {
  return JSON.stringify(answers)
}

/** The result of each write, in order, or the error that rejects it. */
export function decodeAnswers(text: string): readonly unknown[] {
  const answers = JSON.parse(text) as readonly WriteAnswer[]
  return answers.map((answer) => (answer.ok ? answer.result : errorOf(answer.failure)))
}

export class Engine {
  readonly #connection: Connection
  readonly #limits: StoreLimits
  /** Set for good by the first error that reports a corrupt file: nothing is written after it. */
  #damage: Failure | null = null

  constructor(connection: Connection, limits: StoreLimits) {
    this.#connection = connection
    this.#limits = limits
  }

  /**
   * Makes one durable commit for all writes. A write that fails is rolled back alone. If the store itself
   * fails (no space, an I/O error), nothing is changed and the writes are tried one by one: a write that is
   * too large for the disk fails alone. `alongside` writes in the same transaction; it is left out when the
   * writes are tried one by one.
   */
  commit(requests: readonly WriteRequest[], alongside?: () => void): WriteAnswer[] {
    if (this.#damage !== null) return refuseAll(requests, this.#damage)
    const answers = this.#tryTogether(requests, alongside)
    if (answers !== null) return answers
    return requests.map((request) => this.#tryAlone(request))
  }

  /** `null`: the store failed and nothing was changed. */
  #tryTogether(requests: readonly WriteRequest[], alongside?: () => void): WriteAnswer[] | null {
    const isDivisible = requests.length > 1 || alongside !== undefined
    try {
      this.#execute('BEGIN IMMEDIATE')
      const answers = mergeableRuns(requests).flatMap((run) => this.#savepoint(run))
      alongside?.()
      return this.#commit(answers, isDivisible)
    } catch (error) {
      this.#rollBack()
      if (isUnavailable(error) && isDivisible) return null
      return refuseAll(requests, this.#noted(failureOf(error)))
    }
  }

  #tryAlone(request: WriteRequest): WriteAnswer {
    const answers = this.#tryTogether([request])
    assert(answers?.length === 1, 'one write has one answer')
    return answers[0]!
  }

  /**
   * Runs writes in one savepoint. If merged ones fail, each runs alone. An error of a write is its answer; an
   * error of the store ends the batch.
   */
  #savepoint(requests: readonly WriteRequest[]): WriteAnswer[] {
    this.#execute('SAVEPOINT item')
    try {
      const results = this.#connection.run(this.#queryOf(requests))
      this.#execute('RELEASE item')
      return results.map((result) => ({ok: true, result}))
    } catch (error) {
      const isOfStore = isUnavailable(error) || isDamaged(error)
      if (isOfStore || !this.#connection.database.isTransaction) throw error
      this.#execute('ROLLBACK TO item')
      this.#execute('RELEASE item')
      if (requests.length > 1) return requests.flatMap((request) => this.#savepoint([request]))
      return [{ok: false, failure: failureOf(error)}]
    }
  }

  *#queryOf(requests: readonly WriteRequest[]): Query<readonly unknown[]> {
    const {name, input, now} = requests.at(-1)!
    const tx = {now, dialect: sqliteDialect, limits: this.#limits}
    const method = WRITES[name]
    if (requests.length === 1 || method.merged === undefined)
      return [yield* method.query(tx, ...input)]
    const items = requests.map((request) => request.input[0])
    return yield* method.merged(tx, items)
  }

  /** A failed commit changed nothing, except after an I/O error: then its outcome is unknown. */
  #commit(answers: WriteAnswer[], isDivisible: boolean): WriteAnswer[] | null {
    try {
      this.#execute('COMMIT')
      return answers
    } catch (error) {
      this.#rollBack()
      const failure = this.#noted(commitFailureOf(error))
      const isFinal = failure.kind === 'unknown' || failure.kind === 'damaged'
      if (!isFinal && isDivisible) return null
      return answers.map((answer) => (answer.ok ? {ok: false, failure} : answer))
    }
  }

  #noted(failure: Failure): Failure {
    if (failure.kind === 'damaged') this.#damage = failure
    return failure
  }

  #rollBack(): void {
    if (this.#connection.database.isTransaction) this.#execute('ROLLBACK')
  }

  #execute(sql: string): void {
    this.#connection.answer({kind: 'all', sql, values: []})
  }
}

/** Splits writes, in order, into runs for one query each: calls of one method without a conflict. */
function mergeableRuns(requests: readonly WriteRequest[]): WriteRequest[][] {
  const runs: WriteRequest[][] = []
  /** Keys of the last run; `null` = nothing joins it. */
  let taken: Set<string> | null = null
  for (const request of requests) {
    const {name, input} = request
    const method = WRITES[name]
    const keys = method.merged === undefined ? null : method.conflictKeys(...input)
    const last = runs.at(-1)
    const joins = last?.[0]!.name === name && keys?.some((key) => taken?.has(key) ?? true) === false
    if (joins) last.push(request)
    else runs.push([request])
    if (!joins) taken = keys === null ? null : new Set()
    for (const key of keys ?? []) taken?.add(key)
  }
  return runs
}

function refuseAll(requests: readonly WriteRequest[], failure: Failure): WriteAnswer[] {
  return requests.map(() => ({ok: false, failure}))
}
