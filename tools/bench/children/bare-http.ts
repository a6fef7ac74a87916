/** Baseline for the API: Node's bare HTTP server reads a JSON body and replies with a small JSON object. */
import {createServer} from 'node:http'
import type {AddressInfo} from 'node:net'
import {answerQuestions} from '../link.ts'

const server = createServer((request, response) => {
  const pieces: Buffer[] = []
  request.on('data', (piece: Buffer) => pieces.push(piece))
  request.on('end', () => {
    const text = Buffer.concat(pieces).toString('utf8')
    const body: unknown = text === '' ? {} : JSON.parse(text)
    response.writeHead(request.method === 'POST' ? 201 : 200, {'content-type': 'application/json'})
    response.end(JSON.stringify(body))
  })
})

export const handlers = {
  listen: async (_: null): Promise<{url: string}> => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return {url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`}
  },
}

answerQuestions(handlers)
