/**
 * The OpenAPI document as version 3.0, which some generators of clients need. It converts the keywords that
 * this API uses, no others: a test validates the result.
 */
import {isObject} from '../../wire/json.ts'

/** `document` is OpenAPI 3.1. */
export function asOpenApi30(document: object): object {
  return {...(converted(document) as object), openapi: '3.0.3'}
}

function converted(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(converted)
  if (!isObject(part)) return part
  const {anyOf, ...rest} = part
  const result: Record<string, unknown> = {}
  for (const [key, inner] of Object.entries(rest)) {
    // Keys in a list of properties are names, and their values are schemas.
    if (key === 'examples' && Array.isArray(inner)) result.example = inner[0]
    else result[key] = converted(inner)
  }
  if (anyOf === undefined) return result
  if (!Array.isArray(anyOf)) return {...result, anyOf: converted(anyOf)}
  const schemas = anyOf.filter((schema) => !isNullType(schema)).map(converted) as Schema[]
  const isNullable = schemas.length < anyOf.length
  const [only] = schemas
  if (schemas.length === 1 && only !== undefined)
    return {...(isNullable ? withNull(only) : only), ...result}
  const union = {...result, anyOf: schemas}
  return isNullable ? withNull(union) : union
}

type Schema = Readonly<Record<string, unknown>>

function isNullType(schema: unknown): boolean {
  return isObject(schema) && schema.type === 'null'
}

/** `nullable` counts only beside a `type`, and only if an enumeration has `null` too. */
function withNull(schema: Schema): Schema {
  if (Array.isArray(schema.anyOf)) {
    const [first, ...others] = schema.anyOf as Schema[]
    return {...schema, anyOf: [withNull(first ?? {}), ...others]}
  }
  const values = Array.isArray(schema.enum) ? {enum: [...(schema.enum as unknown[]), null]} : {}
  return {...schema, ...values, nullable: true}
}
