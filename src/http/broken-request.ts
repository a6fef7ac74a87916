/**
 * What is answered to bytes that are not an HTTP request: no route, no headers, only the socket and a reason.
 */
import type {Socket} from 'node:net'
import {REFUSALS, type RefusalCode} from '../core/errors.ts'
import {PROBLEM_TYPE, problemOf} from './errors.ts'

const CODES: Readonly<Record<string, RefusalCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
}

export function answerBrokenRequest(
  error: NodeJS.ErrnoException,
  socket: Socket,
  nodeName: string,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const code = CODES[error.code ?? ''] ?? 'request_malformed'
  const {status, title} = REFUSALS[code]
  const body = JSON.stringify(problemOf(code, `${title}.`))
  socket.end(
    [
      `HTTP/1.1 ${status} ${REASONS[status] ?? ''}`,
      `Content-Type: ${PROBLEM_TYPE}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Whom: ${nodeName}`,
      'X-Content-Type-Options: nosniff',
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  )
}
