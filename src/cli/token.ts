/** The token that client commands send. Messages say where it is, never what it is. */
import {UsageError} from './errors.ts'
import {readTextFile} from './input.ts'

export interface TokenChoice {
  readonly text: string
  /** Variable such as `BELFRY_TOKEN`, or the file. */
  readonly source: string
}

interface TokenOptions {
  readonly token?: string
  readonly tokenFile?: string
}

/** A flag overrides the environment. An empty variable counts as not set. Throws `UsageError`. */
export async function chooseToken(
  {token, tokenFile}: TokenOptions,
  env: Readonly<Record<string, string | undefined>>,
): Promise<TokenChoice | null> {
  if (token !== undefined && tokenFile !== undefined)
    throw new UsageError('--token and --token-file cannot be used together. Leave one of them out.')
  if (token !== undefined) return checked(token, '--token')
  if (tokenFile !== undefined) return fromFile(tokenFile)
  const {BELFRY_TOKEN: text = '', BELFRY_TOKEN_FILE: file = ''} = env
  if (text !== '') return checked(text, 'BELFRY_TOKEN')
  return file === '' ? null : fromFile(file)
}

async function fromFile(file: string): Promise<TokenChoice> {
  return checked((await readTextFile(file)).trim(), file)
}

/** The header of a request takes no other characters, and `fetch` would repeat them in its error. */
function checked(text: string, source: string): TokenChoice {
  if (text === '') throw new UsageError(`${source} is empty. It must be a token, or left out.`)
  if (/^[\x21-\x7e]+$/.test(text)) return {text, source}
  const lines = text.split('\n').length
  const found = lines === 1 ? '' : `: it has ${lines} lines`
  throw new UsageError(`The token in ${source} must be printable ASCII without spaces${found}.`)
}
