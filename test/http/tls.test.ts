/** HTTPS. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {request} from 'node:https'
import {Duplex} from 'node:stream'
import {test} from 'node:test'
import {connect} from 'node:tls'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'
import {startApi} from './harness.ts'

test('with a certificate the server speaks only TLS and sends HSTS', async (t) => {
  const api = await startApi(t, {tls: {cert: CERTIFICATE, key: PRIVATE_KEY}})
  const reply = await new Promise<{status: number; headers: NodeJS.Dict<string | string[]>}>(
    (resolve, reject) => {
      const options = {
        host: '127.0.0.1',
        port: api.port,
        path: '/v1/jobs',
        ca: CERTIFICATE,
        agent: false,
      }
      const sent = request(options, (response) => {
        response.resume()
        response.on('end', () =>
          resolve({status: response.statusCode ?? 0, headers: response.headers}),
        )
      })
      sent.on('error', reject)
      sent.end()
    },
  )
  assert.equal(reply.status, 200)
  assert.match(String(reply.headers['strict-transport-security']), /max-age=/)
  await assert.rejects(api.get('/v1/jobs'), 'plain HTTP fails')
})

test('a handshake that fails or takes too long leaves no connection open', async (t) => {
  const api = await startApi(t, {tls: {cert: CERTIFICATE, key: PRIVATE_KEY}})
  // Socket whose handshake is not complete: it takes no bytes, so a reply would never end.
  const socket = new Duplex({read: () => undefined, write: () => undefined})
  const error = Object.assign(new Error('too slow'), {code: 'ERR_TLS_HANDSHAKE_TIMEOUT'})
  api.app.server.emit('tlsClientError', error, socket)
  assert.equal(socket.destroyed, true)
})

test('a large reply is written in pieces, so that a slow client shows progress', async (t) => {
  const text = 'x'.repeat(4 * 1024 * 1024)
  const api = await startApi(t, {
    tls: {cert: CERTIFICATE, key: PRIVATE_KEY},
    metrics: async () => ({contentType: 'text/plain', body: text}),
  })
  const accepted = once(api.app.server, 'secureConnection')
  const client = connect({host: '127.0.0.1', port: api.port, ca: CERTIFICATE})
  client.write('GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  const [server] = await accepted
  let [received, unsentMax] = ['', 0]
  for await (const chunk of client.setEncoding('utf8')) {
    received += String(chunk)
    unsentMax = Math.max(unsentMax, server.writableLength)
  }
  assert.ok(unsentMax < text.length / 4, String(unsentMax))
  assert.match(received, new RegExp(`content-length: ${text.length}\r\n`, 'i'))
  assert.equal(received.length - received.indexOf('xxxx'), text.length)
  const head = await api.app.inject({method: 'HEAD', path: '/metrics'})
  assert.equal(head.headers['content-length'], String(text.length))
})
