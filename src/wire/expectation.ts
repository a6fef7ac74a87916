/**
 * What a schema expects, as the end of a sentence: `must be an integer from 0 to 100`. Derived, so that the
 * sentence a caller gets and the rule that refused cannot drift apart.
 */
import type {TSchema} from 'typebox'

interface Keywords {
  readonly type?: string
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly TSchema[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
}

/**
 * Reads the keywords this interface uses. `null` as an alternative is not mentioned: leaving out is the same.
 */
export function expectation(schema: TSchema): string {
  const keywords = schema as Keywords
  if (keywords.anyOf !== undefined) {
    const [first] = keywords.anyOf
    return first === undefined ? 'is not allowed' : expectation(first)
  }
  if (keywords.enum !== undefined) {
    const values = keywords.enum
      .filter((value) => value !== '')
      .map((value) => `"${String(value)}"`)
    return `must be ${values.join(' or ')}`
  }
  if (keywords.type === 'boolean') return 'must be true or false'
  if (keywords.type === 'integer' || keywords.type === 'number') return `must be ${range(keywords)}`
  if (keywords.type === 'string')
    return keywords.maxLength === undefined
      ? 'must be a text'
      : `must be a text of at most ${keywords.maxLength} characters`
  return 'has the wrong form'
}

function range(keywords: Keywords): string {
  const noun = keywords.type === 'integer' ? 'an integer' : 'a number'
  const {minimum, maximum} = keywords
  if (minimum !== undefined && maximum !== undefined) return `${noun} from ${minimum} to ${maximum}`
  if (minimum !== undefined) return `${noun} of at least ${minimum}`
  return noun
}
