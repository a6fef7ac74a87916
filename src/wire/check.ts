/**
 * Checks of values against a schema. A check is compiled at its first use: each takes about a millisecond,
 * and a process uses few of them.
 */
import type {Static, TSchema} from 'typebox'
import {Compile, type Validator} from 'typebox/compile'
import {Set as setFormat} from 'typebox/format'
import {parseTime} from '../lib/rfc3339.ts'

// Times of requests, in every form that the API reads; empty = not set.
setFormat('date-time', (text) => text === '' || parseTime(text) !== null)

export type Check<Value = unknown> = (value: unknown) => value is Value

export function checkOf<Schema extends TSchema>(schema: Schema): Check<Static<Schema>> {
  let validator: Validator | null = null
  return (value): value is Static<Schema> => {
    validator ??= Compile(schema)
    return validator.Check(value)
  }
}
