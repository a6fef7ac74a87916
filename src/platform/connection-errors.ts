/**
 * Errors of connections in words, by the code of the error. A message of an error is never matched or
 * shown.
 */

export const CONNECTION_ERRORS: Readonly<Record<string, string>> = {
  ENOTFOUND: 'the host name is unknown',
  EAI_AGAIN: 'the host name cannot be resolved at the moment',
  ECONNREFUSED: 'the host refused the connection',
  ECONNRESET: 'the host closed the connection before the end of the response',
  EHOSTUNREACH: 'the host is unreachable',
  ENETUNREACH: 'the network of the host is unreachable',
  UND_ERR_CONNECT_TIMEOUT: 'the host did not accept the connection in time',
  UND_ERR_SOCKET: 'the host closed the connection before the end of the response',
  UND_ERR_HEADERS_OVERFLOW: 'the headers of the response are too large',
}
