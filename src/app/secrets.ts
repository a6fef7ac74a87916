/**
 * Opening of a server's vault: where the key of secrets is, and whether it is the key of the stored ones.
 */
import {join} from 'node:path'
import type {Config} from '../config/server.ts'
import {createSecretKey, readSecretKey, SecretVault} from '../platform/secret-vault.ts'
import type {Store} from '../ports/store.ts'
import {SettingRefused} from './start-refused.ts'

/** File in the data directory, made by the first secret. */
const KEY_FILE = 'secret-key'

/** Throws `SettingRefused`. */
export async function openVault(
  {secretKeyFile, discardSecrets, dataDirectory, store: {engine}}: Config,
  store: Pick<Store, 'checkSecretKey' | 'discardSecrets'>,
  warn: (sentence: string) => void,
): Promise<SecretVault> {
  // Only one server uses this data directory, so no other one needs the key.
  const ownFile = engine === 'sqlite' ? join(dataDirectory, KEY_FILE) : null
  const file = secretKeyFile ?? ownFile
  const read = file === null ? null : readSecretKey(file)
  const mayCreate = secretKeyFile === null && ownFile !== null
  if (read?.ok === false && !(mayCreate && read.isMissing))
    throw new SettingRefused(
      `The key file of secrets ${file} ${read.problem}. Set --secret-key-file to a file that only ` +
        'this user can read, with 32 random bytes: (umask 077; head -c 32 /dev/urandom > FILE).',
    )
  const vault = new SecretVault(
    read?.ok === true ? read.key : null,
    mayCreate ? () => createKey(ownFile) : null,
  )
  const check = await store.checkSecretKey(vault.keyId)
  if (check === 'ok') return vault
  if (discardSecrets) {
    const names = await store.discardSecrets()
    warn(`secrets were deleted, because this server has another key: ${names.join(', ')}`)
    return vault
  }
  const place = file === null ? '' : ` in ${file}`
  const problem =
    check === 'missing'
      ? `The store has secrets, and this server has no key for them${place}`
      : `The store has secrets that are encrypted with another key than that in ${file}`
  throw new SettingRefused(
    `${problem}. Set --secret-key-file to the key file that they were set with. If it is lost, start once ` +
      'with --discard-secrets, and set them again.',
  )
}

async function createKey(file: string): Promise<Uint8Array> {
  await createSecretKey(file)
  const read = readSecretKey(file)
  if (!read.ok) throw new Error(`the key file ${file} ${read.problem}`)
  return read.key
}
