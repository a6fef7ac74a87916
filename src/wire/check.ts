/**
 * Checks of values against a schema. A check is compiled at its first use: each takes about a millisecond,
 * and a process uses few of them.
 */
import type {Static, TSchema} from 'typebox'
import {Compile, type Validator} from 'typebox/compile'

export type Check<Value = unknown> = (value: unknown) => value is Value

export function checkOf<Schema extends TSchema>(schema: Schema): Check<Static<Schema>> {
  let validator: Validator | null = null
  return (value): value is Static<Schema> => {
    validator ??= Compile(schema)
    return validator.Check(value)
  }
}
