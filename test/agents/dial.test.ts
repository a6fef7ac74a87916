/** The socket of an agent: why a server cannot be reached, in words that name the fix. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {createServer, type RequestListener} from 'node:http'
import {createServer as createTlsServer} from 'node:https'
import type {AddressInfo, Server} from 'node:net'
import {test, type TestContext} from 'node:test'
import {permanentRefusal, type SocketClosed, webSocketDial} from '../../src/agents/client/socket.ts'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'

const answer: RequestListener = (_request, response) => {
  response.writeHead(401).end()
}

/** The port of a server on this machine. */
async function listening(t: TestContext, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  return (server.address() as AddressInfo).port
}

function dialled(url: string, token: string | null = null): Promise<SocketClosed> {
  const dial = webSocketDial({token, ca: null, handshakeMs: 5_000, version: '1'})
  return new Promise((resolve) => {
    dial(url, {onOpen: () => undefined, onMessage: () => undefined, onClose: resolve})
  })
}

test('an agent names the scheme that its server speaks', async (t) => {
  const plain = await listening(t, createServer(answer))
  const tls = await listening(t, createTlsServer({key: PRIVATE_KEY, cert: CERTIFICATE}, answer))
  assert.equal(
    (await dialled(`https://127.0.0.1:${plain}`)).reason,
    `it answers, but not with TLS. Use http://127.0.0.1:${plain}`,
  )
  assert.equal(
    (await dialled(`http://127.0.0.1:${tls}`)).reason,
    `it answers only with TLS. Use https://127.0.0.1:${tls}`,
  )
  assert.match((await dialled(`https://127.0.0.1:${tls}`)).reason, /not trusted .* --tls-ca/)
})

test('an agent without a server there says what to start', async (t) => {
  const gone = createServer(answer)
  const port = await listening(t, gone)
  gone.close()
  await once(gone, 'close')
  const {reason, status} = await dialled(`http://127.0.0.1:${port}`)
  assert.deepEqual(
    [reason, status],
    [
      'nothing listens there (ECONNREFUSED). Start a server, or set another URL with --server',
      null,
    ],
  )
})

test('the refusal of an agent without a token differs from that of a wrong one', async (t) => {
  const url = `http://127.0.0.1:${await listening(t, createServer(answer))}`
  assert.match(permanentRefusal(await dialled(url))!, /^it needs a token\. .* --token-file$/)
  assert.match(
    permanentRefusal(await dialled(url, 'wrong'))!,
    /^it refuses the token\. Set the right/,
  )
})
