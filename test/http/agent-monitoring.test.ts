/** The HTTP server of an agent: metrics and health, with the rules of a server for tokens and host names. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {request} from 'node:http'
import type {AddressInfo} from 'node:net'
import {test, type TestContext} from 'node:test'
import {checkedLimits} from '../../src/config/limits.ts'
import {createAgentServer} from '../../src/http/agent-monitoring.ts'
import {systemClock} from '../../src/platform/clock.ts'

const TOKEN = 'a-token-of-the-tests'

async function anAgentServer(t: TestContext, token: string | null) {
  const state = {isReady: false}
  const http = createAgentServer({
    nodeName: 'agent-a',
    clock: systemClock(),
    token,
    tls: null,
    limits: {
      ...checkedLimits(),
      connectionsMax: 10,
      networkConnectionsPercent: 100,
      reservedConnectionsPercent: 0,
    },
    metrics: () => Promise.resolve({contentType: 'text/plain', body: 'up 1\n'}),
    isReady: () => state.isReady,
    onFault: (error) => assert.fail(String(error)),
  })
  http.server.listen(0, '127.0.0.1')
  await once(http.server, 'listening')
  t.after(() => http.close())
  const {port} = http.server.address() as AddressInfo
  const ask = async (path: string, headers: Record<string, string> = {}, method = 'GET') => {
    const sent = request({port, host: '127.0.0.1', path, method, headers, agent: false}).end()
    const [response] = await once(sent, 'response')
    let text = ''
    for await (const part of response) text += part
    return [response.statusCode, text] as const
  }
  return {http, state, ask}
}

test('an agent shows metrics and health to its own machine', async (t) => {
  const {state, ask} = await anAgentServer(t, null)
  assert.deepEqual(await ask('/metrics'), [200, 'up 1\n'])
  assert.deepEqual(await ask('/metrics', {}, 'HEAD'), [200, ''])
  assert.equal((await ask('/livez'))[0], 200)
  assert.equal((await ask('/readyz'))[0], 503)
  state.isReady = true
  assert.deepEqual(await ask('/readyz'), [200, '{"status":"ready","checks":{"server":"ok"}}'])
  assert.match((await ask('/v1/jobs'))[1], /An agent has only these pages: \/livez, /)
  assert.equal((await ask('/metrics', {}, 'POST'))[0], 405)
  // DNS rebinding, and a proxy that would make every client one of this machine.
  assert.match((await ask('/metrics', {host: 'evil.example'}))[1], /set --metrics-token-file/)
  assert.equal((await ask('/livez', {host: 'probe.example'}))[0], 200)
  assert.equal((await ask('/metrics', {'x-forwarded-for': '10.0.0.9'}))[0], 403)
})

test('metrics of an agent require its token if there is one; health does not', async (t) => {
  const {http, ask} = await anAgentServer(t, TOKEN)
  const bearer = (token: string) => ({authorization: `Bearer ${token}`})
  const basic = {authorization: `Basic ${Buffer.from(`prometheus:${TOKEN}`).toString('base64')}`}
  assert.equal((await ask('/metrics'))[0], 401)
  assert.equal((await ask('/metrics', bearer('another-token-of-them')))[0], 401)
  assert.equal((await ask('/v1/jobs'))[0], 401)
  assert.equal((await ask('/livez'))[0], 200)
  for (const headers of [bearer(TOKEN), basic])
    assert.equal((await ask('/metrics', headers))[0], 200)
  http.configure({token: 'another-token-of-them', tls: null})
  assert.equal((await ask('/metrics', bearer(TOKEN)))[0], 401)
  assert.equal((await ask('/metrics', bearer('another-token-of-them')))[0], 200)
})
