/**
 * Decoder for bodies that are one JSON object with a few fields, by the schema of the body. An unknown field
 * is refused unless the schema allows it: a name that is misspelt must not become the default.
 */
import type {Static, TObject, TSchema} from 'typebox'
import type {ErrorCode} from '../core/error-codes.ts'
import {DomainError} from '../core/errors.ts'
import {FaultList, type Finding, sentenceOf} from '../core/findings.ts'
import {didYouMean} from '../lib/nearest.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {type Check, checkOf} from './check.ts'
import {isObject, readJsonBytes} from './json.ts'
import {describeFault} from './shapes.ts'

/** The error of a body that is refused. */
export interface BodyRefusal {
  readonly code: ErrorCode
  /** Begins the error: `The drain is invalid`. */
  readonly sentence: string
  /** The body is a secret: the error repeats no part of it, no name of a field and no text of the parser. */
  readonly isSecret?: boolean
}

interface Keywords {
  readonly additionalProperties?: boolean
  readonly anyOf?: readonly TSchema[]
  readonly patternProperties?: Readonly<Record<string, TSchema>>
}

type Fields = Readonly<Record<string, unknown>>

/**
 * An empty body has no fields. A refusal with the code `body_invalid` is only its sentence. The error names
 * all faults at once, by field, without the values. Throws `payload_unparsable`, and the code of the refusal.
 */
export function decodeBody<Schema extends TObject>(
  schema: Schema,
  bytes: Uint8Array,
  refusal: string | BodyRefusal,
): Static<Schema> {
  const refused = typeof refusal === 'string' ? bodyInvalid(refusal) : refusal
  const fields = readFields(schema, bytes, refused)
  requireNone(fieldFaults(schema, fields, refused), refused)
  return fields as Static<Schema> // each field was checked
}

function bodyInvalid(sentence: string): BodyRefusal {
  return {code: 'body_invalid', sentence}
}

/** The fields of the body, not checked yet. Throws as `decodeBody`. */
export function readFields(schema: TObject, bytes: Uint8Array, refusal: BodyRefusal): Fields {
  if (bytes.length === 0) return {}
  const json = readJsonBytes(bytes)
  const {isSecret = false} = refusal
  if (json.kind === 'syntax') {
    const problem = isSecret ? `the body must be JSON${exampleOf(schema)}` : json.problem
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${problem}`)
  }
  if (json.kind === 'content') {
    const hidden = 'the body contains a character or a name that is not allowed'
    throw invalid(refusal, isSecret ? hidden : json.problem)
  }
  if (isObject(json.value)) return json.value
  const known = Object.keys(schema.properties)
  const object = `a JSON object with ${known.join(', ')}`
  throw invalid(refusal, `the body must be ${known.length === 0 ? 'empty' : object}`)
}

/** Faults of all fields. */
export function fieldFaults(
  schema: TObject,
  fields: Fields,
  {isSecret = false}: Pick<BodyRefusal, 'isSecret'> = {},
): readonly Finding[] {
  const known = Object.keys(schema.properties)
  const faults = new FaultList()
  const unknown = Object.keys(fields).filter((each) => !known.includes(each))
  const advice = known.length === 0 ? 'send an empty body' : `the fields are ${known.join(', ')}`
  if ((schema as Keywords).additionalProperties === true) unknown.length = 0
  if (isSecret && unknown.length > 0) faults.add('', `unknown field; ${advice}`)
  else
    for (const field of unknown)
      faults.add(
        '',
        `unknown field ${quoteForMessage(field)}${didYouMean(field, known) || `; ${advice}`}`,
      )
  for (const [field, property] of Object.entries<TSchema>(schema.properties)) {
    const value = fields[field]
    if ((value ?? null) === null && schema.required?.includes(field))
      faults.add(field, `is missing${exampleOf(schema)}`)
    else if (value !== undefined && !checkFor(property)(value)) {
      const entries = entryFaults(field, property, value)
      for (const fault of entries) faults.add(fault.field, fault.problem)
      if (entries.length === 0) faults.add(field, describeFault(property, value))
    }
  }
  return faults.all
}

/** Faults of the entries of a map, such as `tags.web`. */
function entryFaults(field: string, schema: TSchema, value: unknown): readonly Finding[] {
  const {anyOf, patternProperties = {}} = schema as Keywords
  const [first] = anyOf ?? []
  if (first !== undefined) return entryFaults(field, first, value)
  const [inner] = Object.values(patternProperties)
  if (inner === undefined || !isObject(value)) return []
  return Object.entries(value)
    .filter(([, entry]) => !checkFor(inner)(entry))
    .map(([key, entry]) => ({field: `${field}.${key}`, problem: describeFault(inner, entry)}))
}

/** Throws the error with all of the faults, if there are any. */
export function requireNone(faults: readonly Finding[], refusal: BodyRefusal): void {
  if (faults.length > 0) throw invalid(refusal, faults.map(sentenceOf).join('; '))
}

function invalid({code, sentence}: BodyRefusal, problem: string): DomainError {
  return new DomainError(code, `${sentence}: ${problem}${problem.endsWith('?') ? '' : '.'}`)
}

function exampleOf({examples}: TObject & {readonly examples?: unknown}): string {
  return Array.isArray(examples) ? `. Send ${JSON.stringify(examples[0])}` : ''
}

const CHECKS = new WeakMap<TSchema, Check>()

function checkFor(schema: TSchema): Check {
  const check = CHECKS.get(schema) ?? checkOf(schema)
  CHECKS.set(schema, check)
  return check
}
