/**
 * Restoring jobs from a file, all of them or none. The file is read job by job as it arrives, so that its
 * size costs memory only for the definitions that are kept, and no long pause.
 */
import {DomainError} from '../core/errors.ts'
import type {RestoreEntry} from '../ports/job-store.ts'
import {decodeCounters, decodeJob} from '../wire/decode-job.ts'
import {JsonArraySplitter, NotAnArray} from '../wire/json-array.ts'
import {isObject, readJsonBytes} from '../wire/json.ts'
import type {Principal, OperationsDependencies} from './context.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'
import {validateDefinition, submissionsPaused} from './submit.ts'

/** One job; the same limit as a submit. */
const JOB_BYTES_MAX = 1024 * 1024
/** More than one node is made for; bounds the memory of a hostile file. */
const JOBS_MAX = 250_000
/** Problems told in one answer; reading stops there, since somebody has to repair them anyway. */
const PROBLEMS_MAX = 100

interface EntryProblem {
  readonly name: string
  readonly problem: string
}

export interface RestoreCall {
  readonly caller: Principal
  /** Called once, unless submissions are paused. */
  readonly openFile: () => Promise<AsyncIterable<Uint8Array>>
  /** Import every job disabled. */
  readonly disabled: boolean
}

export function createRestore(dependencies: OperationsDependencies, store: StoreWithDeadlines) {
  /**
   * One line a job, in the order of the file. Throws `submissions_paused`, `payload_unparsable`,
   * `restore_invalid`.
   */
  async function restore(call: RestoreCall): Promise<readonly string[]> {
    if (await store.paused()) throw submissionsPaused()
    const reading = new FileReading(dependencies, call.caller)
    await readFile(await call.openFile(), reading)
    const result = await store.restore(reading.entries, {disabled: call.disabled})
    if (result.kind === 'paused') throw submissionsPaused()
    if (result.kind === 'refused') throw restoreInvalid(result.problems)
    dependencies.wakeup.notify('launch')
    return result.lines.map(({name, created}) => `success ${created ? 'create' : 'update'} ${name}`)
  }

  return {restore}
}

async function readFile(file: AsyncIterable<Uint8Array>, reading: FileReading): Promise<void> {
  const splitter = new JsonArraySplitter(JOB_BYTES_MAX)
  try {
    for await (const bytes of file)
      for (const element of splitter.push(bytes)) reading.take(element)
    splitter.end()
  } catch (error) {
    if (!(error instanceof NotAnArray)) throw error
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${error.message}.`, {
      cause: error,
    })
  }
  reading.finish()
}

/** What was read so far. A problem never hides the ones after it, up to the limit. */
class FileReading {
  readonly entries: RestoreEntry[] = []
  readonly #dependencies: OperationsDependencies
  readonly #caller: Principal
  readonly #names = new Set<string>()
  readonly #problems: EntryProblem[] = []
  #count = 0

  constructor(dependencies: OperationsDependencies, caller: Principal) {
    this.#dependencies = dependencies
    this.#caller = caller
  }

  take(element: Uint8Array): void {
    this.#count += 1
    if (this.#count > JOBS_MAX)
      throw new DomainError('body_too_large', `A file may hold at most ${JOBS_MAX} jobs.`)
    const json = readJsonBytes(element)
    if (json.kind === 'syntax')
      throw new DomainError(
        'payload_unparsable',
        `Unable to parse payload: element ${this.#count}: ${json.problem}`,
      )
    const name = nameOf(json)
    const problem = json.kind === 'content' ? json.problem : this.#keep(json.value)
    if (problem === null) return
    this.#problems.push({name: name === '' ? `element ${this.#count}` : name, problem})
    if (this.#problems.length >= PROBLEMS_MAX) this.finish()
  }

  /** Throws `restore_invalid` when there was a problem. */
  finish(): void {
    if (this.#problems.length > 0) throw restoreInvalid(this.#problems)
  }

  /** Keeps one job; answers what is wrong with it instead, or `null`. */
  #keep(value: unknown): string | null {
    const reading = decodeJob(value)
    if (!reading.ok) return reading.problem
    const spec = {...reading.spec, owner: reading.spec.owner || this.#caller.name}
    const [problem] = validateDefinition(this.#dependencies, spec).problems
    if (problem !== undefined) return problem
    if (this.#names.has(spec.name)) return 'name: stands more than once in the file'
    const counted = decodeCounters(value)
    if (!counted.ok) return counted.problem
    this.#names.add(spec.name)
    this.entries.push({spec, counters: counted.counters})
    return null
  }
}

function nameOf(json: ReturnType<typeof readJsonBytes>): string {
  if (json.kind !== 'value' || !isObject(json.value)) return ''
  return typeof json.value.name === 'string' ? json.value.name.slice(0, 200) : ''
}

function restoreInvalid(problems: readonly EntryProblem[]): DomainError {
  const shown = problems.slice(0, PROBLEMS_MAX)
  const [first] = shown
  const detail =
    first === undefined
      ? 'The file cannot be restored.'
      : `${shown.length} of the jobs cannot be restored; the first is "${first.name}": ${first.problem}`
  return new DomainError('restore_invalid', detail, {members: {errors: shown}})
}
