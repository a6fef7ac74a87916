/** Upgrade requests at the agent endpoint: which are accepted, and which stay ordinary requests. */
import assert from 'node:assert/strict'
import {request as httpRequest} from 'node:http'
import {describe, test} from 'node:test'
import {WebSocket} from 'ws'
import {AGENT_MESSAGE_BYTES_MAX} from '../../src/agents/protocol.ts'
import {sharedServer} from '../support/server-process.ts'
import {SOON_MS, within} from '../support/waiting.ts'

const TOKEN = 'a-token-of-the-tests'
const UPGRADE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
}
const server = sharedServer({flags: ['--token', TOKEN]})

/** HTTP status of the response; 101 = upgraded. */
function statusOf(path: string, headers: Readonly<Record<string, string>>): Promise<number> {
  const response = new Promise<number>((resolve, reject) => {
    const sent = httpRequest(`${server().url}${path}`, {headers})
    sent.once('response', (plain) => {
      plain.resume()
      resolve(plain.statusCode ?? 0)
    })
    sent.once('upgrade', (upgraded, socket) => {
      socket.destroy()
      resolve(upgraded.statusCode ?? 0)
    })
    sent.once('error', reject)
    sent.end()
  })
  return within(response, `a response at ${path}`, SOON_MS)
}

const token = {'x-service-token': TOKEN}

describe('agent endpoint', () => {
  const cases: readonly (readonly [string, string, Record<string, string>, number])[] = [
    ['with the token', '/v1/agent', {...UPGRADE, ...token}, 101],
    ['with a bearer token', '/v1/agent/', {...UPGRADE, authorization: `Bearer ${TOKEN}`}, 101],
    ['without a token', '/v1/agent', UPGRADE, 401],
    ['with a wrong token', '/v1/agent', {...UPGRADE, 'x-service-token': 'another-token-here'}, 401],
    [
      'with a foreign origin',
      '/v1/agent',
      {...UPGRADE, ...token, origin: 'https://evil.example'},
      403,
    ],
    ['cross-site', '/v1/agent', {...UPGRADE, ...token, 'sec-fetch-site': 'cross-site'}, 403],
    [
      'under another host name without a token',
      '/v1/agent',
      {...UPGRADE, host: 'evil.example'},
      421,
    ],
    ['under another host name', '/v1/agent', {...UPGRADE, ...token, host: 'proxied.example'}, 101],
    ['at another path', '/v1/members', {...UPGRADE, ...token}, 200],
    ['asking for HTTP/2', '/v1/members', {...UPGRADE, ...token, upgrade: 'h2c'}, 200],
    ['without an upgrade', '/v1/agent', token, 404],
    [
      'of an old WebSocket version',
      '/v1/agent',
      {...UPGRADE, ...token, 'sec-websocket-version': '1'},
      400,
    ],
  ]
  for (const [what, path, headers, status] of cases)
    test(`${what}: ${status}`, async () => assert.equal(await statusOf(path, headers), status))

  test('a message that is too large or binary ends the connection and not the server', async () => {
    for (const sent of ['x'.repeat(AGENT_MESSAGE_BYTES_MAX + 1), Buffer.from([1, 2, 3])]) {
      const socket = new WebSocket(`${server().url.replace('http', 'ws')}/v1/agent`, {
        headers: token,
      })
      const closed = new Promise((resolve) => socket.once('close', resolve))
      socket.once('error', () => socket.terminate())
      socket.once('open', () => socket.send(sent))
      await within(closed, 'the connection closes', SOON_MS)
    }
    assert.equal((await server().ask('GET', '/members', undefined, token)).status, 200)
  })

  test('a graceful shutdown of the server closes an open agent connection', async () => {
    const socket = new WebSocket(`${server().url.replace('http', 'ws')}/v1/agent`, {headers: token})
    const closed = new Promise((resolve) => socket.once('close', resolve))
    await new Promise((resolve) => socket.once('open', resolve))
    assert.equal((await server().stop()).code, 0)
    await within(closed, 'the connection closes', SOON_MS)
  })
})
