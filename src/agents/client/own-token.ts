/**
 * The agent's own token, for an agent that is given a join token. The agent makes its secret and keeps it in
 * its data directory; a server stores only the digest. The secret is durable before a server knows of it: an
 * agent that crashes at any moment asks again with the same digest, for as long as the join token is valid.
 */
import {hash} from 'node:crypto'
import {join} from 'node:path'
import {JOIN_SECRET_PREFIX, SECRET_PREFIX} from '../../core/access/agent-token.ts'
import {readIfExists, replaceFile} from '../../platform/durable-file.ts'
import type {Random} from '../../ports/runtime.ts'

const FILE = 'agent-token'

interface Kept {
  readonly token: string
  /** Digest of the join token that it was made for. */
  readonly for: string
  /** A server has stored its digest: from then on only this token is sent. */
  readonly issued: boolean
}

export class OwnToken {
  readonly #file: string
  readonly #random: Pick<Random, 'id'>
  #kept: Kept | null

  private constructor(file: string, random: Pick<Random, 'id'>, kept: Kept | null) {
    this.#file = file
    this.#random = random
    this.#kept = kept
  }

  /** Throws when the file cannot be read or contains anything else. */
  static async open(directory: string, random: Pick<Random, 'id'>): Promise<OwnToken> {
    const file = join(directory, FILE)
    return new OwnToken(file, random, await readKept(file))
  }

  /** Makes the secret durable. Call with each new token of the configuration, before it is used. */
  async prepare(configured: string | null): Promise<void> {
    if (!isJoinToken(configured) || this.#kept?.for === digestOf(configured)) return
    // More than 256 random bits. With a new join token the old secret is never used again.
    const token = `${SECRET_PREFIX}${this.#random.id()}${this.#random.id()}`
    await this.#keep({token, for: digestOf(configured), issued: false})
  }

  /** The token to connect with. */
  tokenFor(configured: string | null): string | null {
    const kept = this.#kept
    if (kept?.issued !== true) return configured
    const isOwn = configured === null || digestOf(configured) === kept.for
    return isOwn ? kept.token : configured
  }

  /** Digest that a server is to store; `null` = the agent connects with a token that it was given. */
  digestFor(configured: string | null): string | null {
    const kept = this.#kept
    if (!isJoinToken(configured) || kept === null || kept.for !== digestOf(configured)) return null
    return kept.issued ? null : digestOf(kept.token)
  }

  /** A server has stored the digest. */
  async issued(): Promise<void> {
    if (this.#kept !== null) await this.#keep({...this.#kept, issued: true})
  }

  async #keep(kept: Kept): Promise<void> {
    await replaceFile(this.#file, `${JSON.stringify(kept)}\n`)
    this.#kept = kept
  }
}

async function readKept(file: string): Promise<Kept | null> {
  const text = await readIfExists(file)
  if (text === null) return null
  const kept = parse(text)
  const isWhole =
    typeof kept?.token === 'string' &&
    typeof kept.for === 'string' &&
    typeof kept.issued === 'boolean'
  if (!isWhole)
    throw new Error(`The file ${file} must contain the agent's token: it is damaged. Remove it`)
  return kept as Kept
}

function parse(text: string): Partial<Kept> | null {
  try {
    return JSON.parse(text) as Partial<Kept> | null
  } catch {
    return null // damaged
  }
}

function isJoinToken(token: string | null): token is string {
  return token?.startsWith(JOIN_SECRET_PREFIX) === true
}

/** Digest as servers store it. */
function digestOf(secret: string): string {
  return hash('sha256', secret, 'base64url')
}
