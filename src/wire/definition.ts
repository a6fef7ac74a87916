/**
 * Definitions of jobs as requests send them: whole, as a merge patch, in a restore file. A text that is not
 * JSON is a value here, not an error: operations check other things first, in the order of the API contract.
 */
import type {JobCounters, JobSpec, JobStatus} from '../core/job.ts'
import {DomainError} from '../core/errors.ts'
import type {Finding} from '../core/findings.ts'
import {decodeCounters, type DecodedJob, decodeJob, decodeStatus} from './decode-job.ts'
import {encodeDefinition} from './job.ts'
import {JsonArrayError, JsonArraySplitter} from './json-array.ts'
import {isObject, type JsonResult, readJsonBytes} from './json.ts'

/** A text that is not JSON, or JSON with content that is rejected. */
type Unreadable = Exclude<JsonResult, {readonly kind: 'value'}>

export type SentDefinition =
  Unreadable | {readonly kind: 'definition'; readonly decoded: DecodedJob}

/** `apply` merges the patch into a definition. */
export type SentPatch =
  Unreadable | {readonly kind: 'patch'; readonly apply: (spec: JobSpec) => DecodedJob}

/** A job of a restore file. */
export interface SentJob {
  readonly decoded: DecodedJob
  readonly counters: JobCounters
  readonly counterFaults: readonly Finding[]
  readonly status: JobStatus
}

/** A body without a name gets that of the path; `null` = the path has none. */
export function decodeDefinition(bytes: Uint8Array, pathName: string | null): SentDefinition {
  const json = readJsonBytes(bytes)
  if (json.kind !== 'value') return json
  return {kind: 'definition', decoded: decodeJob(withName(json.value, pathName))}
}

/** A JSON merge patch (RFC 7396). */
export function decodePatch(bytes: Uint8Array): SentPatch {
  const json = readJsonBytes(bytes)
  if (json.kind !== 'value') return json
  const apply = (spec: JobSpec) =>
    decodeJob(withName(mergePatch(encodeDefinition(spec), json.value), spec.name))
  return {kind: 'patch', apply}
}

function withName(body: unknown, name: string | null): unknown {
  if (name === null || !isObject(body)) return body
  return (body.name ?? null) === null ? {...body, name} : body
}

/** RFC 7396: objects are merged, `null` removes, everything else replaces. Bounded by the depth of JSON. */
function mergePatch(target: unknown, changes: unknown): unknown {
  if (!isObject(changes)) return changes
  const merged: Record<string, unknown> = isObject(target) ? {...target} : {}
  for (const [key, value] of Object.entries(changes))
    if (value === null) delete merged[key]
    else merged[key] = mergePatch(merged[key], value)
  return merged
}

/** The jobs of a JSON array, one by one as it arrives. Throws `payload_unparsable`. */
export async function* decodeRestore(
  file: AsyncIterable<Uint8Array>,
  jobBytesMax: number,
): AsyncGenerator<SentJob> {
  const splitter = new JsonArraySplitter(jobBytesMax)
  let count = 0
  try {
    for await (const bytes of file)
      for (const element of splitter.push(bytes)) {
        count += 1
        yield sentJob(readJsonBytes(element), count)
      }
    splitter.end()
  } catch (error) {
    if (!(error instanceof JsonArrayError)) throw error
    throw unparsable(`${error.message}.`, error)
  }
}

function sentJob(json: JsonResult, count: number): SentJob {
  if (json.kind === 'syntax') throw unparsable(`element ${count}: ${json.problem}`)
  const value = json.kind === 'value' ? json.value : {}
  const {counters, faults: counterFaults} = decodeCounters(value)
  const decoded = json.kind === 'value' ? decodeJob(value) : undecoded(json.finding)
  return {decoded, counters, counterFaults, status: decodeStatus(value)}
}

function undecoded(fault: Finding): DecodedJob {
  return {name: '', spec: null, faults: [fault], warnings: [], ignoredFields: []}
}

function unparsable(problem: string, cause?: unknown): DomainError {
  return new DomainError('payload_unparsable', `Unable to parse payload: ${problem}`, {cause})
}
