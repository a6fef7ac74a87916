/**
 * Repeating a request under the same key: who asked for what, as the store needs it, and the refusal of a
 * second one while the first is still on its way here. What the first one answered is remembered by the
 * store, not here.
 */
import {createHash} from 'node:crypto'
import {DomainError} from '../core/errors.ts'
import type {Idempotency} from '../ports/job-store.ts'
import type {Caller} from './context.ts'

const KEY_LENGTH_MAX = 255

export class Idempotent {
  readonly #inProgress = new Set<string>()

  /**
   * Runs `work` with the identity of the request; `null` when it has no key. `parts` tell one request from
   * another. Throws `idempotency_in_progress` when the same key is at work here, `body_invalid` for a key
   * that is none.
   */
  async run<Answer>(
    caller: Caller,
    key: string | null,
    what: string,
    parts: readonly (string | Uint8Array)[],
    work: (idempotency: Idempotency | null) => Promise<Answer>,
  ): Promise<Answer> {
    if (key === null) return work(null)
    if (key === '' || key.length > KEY_LENGTH_MAX)
      throw new DomainError(
        'request_malformed',
        `Idempotency-Key must have 1 to ${KEY_LENGTH_MAX} characters.`,
      )
    const scope = `${caller.id}:${what}`
    const place = `${scope}\n${key}`
    if (this.#inProgress.has(place))
      throw new DomainError(
        'idempotency_in_progress',
        'A request with this Idempotency-Key is still in progress; ask again in a moment.',
        {retryAfterSeconds: 1},
      )
    this.#inProgress.add(place)
    try {
      return await work({key, scope, fingerprint: digest(parts)})
    } finally {
      this.#inProgress.delete(place)
    }
  }
}

export function idempotencyMismatch(): DomainError {
  return new DomainError(
    'idempotency_mismatch',
    'This Idempotency-Key was used for another request; use a new key.',
  )
}

function digest(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(String(part.length)).update('\n').update(part)
  return hash.digest('hex')
}
