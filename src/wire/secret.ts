/** Secrets of jobs in JSON. A value is in a request only. */
import {type Static, Type} from 'typebox'
import {SECRET_BYTES_MAX, secretProblem} from '../core/secret.ts'
import type {SecretRecord} from '../ports/secret-store.ts'
import {decodeBody} from './body.ts'
import {isLongerThan} from './json.ts'
import {Checked, Time} from './shapes.ts'
import {formatTime} from '../lib/rfc3339.ts'

export const Secret = Type.Object(
  {
    name: Type.String({description: 'What jobs write as `${secret:NAME}`.'}),
    set_at: Time('When its value was set.'),
    set_by: Type.String({
      description:
        'Name of the token that set it; `configured`, `local` or `belfry` without a stored one.',
    }),
  },
  {$id: 'Secret', description: 'A secret, without its value.'},
)
export type SecretJson = Static<typeof Secret>

export const NewSecret = Type.Object(
  {
    value: Checked(
      Type.String({
        description: `6 characters or more, at most ${SECRET_BYTES_MAX} bytes. No reply has it.`,
      }),
      (value) =>
        isLongerThan(value, SECRET_BYTES_MAX)
          ? `must have at most ${SECRET_BYTES_MAX} bytes`
          : secretProblem(value),
    ),
  },
  {$id: 'NewSecret', description: 'The value of a secret.', examples: [{value: '...'}]},
)

/** The value of a secret. Throws `payload_unparsable`, `secret_invalid`, which repeat no part of it. */
export function decodeSecret(bytes: Uint8Array): string {
  const sentence = 'The secret cannot be set'
  return decodeBody(NewSecret, bytes, {code: 'secret_invalid', sentence, isSecret: true}).value
}

export function encodeSecret({name, setAt, setBy}: SecretRecord): SecretJson {
  return {name, set_at: formatTime(setAt), set_by: setBy}
}
