/**
 * Why a server of a URL does not understand a client: it speaks TLS and the URL does not, or the reverse. The
 * error of a connection alone does not tell, so the server is asked by a connection of its own, which never
 * carries a token.
 */
import {request} from 'node:http'
import {connect} from 'node:tls'

/** Exceeds a handshake with a distant server. */
const ASK_TIMEOUT_MS = 5_000

/** A server with TLS resets a plain connection, or replies with what is not HTTP (`HPE_…`). */
const PLAIN_TO_TLS = ['ECONNRESET', 'EPIPE']
const TLS_TO_PLAIN = ['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']

/**
 * Describes what the server of `base` (`http://host:8080`) does instead, with the fix, as the end of a
 * sentence about it; `null` = the URL has the right scheme, or no server is there. `code`: of the error of
 * a connection that failed before a reply.
 */
export async function schemeMismatch(base: string, code: string): Promise<string | null> {
  const url = new URL(base)
  const isTls = url.protocol === 'https:'
  if (isTls && TLS_TO_PLAIN.includes(code) && (await speaksPlain(url)))
    return `answers, but not with TLS. Use http:${base.slice('https:'.length)}`
  const isGarbled = PLAIN_TO_TLS.includes(code) || code.startsWith('HPE_')
  if (!isTls && isGarbled && (await speaksTls(url)))
    return `answers only with TLS. Use https:${base.slice('http:'.length)}`
  return null
}

/** True if a server that does not understand HTTP speaks TLS. */
function speaksTls({hostname, port}: URL): Promise<boolean> {
  const host = hostname.replace(/^\[|\]$/g, '')
  return new Promise((resolve) => {
    // Only asks for the protocol; nothing is sent over this connection.
    const socket = connect({host, port: Number(port || 80), rejectUnauthorized: false})
    const end = (isTls: boolean) => {
      socket.destroy()
      resolve(isTls)
    }
    socket.setTimeout(ASK_TIMEOUT_MS, () => end(false))
    socket.once('secureConnect', () => end(true))
    socket.once('error', () => end(false))
  })
}

/** True if a server that refuses TLS replies to plain HTTP. */
function speaksPlain({hostname, port}: URL): Promise<boolean> {
  const host = hostname.replace(/^\[|\]$/g, '')
  return new Promise((resolve) => {
    const asking = request({host, port: port || 443, method: 'HEAD', agent: false})
    const end = (isPlain: boolean) => {
      asking.destroy()
      resolve(isPlain)
    }
    asking.setTimeout(ASK_TIMEOUT_MS, () => end(false))
    asking.once('response', () => end(true))
    asking.once('error', () => end(false))
    asking.end()
  })
}
