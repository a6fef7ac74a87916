/** Tokens of agents: which connect, and that a connection ends with its token. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {test} from 'node:test'
import {WebSocket} from 'ws'
import type {Agents} from '../../src/http/options.ts'
import {type Api, startApi} from './harness.ts'
import {startLockedApi, TEAM_A} from './tokens.ts'

let heard = () => {}
const connection: ReturnType<Agents['connect']> = {receive: async () => heard(), closed: () => {}}
const AGENTS = {agents: {connect: () => connection, stop: async () => {}}}

/** The socket, and 101 or the status of the refusal. */
async function upgrade(api: Api, headers: Record<string, string> = {}) {
  const socket = new WebSocket(`${api.url.replace('http', 'ws')}/v1/agent`, {headers})
  const status = await new Promise<number>((resolve) => {
    socket.once('open', () => resolve(101))
    socket.once('unexpected-response', (_request, response) => {
      resolve(response.statusCode ?? 0)
      response.destroy()
    })
    // Errors follow an unexpected response too.
    socket.on('error', () => resolve(0))
  })
  return {socket, status}
}

test('only tokens of agents and management tokens connect agents', async (t) => {
  const {api, headers, token, client} = await startLockedApi(t, AGENTS)
  const wide = {path: {'/v1/**': {capabilities: ['create', 'read', 'update', 'delete', 'list']}}}
  const statusOf = async (more: Record<string, string>) => {
    const {socket, status} = await upgrade(api, more)
    socket.terminate()
    return status
  }
  const statuses: Record<string, number> = {
    none: await statusOf({}),
    wrong: await statusOf({'x-service-token': 'belfry_guess'}),
    configured: await statusOf(headers),
    'team-a': await statusOf((await client('team-a', TEAM_A)).headers),
    wide: await statusOf((await client('wide', wide)).headers),
  }
  for (const kind of ['management', 'agent', 'join', 'read', 'metrics'])
    statuses[kind] = await statusOf((await token(kind)).headers)
  assert.deepEqual(statuses, {
    none: 401,
    wrong: 401,
    configured: 101,
    'team-a': 403,
    wide: 403,
    management: 101,
    agent: 101,
    join: 101,
    read: 403,
    metrics: 403,
  })
})

test('a connection ends within five seconds after its token was revoked elsewhere', async (t) => {
  const {api, headers, token} = await startLockedApi(t, AGENTS)
  await api.access.refresh()
  api.access.start()
  const agents = await token('agent')
  const revoked = await upgrade(api, agents.headers)
  const other = await upgrade(api, headers)
  const closed = once(revoked.socket, 'close')
  await api.store.deleteToken(agents.accessor)
  // Less than the time for the first message of an agent.
  await api.clock.advance(4_500)
  const [code, reason] = (await closed) as [number, Buffer]
  assert.equal(code, 1008)
  assert.match(reason.toString(), /the token of this agent was revoked or has expired/)
  assert.equal((await upgrade(api, agents.headers)).status, 401)
  assert.equal(other.socket.readyState, WebSocket.OPEN)
  other.socket.terminate()
})

test('an agent without a token is disconnected when the first token is made', async (t) => {
  const api = await startApi(t, AGENTS)
  api.access.start()
  const {socket, status} = await upgrade(api)
  assert.equal(status, 101)
  const closed = once(socket, 'close')
  await api.post('/v1/acl/bootstrap')
  await closed
  assert.equal((await upgrade(api)).status, 401)
})

test('one token cannot take the places of all agents', async (t) => {
  const limits = {agentsMax: 6, agentTokenLinksMax: 2, joinTokenLinksMax: 3}
  const {api, headers, token} = await startLockedApi(t, {...AGENTS, limits})
  const open = async (own: Record<string, string>) => await upgrade(api, own)
  const [flood, fleet, honest] = [await token('agent'), await token('join'), await token('agent')]
  const flooded = [await open(flood.headers), await open(flood.headers)]
  assert.deepEqual([flooded[0]!.status, flooded[1]!.status], [101, 101])
  assert.equal((await open(flood.headers)).status, 503)
  const statuses: number[] = []
  for (let count = 0; count < 4; count += 1) statuses.push((await open(fleet.headers)).status)
  assert.deepEqual(statuses, [101, 101, 101, 503])
  assert.equal((await open(headers)).status, 101)

  // All places are taken: those that sent nothing make way, the oldest first, and no others.
  const [oldest, spoken] = [once(flooded[0]!.socket, 'close'), flooded[1]!.socket]
  const received = new Promise<void>((resolve) => (heard = resolve))
  spoken.send('hello')
  await received
  const agent = await open(honest.headers)
  assert.equal(agent.status, 101)
  await oldest
  for (let count = 0; count < 10; count += 1) assert.equal((await open(headers)).status, 101)
  assert.equal(spoken.readyState, spoken.OPEN)

  // The place of a connection that has ended is free again.
  spoken.terminate()
  const again = await open(flood.headers)
  assert.equal(again.status, 101)
})

test('a token that reconnects all the time is refused before its upgrade, and no other is', async (t) => {
  let connected = 0
  let ended = () => {}
  const connect = () => {
    connected += 1
    return {...connection, closed: () => ended()}
  }
  const {api, token} = await startLockedApi(t, {agents: {connect, stop: async () => {}}})
  const [hostile, honest] = [await token('agent'), await token('agent')]
  const statusOf = async ({headers}: {headers: Record<string, string>}) => {
    const closed = new Promise<void>((resolve) => (ended = resolve))
    const {socket, status} = await upgrade(api, headers)
    socket.terminate()
    if (status === 101) await closed
    return status
  }
  const statuses: number[] = []
  for (let count = 0; count < 12; count += 1) statuses.push(await statusOf(hostile))
  assert.deepEqual(statuses, [...Array<number>(8).fill(101), 503, 503, 503, 503])
  assert.equal(connected, 8)
  assert.equal(await statusOf(honest), 101)
  await api.clock.advance(5_000)
  assert.equal(await statusOf(hostile), 101)
})
