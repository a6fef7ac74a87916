/**
 * Restore of jobs from a file, all of them or none. The jobs are checked one by one as they arrive: memory
 * holds only the definitions, of two files at a time, and the event loop is never blocked for long.
 */
import type {Actor} from '../core/audit.ts'
import {type Principal, shownJobs, type TokenKind} from '../core/access/authorization.ts'
import {decideStore, storeRefusal, storesJobs} from '../core/access/job-permission.ts'
import {DomainError} from '../core/errors.ts'
import {type Finding, sentenceOf} from '../core/findings.ts'
import {secretsOf} from '../core/secret.ts'
import type {RestoreProblem} from '../core/parents.ts'
import type {RestoreEntry} from '../ports/job-store.ts'
import type {SecretRecord} from '../ports/secret-store.ts'
import type {SentJob} from '../wire/definition.ts'
import type {OperationsContext} from './context.ts'
import {missingSecrets} from './secrets.ts'
import {shownPath, specToPermit, submissionsPaused} from './submit.ts'
import {
  openTagCheck,
  type TagCheck,
  validateDefinition,
  type ValidationContext,
} from './validate.ts'

/** More jobs than one node is designed for. Bounds the memory for a hostile file. */
const JOBS_MAX = 250_000
/** Problems in one reply. Decoding stops there: the file must be corrected in any case. */
const PROBLEMS_MAX = 100
/** Warnings of one restore: routes have little room for them. */
const WARNINGS_MAX = 20
const NAME_SHOWN_MAX = 200

interface EntryProblem {
  readonly name: string
  /** Absent = the problem is not one of a single field. */
  readonly field?: string
  /** A sentence, with the field. */
  readonly problem: string
  readonly code?: Finding['code']
}

export interface RestoreCall {
  readonly caller: Principal
  readonly actor: Actor
  /** Called once, unless submissions are paused. */
  readonly openFile: () => Promise<AsyncIterable<SentJob>>
  /** Import every job disabled. */
  readonly disabled: boolean
  /** An unknown field or parameter is a fault. */
  readonly strict?: boolean
}

export interface RestoreReply {
  /** Results as lines, one per job, in the order of the file. */
  readonly lines: readonly string[]
  readonly warnings: readonly string[]
}

export function createRestore(context: OperationsContext) {
  const {store, wakeup} = context
  /** A file may arrive slowly: that of a limited token must not keep the administrator from restoring. */
  const running = new Set<TokenKind>()

  /**
   * Throws `submissions_paused`, `restore_running`, `not_allowed`, `payload_unparsable`, `restore_invalid`,
   * `body_too_large`.
   */
  async function restore(call: RestoreCall): Promise<RestoreReply> {
    if (await store.submissionsPaused()) throw submissionsPaused()
    const {kind} = call.caller
    if (!storesJobs(call.caller))
      throw new DomainError('not_allowed', storeRefusal(call.caller, 'create', '*', null))
    if (running.has(kind))
      throw new DomainError(
        'restore_running',
        'The file cannot be restored now: another restore is in progress. Retry after its end.',
      )
    running.add(kind)
    try {
      return await restoreFile(call)
    } finally {
      running.delete(kind)
    }
  }

  async function restoreFile(call: RestoreCall): Promise<RestoreReply> {
    const {caller, actor, disabled} = call
    const tagCheck = await openTagCheck(() => store.members())
    const checker = new RestoreChecker(context, call, tagCheck, await store.secrets())
    for await (const job of await call.openFile()) checker.add(job)
    checker.finish()
    const options = {disabled, defaultOwner: caller.name, actor}
    const result = await store.restore(checker.entries, options)
    if (result.kind === 'paused') throw submissionsPaused()
    if (result.kind === 'refused')
      throw restoreInvalid(result.problems.map((problem) => shownProblem(caller, problem)))
    if (result.kind === 'not_allowed')
      throw restoreNotAllowed(
        result.names.map(({name, capability}) => {
          return {name, problem: storeRefusal(caller, capability, name, null)}
        }),
      )
    wakeup.notify('launch')
    const lines = result.lines.map(
      ({name, created}) => `success ${created ? 'create' : 'update'} ${name}`,
    )
    return {lines, warnings: checker.warnings.shown()}
  }

  return {restore}
}

/** Validates the jobs of a file. Collects problems up to the limit, not only the first. */
class RestoreChecker {
  readonly entries: RestoreEntry[] = []
  readonly warnings = new Warnings()
  readonly #context: ValidationContext
  readonly #caller: Principal
  readonly #strict: boolean
  readonly #names = new Set<string>()
  readonly #problems: EntryProblem[] = []
  readonly #forbidden: EntryProblem[] = []
  readonly #tagCheck: TagCheck
  readonly #secrets: readonly SecretRecord[]
  #count = 0

  constructor(
    context: ValidationContext,
    {caller, strict = false}: Pick<RestoreCall, 'caller' | 'strict'>,
    tagCheck: TagCheck,
    secrets: readonly SecretRecord[],
  ) {
    this.#context = context
    this.#caller = caller
    this.#strict = strict
    this.#tagCheck = tagCheck
    this.#secrets = secrets
  }

  add(job: SentJob): void {
    this.#count += 1
    if (this.#count > JOBS_MAX)
      throw new DomainError('body_too_large', `The file must have at most ${JOBS_MAX} jobs.`)
    const name = job.decoded.name.slice(0, NAME_SHOWN_MAX) || `element ${this.#count}`
    for (const fault of this.#check(job)) {
      const {field, code} = fault
      const coded = code === undefined ? {} : {code}
      this.#problems.push({name, field, problem: sentenceOf(fault), ...coded})
    }
    if (this.#problems.length >= PROBLEMS_MAX) this.finish()
  }

  /** Throws `not_allowed` or `restore_invalid` when there was a problem. */
  finish(): void {
    if (this.#forbidden.length > 0) throw restoreNotAllowed(this.#forbidden)
    if (this.#problems.length > 0) throw restoreInvalid(this.#problems)
  }

  /** Adds the job to `entries`, or returns its faults. */
  #check({decoded, counters, counterFaults, status}: SentJob): readonly Finding[] {
    const {name, spec} = decoded
    const isDecoded = decoded.faults.length === 0
    const decision = decideStore(this.#caller, name, specToPermit(decoded))
    if (!decision.allowed) {
      this.#forbidden.push({name: name.slice(0, NAME_SHOWN_MAX), problem: decision.sentence})
      if (this.#forbidden.length >= PROBLEMS_MAX) this.finish()
      return []
    }
    const findings = validateDefinition(this.#context, decoded, this.#strict)
    const faults = [...findings.faults, ...counterFaults]
    if (spec === null || !isDecoded) return faults
    faults.push(...missingSecrets(secretsOf(spec), this.#secrets))
    if (this.#names.has(spec.name))
      faults.push({field: 'name', problem: 'appears more than once in the file'})
    if (faults.length > 0) return faults
    this.#names.add(spec.name)
    this.entries.push({spec, counters, status, may: decision.may})
    const {warnings: found, ignored} = findings
    const warnings = [...found, ...ignored, ...this.#tagCheck(spec.tags)]
    for (const warning of warnings) this.warnings.add(spec.name, sentenceOf(warning))
    return []
  }
}

/** The first warnings of a file, and their number. */
class Warnings {
  readonly #first: string[] = []
  #count = 0

  add(name: string, warning: string): void {
    this.#count += 1
    if (this.#first.length < WARNINGS_MAX) this.#first.push(`${name}: ${warning}`)
  }

  shown(): readonly string[] {
    const first = this.#first
    return this.#count <= first.length
      ? first
      : [`${this.#count} warnings, of which ${first.length} follow`, ...first]
  }
}

function restoreNotAllowed(problems: readonly EntryProblem[]): DomainError {
  const shown = problems.slice(0, PROBLEMS_MAX)
  const detail = `Nothing was changed: ${shown[0]!.problem}`
  return new DomainError('not_allowed', detail, {members: {errors: shown}})
}

function shownProblem(
  caller: Principal,
  {name, problem, dependents = [], cycle = []}: RestoreProblem,
): EntryProblem {
  const shown =
    cycle.length > 0 ? shownPath(caller, cycle) : shownJobs(caller, dependents).join(', ')
  return {name, problem: shown === '' ? problem : `${problem}: ${shown}`}
}

function restoreInvalid(problems: readonly EntryProblem[]): DomainError {
  const shown = problems.slice(0, PROBLEMS_MAX)
  const [first] = shown
  const jobs = new Set(shown.map(({name}) => name)).size
  const detail =
    first === undefined
      ? 'The file cannot be restored.'
      : jobs === 1
        ? `1 job cannot be restored: "${first.name}": ${first.problem}`
        : `${jobs} jobs cannot be restored; the first is "${first.name}": ${first.problem}`
  return new DomainError('restore_invalid', detail, {members: {errors: shown}})
}
