/**
 * Facades of a store: the methods of the table, run by an engine. That of the process throws the errors of
 * the port. That of clients has deadlines, because no client waits for a store that does not answer, and
 * throws `DomainError`: a late read is `store_unavailable`, as is a call that changed nothing. A late write
 * is `outcome_unknown`, because it may still be stored. Nothing is repeated.
 */
import {DomainError} from '../../core/errors.ts'
import {secretsOf} from '../../core/secret.ts'
import type {ClaimResult} from '../../ports/node-store.ts'
import type {Clock} from '../../ports/runtime.ts'
import type {SealedSecret} from '../../ports/secret-store.ts'
import type {Store} from '../../ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import {DEADLINE_MS, LONG_WRITE_MS, type ReaderName} from './method.ts'
import {type EngineMethods, METHODS, type WriteName} from './methods.ts'
import type {Query, Transaction} from './query.ts'

/** How an engine runs the methods of the table. */
export interface StoreEngine {
  /** Reads one snapshot. `isLong`: as `ReadMethod.isLong`. */
  read(
    query: (tx: Transaction) => Query<unknown>,
    isLong: boolean,
    reader: ReaderName,
  ): Promise<unknown>
  /** Runs a transaction; resolves after its commit. Named, because the writer may be another thread. */
  write(name: WriteName, input: readonly unknown[]): Promise<unknown>
}

/** Decrypts a secret; `null` = it cannot be decrypted. */
export type OpenSecret = (name: string, ciphertext: string) => string | null

type MethodName = keyof typeof METHODS

/** Calls a method of the table by name. */
type Call = (name: MethodName, input: readonly unknown[]) => Promise<unknown>

export function processStore(
  engine: StoreEngine,
  own: EngineMethods,
  openSecret: OpenSecret = () => null,
): Store {
  const store = facadeOf((name, input) => {
    const method = METHOD_BY_NAME[name]
    if (method.kind === 'read')
      return engine.read((tx) => method.query(tx, ...input), method.isLong, method.reader)
    const written = engine.write(name as WriteName, method.detach(...input))
    return method.namesSecrets ? withValues(written as ClaimResults, store, openSecret) : written
  }, own)
  return store
}

/** The same store for requests of clients, whose reads never delay those of the process. */
export function clientStore(engine: StoreEngine, own: EngineMethods, clock: Clock): Store {
  return withDeadlines(
    (name, input) => {
      const method = METHOD_BY_NAME[name]
      if (method.kind === 'write') return engine.write(name as WriteName, method.detach(...input))
      const reader = method.isUnbounded(...input) ? 'lists' : 'requests'
      const query = (tx: Transaction) => method.query(tx, ...input)
      return engine.read(query, method.isLong, method.isOwn ? method.reader : reader)
    },
    own,
    clock,
  )
}

/** Applies the deadline and the errors of clients to each call. */
export function withDeadlines(call: Call, own: EngineMethods, clock: Clock): Store {
  const {info, backup, close} = own
  const inTime = (name: MethodName, input: readonly unknown[]) => {
    const method = METHOD_BY_NAME[name]
    const isRead = method.kind === 'read'
    const deadlineMs = isRead ? method.deadlineMs(...input) : method.deadlineMs
    const late = isRead ? unavailable : outcomeUnknown
    return withDeadline(clock, deadlineMs, late, () => call(name, input))
  }
  return facadeOf(inTime, {
    info: () => withDeadline(clock, DEADLINE_MS, unavailable, info),
    backup: (file) => withDeadline(clock, LONG_WRITE_MS, outcomeUnknown, () => backup(file)),
    close,
  })
}

function facadeOf(call: Call, own: EngineMethods): Store {
  const methods = Object.keys(METHODS).map((name) => [
    name,
    (...input: readonly unknown[]) => call(name as MethodName, input),
  ])
  // `satisfies PortMethods` has checked each entry; `Object.fromEntries` loses the names.
  return {...(Object.fromEntries(methods) as Omit<Store, keyof EngineMethods>), ...own}
}

type ClaimResults = Promise<readonly ClaimResult[]>

/**
 * Adds the values of the secrets that claimed definitions name. If they cannot be read, the claim fails: the
 * node repeats it, and gets the same executions.
 */
async function withValues(
  claimed: ClaimResults,
  store: {sealedSecrets(names: readonly string[]): Promise<readonly SealedSecret[]>},
  openSecret: OpenSecret,
): ClaimResults {
  const results = await claimed
  const names = new Set(results.flatMap(secretNames))
  if (names.size === 0) return results
  const values = new Map<string, string>()
  for (const {name, ciphertext} of await store.sealedSecrets([...names].toSorted())) {
    const value = openSecret(name, ciphertext)
    if (value !== null) values.set(name, value)
  }
  return results.map((result) => {
    const named = secretNames(result).filter((name) => values.has(name))
    return {
      ...result,
      secrets: Object.fromEntries(named.map((name) => [name, values.get(name)!])),
    }
  })
}

function secretNames({claimed}: ClaimResult): readonly string[] {
  return claimed.flatMap(({spec}) => secretsOf(spec))
}

const RETRY_AFTER_SECONDS = 1

function withDeadline<Answer>(
  clock: Clock,
  deadlineMs: number,
  late: () => DomainError,
  call: () => Promise<Answer>,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(deadlineMs, () => reject(late()))
    const settle = (finish: () => void) => {
      timer.cancel()
      finish()
    }
    call().then(
      (answer) => settle(() => resolve(answer)),
      (error: unknown) => settle(() => reject(asRefusal(error))),
    )
  })
}

function asRefusal(error: unknown): unknown {
  if (error instanceof StoreUnavailable) return unavailable(error)
  if (error instanceof OutcomeUnknown) return outcomeUnknown(error)
  return error
}

function unavailable(cause?: unknown): DomainError {
  return new DomainError('store_unavailable', 'The store does not answer; try again later.', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  })
}

function outcomeUnknown(cause?: unknown): DomainError {
  const advice = 'Whether the change was made is unknown; read it, or repeat with the same key.'
  return new DomainError('outcome_unknown', advice, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  })
}

/** A method with its input as data; the facade keeps a name and its input together. */
type AnyMethod =
  | {
      readonly kind: 'read'
      readonly isLong: boolean
      readonly isOwn: boolean
      readonly reader: 'services' | 'nodes'
      isUnbounded(...input: readonly unknown[]): boolean
      deadlineMs(...input: readonly unknown[]): number
      query(tx: Transaction, ...input: readonly unknown[]): Query<unknown>
    }
  | {
      readonly kind: 'write'
      readonly namesSecrets: boolean
      readonly deadlineMs: number
      detach(...input: readonly unknown[]): readonly unknown[]
    }

const METHOD_BY_NAME: Readonly<Record<MethodName, AnyMethod>> = METHODS
