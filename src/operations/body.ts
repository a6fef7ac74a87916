/** Bodies of requests that are one JSON object with a few fields. */
import {DomainError} from '../core/errors.ts'
import {escapeInvisible} from '../lib/quote.ts'
import {isObject, readJsonBytes} from '../wire/json.ts'

/** Length of a name in an error. */
const NAME_LENGTH_MAX = 100

/**
 * An empty body has no fields. A field that is not known is refused: a name that is misspelt must not become
 * the default. `invalid` makes the error from a clause. Throws it, and `payload_unparsable`.
 */
export function readFields(
  body: Uint8Array,
  known: readonly string[],
  invalid: (problem: string) => DomainError,
): Readonly<Record<string, unknown>> {
  if (body.length === 0) return {}
  const json = readJsonBytes(body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw invalid(json.problem)
  if (!isObject(json.value)) {
    const names = known.join(', ')
    throw invalid(
      known.length === 0
        ? 'the body must be empty'
        : `the body must be a JSON object with ${names}`,
    )
  }
  const unknown = Object.keys(json.value).find((field) => !known.includes(field))
  if (unknown === undefined) return json.value
  const fix = known.length === 0 ? 'Send an empty body' : `Use ${known.join(', ')}`
  throw invalid(`${escapeInvisible(unknown.slice(0, NAME_LENGTH_MAX))}: is no field here. ${fix}`)
}
