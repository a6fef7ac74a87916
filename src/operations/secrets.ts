/**
 * Secrets of jobs: set, listed by name, deleted. A value comes in with one request and never goes out: the
 * store has its ciphertext, and no error repeats it. In policies, `read` of a secret is the right to use
 * it in a job.
 */
import type {Actor} from '../core/audit.ts'
import {check, type Principal, refusalSentence} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import type {Finding} from '../core/findings.ts'
import {SECRET_NAME, secretPath, SECRETS_MAX} from '../core/secret.ts'
import type {NewSecret, SecretRecord} from '../ports/secret-store.ts'
import type {OperationsContext} from './context.ts'

const HOW_TO_GET_A_KEY =
  'Make one with `(umask 077; head -c 32 /dev/urandom > secret-key)`, and start all servers with ' +
  '--secret-key-file and this file.'

export function createSecrets({store, vault}: OperationsContext) {
  /** Secrets that the caller may use, sorted by name. */
  async function secrets(caller: Principal): Promise<readonly SecretRecord[]> {
    const all = await store.secrets()
    return all.filter(({name}) => check(caller, 'read', secretPath(name)).allowed)
  }

  /**
   * `value` is valid by `secretProblem`. Throws `not_allowed`, `secret_invalid`, `secret_key_unusable`,
   * `too_many_secrets`.
   */
  async function putSecret(
    caller: Principal,
    name: string,
    value: string,
    actor: Actor,
  ): Promise<{readonly secret: SecretRecord; readonly created: boolean}> {
    const path = secretPath(name)
    const [create, update] = [check(caller, 'create', path), check(caller, 'update', path)]
    if (!SECRET_NAME.test(name))
      throw new DomainError(
        'secret_invalid',
        'The secret cannot be set: the name must have 1 to 128 letters, digits, ".", "_" and "-"; it ' +
          'cannot be "." or "..".',
      )
    const sealed = await sealSecret(vault, name, value, 'The secret')
    const may = {create: create.allowed, update: update.allowed}
    const result = await store.putSecret({...sealed, may}, actor)
    if (result.kind === 'stored') return result
    if (result.kind !== 'not_allowed') throw secretRefused(result.kind, 'The secret')
    const sentence = refusalSentence(caller, result.capability === 'create' ? create : update)
    throw new DomainError('not_allowed', sentence)
  }

  /** Runs that name it fail from now on. Throws `secret_unknown`. */
  async function deleteSecret(name: string, actor: Actor): Promise<SecretRecord> {
    const deleted = await store.deleteSecret(name, actor)
    if (deleted === null)
      throw new DomainError('secret_unknown', `There is no secret named "${name.slice(0, 128)}".`)
    return deleted
  }

  return {secrets, putSecret, deleteSecret}
}

/** `thing` cannot be set without a key. Throws `secret_key_unusable`. */
export async function sealSecret(
  vault: OperationsContext['vault'],
  name: string,
  value: string,
  thing: string,
): Promise<Omit<NewSecret, 'may'>> {
  const sealed = await vault.seal(name, value)
  if (sealed !== null) return {name, ...sealed}
  throw new DomainError(
    'secret_key_unusable',
    `${thing} cannot be set: this server has no key to encrypt it. ${HOW_TO_GET_A_KEY}`,
  )
}

/** Why the store did not take a secret. */
export function secretRefused(kind: 'other_key' | 'full', thing: string): DomainError {
  return kind === 'other_key'
    ? new DomainError(
        'secret_key_unusable',
        `${thing} cannot be set: the stored secrets are encrypted with another key than that of ` +
          'this server. Start it with the --secret-key-file of the other servers.',
      )
    : new DomainError(
        'too_many_secrets',
        `${thing} cannot be set: there are ${SECRETS_MAX} secrets. Delete some of them first.`,
      )
}

/** A problem of a definition that names these secrets; `null` = all of them are stored. */
export function missingSecrets(
  names: readonly string[],
  stored: readonly SecretRecord[],
): readonly Finding[] {
  const missing = names.filter((name) => !stored.some((secret) => secret.name === name))
  return missing.map((name) => {
    const problem = `there is no secret "${name}"; set it with belfry secret set ${name}`
    return {field: 'executor_config', problem}
  })
}
