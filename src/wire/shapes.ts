/**
 * Schema parts that several resources share: times, maps of strings, references. Their descriptions become
 * part of the OpenAPI document. Also the sentence that says what a schema expects. No resource is defined
 * here.
 */
import {type Static, Type, type TSchema} from 'typebox'
import {parseLength} from '../lib/duration.ts'
import {checkOf} from './check.ts'

/** The timestamp of an execution that has not started or finished. Clients of this API compare with it. */
export const ZERO_TIME = '0001-01-01T00:00:00Z'

/** Limit for one value of a map, in bytes of UTF-8. */
export const MAP_VALUE_BYTES_MAX = 64 * 1024
export const MAP_KEY_LENGTH_MAX = 256

export const Time = (description: string) =>
  Type.String({format: 'date-time', description, examples: ['2026-05-01T08:30:00.000Z']})

export const OptionalTime = (description: string) =>
  Type.Union([Time(description), Type.Null()], {description})

/**
 * Values with a rule that JSON Schema cannot express. `problemOf` returns the end of a sentence, as
 * `describeSchema` does; `null` = valid. `expected` is that of a value of another type.
 */
export function Checked<Schema extends TSchema>(
  schema: Schema,
  problemOf: (value: Static<Schema>) => string | null,
  expected = describeSchema(schema),
): Schema {
  const isOfType = checkOf(schema)
  return Type.Refine(
    schema,
    (value) => isOfType(value) && problemOf(value) === null,
    (value) => (isOfType(value) ? problemOf(value) : null) ?? expected,
  )
}

/** A text in a request that must have the form that `isValid` knows; empty = not set. */
export function TextForm(
  description: string,
  expected: string,
  isValid: (text: string) => boolean,
) {
  const problemOf = (text: string) => (text === '' || isValid(text) ? null : expected)
  return Checked(Type.String({description}), problemOf, expected)
}

export const Duration = (description: string) =>
  TextForm(
    description,
    'must be a duration such as "10m" or "1h30m"',
    (text) => parseLength(text) !== null,
  )

/** A map of strings in a response. */
export const TextMap = (description: string) =>
  Type.Record(Type.String(), Type.String(), {description})

/** A map of strings in a request. Booleans and numbers are stored as their text; `null` means not set. */
export const TextMapInput = (description: string, entriesMax: number) =>
  Type.Record(
    Type.String({maxLength: MAP_KEY_LENGTH_MAX}),
    Type.Union([
      Type.String({description: `At most ${MAP_VALUE_BYTES_MAX} bytes.`}),
      Type.Boolean(),
      Type.Number(),
      Type.Null(),
    ]),
    {description, maxProperties: entriesMax},
  )

/** An optional field. `null` means the same as leaving it out. */
export const MayBeUnset = <Schema extends TSchema>(schema: Schema) =>
  Type.Optional(Type.Union([schema, Type.Null()]))

type Named<Schema extends TSchema> = Schema & {$id?: string}

const REFERENCED = new Set<TSchema>()

/** Name of a schema in the OpenAPI document, for texts. */
export function schemaName(schema: Named<TSchema>): string {
  REFERENCED.add(schema)
  return schema.$id ?? ''
}

/** A reference to a named schema of the OpenAPI document, typed as that schema. */
export const schemaRef = <Schema extends TSchema>(schema: Named<Schema>) =>
  Type.Unsafe<Type.Static<Schema>>({$ref: `${schemaName(schema)}#`})

/** Every schema that was referenced: the named schemas of the OpenAPI document. */
export function referencedSchemas(): readonly TSchema[] {
  return [...REFERENCED]
}

interface Keywords {
  readonly type?: string
  readonly format?: string
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly TSchema[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
}

/**
 * Rule of a schema as the end of a sentence: `must be an integer from 0 to 100`. Derived from the schema,
 * so that the error message always matches the rule. Knows only the keywords this API uses. `null` as an
 * alternative is not mentioned: it means the same as leaving the field out.
 */
export function describeSchema(schema: TSchema): string {
  return describeFault(schema, undefined)
}

/** Rule that the value breaks, written like that of `describeSchema`. */
export function describeFault(schema: TSchema, value: unknown): string {
  if (Type.IsRefine(schema)) return schema['~refine'][0]!.error(value)
  const keywords = schema as Keywords
  if (keywords.anyOf !== undefined) {
    const [first] = keywords.anyOf
    return first === undefined ? 'is not allowed' : describeFault(first, value)
  }
  if (keywords.enum !== undefined) {
    const values = keywords.enum
      .filter((value) => value !== '')
      .map((value) => `"${String(value)}"`)
    return `must be ${values.join(' or ')}`
  }
  if (keywords.type === 'array') return 'must be a list of strings'
  if (keywords.type === 'boolean') return 'must be true or false'
  if (keywords.type === 'integer' || keywords.type === 'number') return `must be ${range(keywords)}`
  if (keywords.format === 'date-time') return 'must be a time such as "2026-05-01T08:30:00Z"'
  if (keywords.type === 'string')
    return keywords.maxLength === undefined
      ? 'must be a string'
      : `must be a string of at most ${keywords.maxLength} characters`
  return 'has the wrong type'
}

function range(keywords: Keywords): string {
  const noun = keywords.type === 'integer' ? 'an integer' : 'a number'
  const {minimum, maximum} = keywords
  if (minimum !== undefined && maximum !== undefined) return `${noun} from ${minimum} to ${maximum}`
  if (minimum !== undefined) return `${noun} of at least ${minimum}`
  return noun
}
