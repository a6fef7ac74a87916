/**
 * Deadlines of store calls: no caller waits for a store that does not answer. A read that is too late becomes
 * `store_unavailable`. A write that is too late becomes `outcome_unknown`, because it may still be stored.
 * Nothing is ever repeated.
 */
import {DomainError} from '../core/errors.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Slice} from '../ports/page.ts'
import type {Store} from '../ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import {PAGE_ROWS_MAX} from '../wire/query.ts'

/** Longer than any healthy answer, short enough for a person and for a client's own timeout. */
export const STORE_DEADLINE_MS = 5_000
/** Lists without an end, or of more than a page: all jobs, or all executions of one. */
export const LONG_READ_MS = 30_000
/** Restoring a hundred thousand jobs, or copying a database. */
export const LONG_WRITE_MS = 600_000

const RETRY_AFTER_SECONDS = 1

/** Store methods that operations call, each with its deadline. A new one is a line here. */
const DEADLINES = {
  submit: write(),
  previewSubmit: read(),
  earlierSubmit: read(),
  restore: write(LONG_WRITE_MS),
  toggle: write(),
  deleteJob: write(),
  requestRun: write(),
  earlierRun: read(),
  resetHistory: write(),
  job: read(),
  jobs: list((query) => query),
  paused: read(),
  setPaused: write(),
  firingPaused: read(),
  resumeFiring: write(LONG_WRITE_MS),
  defaultTimezone: read(),
  setTimezone: write(),
  firingPauses: read(),
  pauseFiring: write(),
  endFiringPause: write(),

  executions: list((_name, query) => query),
  execution: read(),
  outputSince: read(),
  busy: list((query) => query),
  launches: read(),
  launch: read(),
  statistics: read(),
  totals: read(),
  usage: read(),
  backupState: read(),
  leader: read(),

  members: read(),
  nodeLoads: read(),
  setScheduling: write(),
  removeMember: write(),
  cancelExecution: write(),

  policies: read(),
  policy: read(),
  putPolicy: write(),
  deletePolicy: write(),
  tokens: read(),
  token: read(),
  createToken: write(),
  sessions: read(),
  createSession: write(),
  deleteToken: write(),

  revisions: read(),
  revision: read(),
  audit: list((query) => query),
  recordAudit: write(),

  secrets: read(),
  putSecret: write(),
  deleteSecret: write(),

  info: read(),
  backup: write(LONG_WRITE_MS),
} satisfies {readonly [Name in keyof Store]?: Deadline<Parameters<Store[Name]>>}

interface Deadline<Input extends readonly unknown[]> {
  readonly deadlineMs: (...input: Input) => number
  /** The refusal of a call without an answer in time. */
  readonly late: () => DomainError
}

/** The store as operations see it. Methods throw `DomainError` in place of the errors of the port. */
export type StoreWithDeadlines = Pick<Store, keyof typeof DEADLINES>

export function withDeadlines(store: Store, clock: Clock): StoreWithDeadlines {
  const methods = Object.entries<AnyDeadline>(DEADLINES).map(([name, deadline]) => {
    const call = (...input: unknown[]) => {
      const method = store[name as keyof StoreWithDeadlines] as AnyMethod
      return withDeadline(clock, deadline.deadlineMs(...input), deadline.late, () =>
        method.apply(store, input),
      )
    }
    return [name, call]
  })
  // Each method keeps the type it has on the store; `Object.fromEntries` loses the names.
  return Object.fromEntries(methods) as StoreWithDeadlines
}

/** Applies the deadline of store reads, for reads that another part of the program makes. */
export function readWithDeadline<Answer>(
  clock: Clock,
  call: () => Promise<Answer>,
): Promise<Answer> {
  return withDeadline(clock, STORE_DEADLINE_MS, unavailable, call)
}

/** Deadline and method with the input as data; the facade keeps a name and its input together. */
interface AnyDeadline {
  deadlineMs(...input: readonly unknown[]): number
  late(): DomainError
}
type AnyMethod = (...input: unknown[]) => Promise<unknown>

function read(deadlineMs = STORE_DEADLINE_MS) {
  return {deadlineMs: () => deadlineMs, late: unavailable}
}

function write(deadlineMs = STORE_DEADLINE_MS) {
  return {deadlineMs: () => deadlineMs, late: outcomeUnknown}
}

/** A slice of more than a page takes as long as there are rows. */
function list<Input extends readonly unknown[]>(
  sliceOf: (...input: Input) => Slice,
): Deadline<Input> {
  const deadlineMs = (...input: Input) => {
    const {start, end} = sliceOf(...input)
    return end === null || end - start > PAGE_ROWS_MAX ? LONG_READ_MS : STORE_DEADLINE_MS
  }
  return {deadlineMs, late: unavailable}
}

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
