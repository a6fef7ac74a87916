/**
 * HTTP headers that people write: `Name: value`. A header that is refused could change the request
 * itself.
 */

export type HeaderPair = readonly [name: string, value: string]

/** Headers of the connection. A caller that sets one could smuggle requests past the client. */
const RESERVED = [
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
/** Tab, printable ASCII and Latin-1. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/

/** `null` for a line without a name. */
export function splitHeader(line: string): HeaderPair | null {
  const colon = line.indexOf(':')
  return colon <= 0 ? null : [line.slice(0, colon).trim(), line.slice(colon + 1).trim()]
}

/** Why a header cannot be sent, without its value; `null` = it can. */
export function headerProblem([name, value]: HeaderPair): string | null {
  if (!HEADER_NAME.test(name)) return `headers: ${JSON.stringify(name)} is not a header name`
  if (RESERVED.includes(name.toLowerCase()))
    return `headers cannot set ${name}: it belongs to the connection`
  return HEADER_VALUE.test(value)
    ? null
    : `headers: the value of ${name} contains a character that headers cannot contain`
}
