/** A server with canned replies that records its requests. */
import {createServer, type IncomingMessage, type ServerResponse} from 'node:http'
import type {AddressInfo} from 'node:net'
import {text} from 'node:stream/consumers'

export interface Asked {
  readonly line: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

export interface CannedServer {
  readonly url: string
  readonly asked: Asked[]
  close(): Promise<void>
}

/** `answer` handles a request; if it does not end the response, the status is 404. */
export async function cannedServer(
  answer: (asked: Asked, response: ServerResponse) => void,
): Promise<CannedServer> {
  const asked: Asked[] = []
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const one = {line: `${request.method} ${request.url}`, headers: request.headers, body}
      asked.push(one)
      answer(one, response)
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const {port} = server.address() as AddressInfo
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  return {url: `http://127.0.0.1:${port}`, asked, close}
}

export function json(
  response: ServerResponse,
  status: number,
  value: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, {'content-type': 'application/json', ...headers})
  response.end(JSON.stringify(value))
}
