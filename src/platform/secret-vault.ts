/**
 * Vault: encrypts and decrypts the secrets of jobs with the key of the servers. The key is in a file of
 * its own, never in the store; the store has its fingerprint. AES-256-GCM; a ciphertext belongs to the
 * name of its secret, so that one cannot be put in the place of another. Values are never logged.
 */
import {createCipheriv, createDecipheriv, createHmac, randomBytes} from 'node:crypto'
import {closeSync, constants, fstatSync, openSync, readFileSync} from 'node:fs'
import {codeOf} from '../lib/error.ts'
import {createFile} from './durable-file.ts'

const KEY_BYTES = 32
const CIPHER = 'aes-256-gcm'
/** Length that the algorithm defines. Random: the number of writes of a key is far below 2^32. */
const NONCE_BYTES = 12
const TAG_BYTES = 16
/** The first part of a ciphertext, should another algorithm follow. */
const FORMAT = 'v1'
const OTHERS = 0o077
const OTHERS_BUT_GROUP_READS = 0o037

export interface Sealed {
  readonly ciphertext: string
  /** Fingerprint of the key, which reveals nothing of it. */
  readonly keyId: string
}

export class SecretVault {
  #key: Uint8Array | null
  readonly #create: (() => Promise<Uint8Array>) | null

  /** `create` makes the key when it is first needed; `null` = this server has none. */
  constructor(key: Uint8Array | null, create: (() => Promise<Uint8Array>) | null) {
    this.#key = key
    this.#create = create
  }

  /** `null` = there is no key yet. */
  get keyId(): string | null {
    return this.#key === null ? null : fingerprintOf(this.#key)
  }

  /** `null` = this server has no key and may not make one. Throws errors of the file system. */
  async seal(name: string, value: string): Promise<Sealed | null> {
    this.#key ??= (await this.#create?.()) ?? null
    if (this.#key === null) return null
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, this.#key, nonce).setAAD(boundTo(name))
    const encrypted = [cipher.update(value, 'utf8'), cipher.final()]
    const bytes = Buffer.concat([nonce, ...encrypted, cipher.getAuthTag()])
    const ciphertext = `${FORMAT}.${bytes.toString('base64url')}`
    return {ciphertext, keyId: fingerprintOf(this.#key)}
  }

  /** `null` = it was encrypted with another key or for another name, or was changed. */
  open(name: string, ciphertext: string): string | null {
    const [format, text = ''] = ciphertext.split('.')
    const bytes = Buffer.from(text, 'base64url')
    if (this.#key === null || format !== FORMAT || bytes.length < NONCE_BYTES + TAG_BYTES)
      return null
    const decipher = createDecipheriv(CIPHER, this.#key, bytes.subarray(0, NONCE_BYTES))
      .setAAD(boundTo(name))
      .setAuthTag(bytes.subarray(-TAG_BYTES))
    const encrypted = bytes.subarray(NONCE_BYTES, -TAG_BYTES)
    try {
      return decipher.update(encrypted, undefined, 'utf8') + decipher.final('utf8')
    } catch {
      return null // the tag does not match
    }
  }
}

function boundTo(name: string): Uint8Array {
  return Buffer.from(`belfry secret ${name}`)
}

function fingerprintOf(key: Uint8Array): string {
  return createHmac('sha256', key).update('belfry secret key').digest('base64url').slice(0, 22)
}

export type SecretKey =
  | {readonly ok: true; readonly key: Uint8Array}
  /** A sentence without its subject, the file. */
  | {readonly ok: false; readonly problem: string; readonly isMissing: boolean}

const OPEN_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'is not readable by this user',
}

/**
 * The key in a file: its 32 bytes, or their base64. Refused if others may read it. A file of root may be
 * readable by its group, as secrets are that a container gets.
 */
export function readSecretKey(path: string): SecretKey {
  try {
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const facts = fstatSync(file)
      if (!facts.isFile()) return unusable('is not a regular file')
      const forbidden =
        facts.uid === 0 && process.geteuid?.() !== 0 ? OTHERS_BUT_GROUP_READS : OTHERS
      if ((facts.mode & forbidden) !== 0)
        return unusable(`can be read by other users; run chmod 600 ${path}`)
      const key = keyIn(readFileSync(file))
      return key === null
        ? unusable(`does not hold ${KEY_BYTES} bytes, or their base64`)
        : {ok: true, key}
    } finally {
      closeSync(file)
    }
  } catch (error) {
    const code = codeOf(error)
    const problem = OPEN_PROBLEMS[code] ?? `cannot be read: ${code}`
    return {ok: false, isMissing: code === 'ENOENT', problem}
  }
}

function unusable(problem: string): SecretKey {
  return {ok: false, isMissing: false, problem}
}

function keyIn(bytes: Buffer): Uint8Array | null {
  if (bytes.length === KEY_BYTES) return bytes
  const text = bytes.toString('latin1').trim()
  const decoded = Buffer.from(text, 'base64')
  const isBase64 = /^[A-Za-z0-9+/]{43}=$/.test(text)
  return isBase64 && decoded.length === KEY_BYTES ? decoded : null
}

/** Makes a key file, readable by this user only, unless it exists. Durable when it resolves. */
export async function createSecretKey(path: string): Promise<void> {
  const draft = `${path}.${randomBytes(9).toString('base64url')}`
  await createFile(path, `${randomBytes(KEY_BYTES).toString('base64')}\n`, draft)
}
