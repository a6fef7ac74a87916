/** Secrets of jobs. The store has only ciphertexts, and never the key. */
import type {Actor} from '../core/audit.ts'
import type {StorePermission} from '../core/access/job-permission.ts'

export interface SecretRecord {
  readonly name: string
  readonly setAt: number
  /** The `name` of the `Actor`. */
  readonly setBy: string
}

export interface SealedSecret {
  readonly name: string
  readonly ciphertext: string
}

export interface NewSecret extends SealedSecret {
  /** Fingerprint of the key it is encrypted with. */
  readonly keyId: string
  /** Changes that the caller may make to a secret of this name. */
  readonly may: StorePermission
}

export type PutSecretResult =
  | {readonly kind: 'stored'; readonly secret: SecretRecord; readonly created: boolean}
  /** The stored secrets are encrypted with another key. */
  | {readonly kind: 'other_key'}
  | {readonly kind: 'not_allowed'; readonly capability: 'create' | 'update'}
  /** The store has the maximum number of secrets. */
  | {readonly kind: 'full'}

/**
 * Result of comparing a server's key with the stored secrets. `missing`: there are secrets, and the server
 * has no key.
 */
export type SecretKeyCheck = 'ok' | 'other_key' | 'missing'

export interface SecretStore {
  /** Sorted by name. */
  secrets(): Promise<readonly SecretRecord[]>
  /** Secrets of these names that exist. */
  sealedSecrets(names: readonly string[]): Promise<readonly SealedSecret[]>
  /** Creates or replaces the secret of this name. */
  putSecret(secret: NewSecret, actor?: Actor): Promise<PutSecretResult>
  /** Returns the deleted secret; `null` = no such secret. */
  deleteSecret(name: string, actor?: Actor): Promise<SecretRecord | null>
  /** Deletes all of them, because their key is lost. Returns their names, sorted. */
  discardSecrets(): Promise<readonly string[]>
  /**
   * Compares the fingerprint of a server's key, `null` = it has none, with that of the stored secrets.
   */
  checkSecretKey(keyId: string | null): Promise<SecretKeyCheck>
}
