/**
 * Turns what went wrong with a request into a sentence for the output of a job. By codes, never by a
 * message's text.
 */
import {AddressRefused} from './network-guard.ts'

/** Ends an exchange with its message as the sentence. */
export class ExchangeFailed extends Error {
  override readonly name = 'ExchangeFailed'
}

const SENTENCES: Readonly<Record<string, string>> = {
  ENOTFOUND: 'the name of the host is not known',
  EAI_AGAIN: 'the name of the host could not be looked up just now',
  ECONNREFUSED: 'the host refused the connection',
  ECONNRESET: 'the host closed the connection before the answer was whole',
  EHOSTUNREACH: 'there is no way to the host',
  ENETUNREACH: 'there is no way to the network of the host',
  UND_ERR_CONNECT_TIMEOUT: 'the host did not take the connection in time',
  UND_ERR_SOCKET: 'the host closed the connection before the answer was whole',
  UND_ERR_HEADERS_OVERFLOW: 'the header of the answer is too large',
}

/** Any error as one sentence. */
export function explain(error: unknown): string {
  if (error instanceof AddressRefused || error instanceof ExchangeFailed) return error.message
  // Several addresses were tried: the first tells as much as all.
  if (error instanceof AggregateError && error.errors.length > 0) return explain(error.errors[0])
  if (!(error instanceof Error)) return String(error)
  if (error.cause instanceof AddressRefused) return error.cause.message
  const {code, path} = error as NodeJS.ErrnoException
  const sentence = SENTENCES[code ?? '']
  if (sentence !== undefined) return `the request failed: ${sentence} (${code})`
  const what = code === undefined ? error.message : `${error.message} (${code})`
  return path === undefined
    ? `the request failed: ${what}`
    : `the file ${path} could not be read: ${what}`
}
