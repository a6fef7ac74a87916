/** Bytes for an HTTP server over a connection of their own: what no client library would send. */
import {connect} from 'node:net'
import {within} from './waiting.ts'

const CLOSED_WITHIN_MS = 10_000

/**
 * Sends the text to a server on 127.0.0.1. Resolves with everything received until the server closes the
 * connection. `mayReset`: a reset, which follows unread bytes, ends the reply instead of failing it.
 */
export function rawReply(
  port: number,
  text: string,
  {mayReset = false}: {readonly mayReset?: boolean} = {},
): Promise<string> {
  const replied = new Promise<string>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1')
    let received = ''
    socket.setEncoding('utf8').on('data', (part) => (received += String(part)))
    socket.on('close', () => resolve(received))
    socket.on('error', (error: NodeJS.ErrnoException) => {
      const isReset = error.code === 'ECONNRESET' || error.code === 'EPIPE'
      if (!(mayReset && isReset)) reject(error)
    })
    socket.write(text)
  })
  return within(replied, 'the server closes the connection', CLOSED_WITHIN_MS)
}
