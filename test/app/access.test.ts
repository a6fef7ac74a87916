/** Tokens on real processes: two servers on one PostgreSQL, an agent, and a restart on SQLite. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {ClusterProcess} from '../../tools/faults/cluster-process.ts'
import {anAgent} from '../agents/agent-process.ts'
import {aServer, type ServerProcess, temporaryDirectory} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

/** A change may take five seconds; the machine of the test may be busy. */
const REACHES_MS = 20_000

const bearing = (secret: string) => ({'x-service-token': secret})

/** Resolves with the status; `ended` says when the stream has ended. */
async function stream({url}: ServerProcess, secret: string) {
  const response = await fetch(`${url}/v1/events`, {
    headers: {accept: 'text/event-stream', ...bearing(secret)},
  })
  const state = {status: response.status, isEnded: false}
  void response.arrayBuffer().then(
    () => (state.isEnded = true),
    () => (state.isEnded = true),
  )
  return state
}

test('a token holds on every server, and its revocation reaches streams and agents of another', async (t) => {
  const cluster = await ClusterProcess.start(t, {servers: ['north', 'east']})
  const [north, east] = [cluster.server('north'), cluster.server('east')]
  const first = await north.post('/acl/bootstrap')
  assert.equal(first.status, 201)
  const admin = bearing(first.json.secret)
  assert.equal((await east.ask('GET', '/jobs', undefined, admin)).status, 200)
  // A request without a token that is in progress when east learns of the token is cut off.
  const isLocked = () =>
    east.get('/jobs').then(
      ({status}) => status === 401,
      () => false,
    )
  await until('east is locked', isLocked, REACHES_MS)
  const create = async (body: object) =>
    (await north.ask('POST', '/acl/tokens', body, admin)).json as {accessor: string; secret: string}
  const agents = await create({name: 'agents', type: 'agent'})
  const viewer = await create({name: 'viewer', type: 'read'})
  // At its first use, on the other server.
  assert.equal((await east.ask('GET', '/jobs', undefined, bearing(viewer.secret))).status, 200)

  const agent = await anAgent(t, [east.url], {flags: ['--token', agents.secret]})
  const open = await stream(east, viewer.secret)
  assert.equal(open.status, 200)
  for (const {accessor} of [agents, viewer])
    assert.equal(
      (await north.ask('DELETE', `/acl/tokens/${accessor}`, undefined, admin)).status,
      200,
    )
  await until('the stream ends', () => open.isEnded, REACHES_MS)
  await until(
    'the agent is disconnected',
    () => /revoked or has expired|refuses the token/.test(agent.program.stderr()),
    REACHES_MS,
  )
  const logs = [north, east].map(({program}) => program.stderr() + program.stdout()).join('\n')
  for (const secret of [first.json.secret, agents.secret, viewer.secret])
    assert.ok(!logs.includes(secret), 'no log has a secret')
})

test('a stored token locks the server after a restart, and the configuration lets in again', async (t) => {
  const data = `${temporaryDirectory(t)}/data`
  const server = await aServer(t, {data})
  const {json} = await server.post('/acl/bootstrap')
  await server.stop()
  const again = await aServer(t, {data})
  assert.equal((await again.get('/jobs')).status, 401)
  assert.equal((await again.ask('GET', '/jobs', undefined, bearing(json.secret))).status, 200)
  assert.equal((await again.post('/acl/bootstrap')).status, 401)
  await again.stop()
  const token = 'the-token-of-the-configuration'
  const configured = await aServer(t, {data, flags: ['--token', token]})
  const revoked = await configured.ask(
    'DELETE',
    `/acl/tokens/${json.accessor}`,
    undefined,
    bearing(token),
  )
  assert.equal(revoked.status, 200)
  assert.equal((await configured.ask('GET', '/jobs', undefined, bearing(json.secret))).status, 401)
  assert.equal((await configured.get('/jobs')).status, 401)
})
