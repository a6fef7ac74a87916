/**
 * Decoder for bodies that are one JSON object with a few fields, by the schema of the body. A field that is
 * not known is refused: a name that is misspelt must not become the default.
 */
import type {Static, TObject, TSchema} from 'typebox'
import {DomainError} from '../core/errors.ts'
import {FaultList, sentenceOf} from '../core/findings.ts'
import {type Check, checkOf} from './check.ts'
import {isObject, readJsonBytes} from './json.ts'
import {describeSchema} from './shapes.ts'

/** Length of a name in an error. */
const NAME_LENGTH_MAX = 100

const CHECKS = new WeakMap<TSchema, Check>()

/**
 * An empty body has no fields. `refusal` begins the error: `The drain is invalid`. The error names all
 * faults at once, by field, without the values. Throws `payload_unparsable`, `body_invalid`.
 */
export function decodeBody<Schema extends TObject>(
  schema: Schema,
  bytes: Uint8Array,
  refusal: string,
): Static<Schema> {
  const invalid = (problem: string) => new DomainError('body_invalid', `${refusal}: ${problem}.`)
  const known = Object.keys(schema.properties)
  const body = readBody(bytes, known, invalid)
  const faults = new FaultList()
  for (const field of Object.keys(body).filter((each) => !known.includes(each))) {
    const fix = known.length === 0 ? 'Send an empty body' : `Use ${known.join(', ')}`
    faults.add(field.slice(0, NAME_LENGTH_MAX), `is no field here. ${fix}`)
  }
  for (const [field, property] of Object.entries<TSchema>(schema.properties)) {
    const value = body[field]
    if ((value ?? null) === null && schema.required?.includes(field))
      faults.add(field, `is missing${exampleOf(schema)}`)
    else if (value !== undefined && !checkFor(property)(value))
      faults.add(field, describeSchema(property))
  }
  if (faults.all.length > 0) throw invalid(faults.all.map(sentenceOf).join('; '))
  return body as Static<Schema> // each field was checked
}

function exampleOf({examples}: TObject & {readonly examples?: unknown}): string {
  return Array.isArray(examples) ? `. Send ${JSON.stringify(examples[0])}` : ''
}

function checkFor(schema: TSchema): Check {
  const check = CHECKS.get(schema) ?? checkOf(schema)
  CHECKS.set(schema, check)
  return check
}

function readBody(
  bytes: Uint8Array,
  known: readonly string[],
  invalid: (problem: string) => DomainError,
): Readonly<Record<string, unknown>> {
  if (bytes.length === 0) return {}
  const json = readJsonBytes(bytes)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw invalid(json.problem)
  if (isObject(json.value)) return json.value
  throw invalid(
    known.length === 0
      ? 'the body must be empty'
      : `the body must be a JSON object with ${known.join(', ')}`,
  )
}
