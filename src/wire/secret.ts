/** Secrets of jobs in JSON. A value is in a request only. */
import {type Static, Type} from 'typebox'
import {SECRET_BYTES_MAX} from '../core/secret.ts'
import {Time} from './shapes.ts'
import {formatTime} from './time.ts'

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
    value: Type.String({
      description: `6 characters or more, at most ${SECRET_BYTES_MAX} bytes. No reply has it.`,
    }),
  },
  {$id: 'NewSecret', description: 'The value of a secret.'},
)

/** Time in ms since the epoch. */
interface SecretFields {
  readonly name: string
  readonly setAt: number
  readonly setBy: string
}

export function encodeSecret({name, setAt, setBy}: SecretFields): SecretJson {
  return {name, set_at: formatTime(setAt), set_by: setBy}
}
