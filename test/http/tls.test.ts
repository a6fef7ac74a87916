/** HTTPS. */
import assert from 'node:assert/strict'
import {request} from 'node:https'
import {test} from 'node:test'
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
