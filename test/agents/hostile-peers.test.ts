/**
 * Hostile agents that have the token: garbage, lies, floods and silence. Each is refused with a reason, and
 * the server and the work of others are unaffected.
 */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {AGENT_MESSAGE_BYTES_MAX, PROTOCOL} from '../../src/agents/protocol.ts'
import {peakResidentBytes} from '../support/living-processes.ts'
import {isOver, sharedServer} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {aHello, RawAgent} from './raw-agent.ts'

const TOKEN = 'a-token-of-the-tests'
const server = sharedServer({flags: ['--token', TOKEN, '--name', 'the-server']})
const get = (path: string) => server().ask('GET', path, undefined, {'x-service-token': TOKEN})
const post = (path: string, body?: unknown) =>
  server().ask('POST', path, body, {'x-service-token': TOKEN})

/** An agent with one claimed execution of a job that only it may run. */
async function working(t: Parameters<typeof RawAgent.connect>[0], name: string) {
  const agent = await RawAgent.connect(t, server(), TOKEN)
  await agent.join(name)
  const job = {name, schedule: '@manually', tags: {raw: name}, executor: 'shell'}
  const stored = await post('/jobs', {...job, executor_config: {command: 'true'}})
  assert.equal(stored.status, 201, stored.text)
  assert.equal((await post(`/jobs/${name}/run`)).status, 202)
  const claim = await until('there is work', async () => {
    const reply = await agent.request('claim', claims, {
      token: `token-${claims++}`,
      room: 1,
      after: null,
    })
    return reply.claimed.length === 1 && reply.claimed[0]
  })
  const {group, node, attempt} = claim.execution
  return {agent, key: {group, node, attempt}, token: claim.token as string}
}

let claims = 1_000_000

const UNKNOWN = {key: {group: 999_999, node: 'nobody', attempt: 1}, token: 'a-guess'}
const END = {
  status: 'succeeded',
  durationMs: 5,
  startedAfterMs: 0,
  exitCode: 0,
  reason: '',
  outputHead: '',
  outputFoot: '',
  output: {offset: 0, bytes: 'b2sK', totalBytes: 3},
  dropOutput: false,
  jitter: 0.5,
}
const APPEND = {...UNKNOWN, offset: 0, bytes: 'b2sK'}

describe('refused connections', {concurrency: 4}, () => {
  const hellos: readonly (readonly [string, object, code: string, message: RegExp])[] = [
    ['of another cluster', {clusterId: 'another'}, 'cluster', /belongs to another cluster/],
    ['of a newer protocol', {protocol: PROTOCOL + 1}, 'protocol', /Update the-server\.$/],
    ['of an older protocol', {protocol: PROTOCOL - 1}, 'protocol', /Update the agent\.$/],
    ['without a protocol version', {protocol: 'new'}, 'malformed', /cannot be read/],
    ['with the name of a server', {node: {name: 'the-server'}}, 'name_taken', /Set another --name/],
    ['without a name', {node: {name: ''}}, 'malformed', /cannot be read/],
    ['with too many slots', {node: {slots: 1e9}}, 'malformed', /cannot be read/],
    ['with too many tags', {node: {tags: manyTags()}}, 'malformed', /cannot be read/],
    [
      'with an invalid claim',
      {activeClaims: [{key: null, token: 't'}]},
      'malformed',
      /cannot be read/,
    ],
  ]
  for (const [what, changes, code, message] of hellos)
    test(`an agent ${what}: ${code}`, async (t) => {
      const agent = await RawAgent.connect(t, server(), TOKEN)
      agent.send(aHello('stranger', {...changes}))
      const refused = await agent.receives({kind: 'refused'})
      assert.equal(refused.code, code)
      assert.match(refused.message, message)
      const {code: closed, reason} = await agent.closing
      assert.deepEqual([closed, reason], [1000, refused.message.slice(0, 123)])
    })

  test('an agent with the name of an alive agent: name_taken', async (t) => {
    const first = await RawAgent.connect(t, server(), TOKEN)
    await first.join('first-come')
    const second = await RawAgent.connect(t, server(), TOKEN)
    second.send(aHello('first-come', {node: {id: 'another-identity'}}))
    assert.equal((await second.receives({kind: 'refused'})).code, 'name_taken')
    assert.equal(first.socket.readyState, first.socket.OPEN)
  })

  test('an agent with the node id of the server', async (t) => {
    const id = readFileSync(join(server().data, 'node-id'), 'utf8').trim()
    const agent = await RawAgent.connect(t, server(), TOKEN)
    agent.send(aHello('thief', {node: {id}}))
    assert.match((await agent.receives({kind: 'refused'})).message, /own --data/)
  })

  const firstMessages: readonly (readonly [string, unknown, code: number, reason: RegExp])[] = [
    ['not JSON', 'hello', 1000, /cannot be read/],
    ['not an object', '[]', 1000, /cannot be read/],
    ['of a kind that is no string', {kind: {}}, 1000, /cannot be read/],
    ['of a kind from the prototype', {kind: '__proto__', id: 1}, 1000, /cannot be read/],
    ['deeply nested', '['.repeat(1_000_000), 1000, /cannot be read/],
    ['a request', {kind: 'cancelled', id: 1}, 1000, /did not introduce itself/],
    ['binary', Buffer.from([1, 2, 3]), 1003, /only text messages/],
    ['too large', 'x'.repeat(AGENT_MESSAGE_BYTES_MAX + 1), 1009, /^$/],
  ]
  for (const [what, message, code, reason] of firstMessages)
    test(`an agent whose first message is ${what}`, async (t) => {
      const agent = await RawAgent.connect(t, server(), TOKEN)
      agent.send(message)
      const closing = await within(agent.closing, 'the connection closes', 20_000)
      assert.equal(closing.code, code)
      assert.match(closing.reason, reason)
    })

  test('an agent that sends two hellos', async (t) => {
    const agent = await RawAgent.connect(t, server(), TOKEN)
    agent.send(aHello('twice'))
    agent.send(aHello('twice'))
    assert.match((await agent.closing).reason, /introduced itself twice/)
  })

  test('a connection without a hello, or of a silent agent, is closed', async (t) => {
    const silent = await RawAgent.connect(t, server(), TOKEN)
    const asleep = await RawAgent.connect(t, server(), TOKEN)
    await asleep.join('asleep')
    assert.deepEqual(await within(silent.closing, 'the connection closes', 20_000), {
      code: 1008,
      reason: 'the agent sent no hello in time',
    })
    const {code, reason} = await within(asleep.closing, 'the connection closes', 30_000)
    assert.deepEqual([code, reason], [1000, 'no message of this agent for 10 s'])
  })

  test('an agent beyond its token, or with the identity of another, is in the audit log', async (t) => {
    const aToken = async (name: string) =>
      (await post('/acl/tokens', {name, type: 'agent', slots: 4})).json.secret as string
    const owner = await RawAgent.connect(t, server(), await aToken('robbed'))
    await owner.join('robbed')
    const robber = await aToken('robber')
    for (const hello of [
      aHello('too-many', {node: {slots: 5}}),
      aHello('robber', {node: {id: 'identity-of-robbed'}}),
    ]) {
      const agent = await RawAgent.connect(t, server(), robber)
      agent.send(hello)
      await agent.closing
    }
    const recorded = await until(
      'they are recorded',
      async () => {
        const {json} = await get('/audit?actor=robber&result=refused')
        return json.length === 2 && json
      },
      20_000,
    )
    const shown = recorded.map(
      (entry: Record<string, string>) => `${entry['target']} ${entry['detail']}`,
    )
    assert.match(shown[0], /^robber GET 403 not_allowed: .*belongs to the token "robbed"/)
    assert.match(shown[1], /^too-many GET 403 not_allowed: .*the token allows 4/)
  })

  test('300 connections without a hello do not disturb other agents', async (t) => {
    const crowd = await Promise.all(
      Array.from({length: 300}, () => RawAgent.connect(t, server(), TOKEN)),
    )
    const {agent} = await working(t, 'in-the-crowd')
    assert.equal((await get('/members')).status, 200)
    const closings = await within(
      Promise.all(crowd.map(({closing}) => closing)),
      'all are closed',
      30_000,
    )
    assert.ok(closings.every(({code}) => code === 1008))
    assert.equal(agent.socket.readyState, agent.socket.OPEN)
  })
})

describe('malformed requests', {concurrency: 4}, () => {
  const key = (changes: object) => ({...UNKNOWN, key: {...UNKNOWN.key, ...changes}})
  const requests: readonly (readonly [string, object])[] = [
    ['a group below one', {kind: 'verify', id: 1, claims: [key({group: 0})]}],
    ['half a group', {kind: 'verify', id: 1, claims: [key({group: 1.5})]}],
    ['a node with a slash', {kind: 'verify', id: 1, claims: [key({node: 'a/b'})]}],
    ['an attempt that is a string', {kind: 'verify', id: 1, claims: [key({attempt: '1'})]}],
    ['a token with spaces', {kind: 'verify', id: 1, claims: [{...UNKNOWN, token: 'a b'}]}],
    ['too many items', {kind: 'verify', id: 1, claims: Array.from({length: 257}, () => UNKNOWN)}],
    ['no request id', {kind: 'cancelled', id: 0}],
    ['negative room', {kind: 'claim', id: 1, token: 't', room: -1, after: null}],
    ['a negative offset', {kind: 'append', id: 1, items: [{...APPEND, offset: -1}]}],
    ['a huge offset', {kind: 'append', id: 1, items: [{...APPEND, offset: 2 ** 53}]}],
    ['output that is not base64', {kind: 'append', id: 1, items: [{...APPEND, bytes: 'A'}]}],
    ['an impossible exit code', {kind: 'finish', id: 1, items: [end({exitCode: 1e300})]}],
    ['a finish without a final status', {kind: 'finish', id: 1, items: [end({status: 'running'})]}],
    ['a jitter of one', {kind: 'finish', id: 1, items: [end({jitter: 1})]}],
    [
      'an unknown member status',
      {kind: 'heartbeat', id: 1, status: 'king', activeClaims: [], pendingToken: null},
    ],
  ]
  for (const [index, [what, request]] of requests.entries())
    test(what, async (t) => {
      const agent = await RawAgent.connect(t, server(), TOKEN)
      await agent.join(`bad-${index}`)
      agent.send(request)
      assert.equal((await agent.receives({kind: 'refused'})).code, 'malformed')
      assert.match((await agent.closing).reason, /cannot be read/)
    })

  test('an agent cannot reach executions that another agent has claimed', async (t) => {
    const {agent, key: mine, token} = await working(t, 'owner')
    const thief = await RawAgent.connect(t, server(), TOKEN)
    await thief.join('thief')
    for (const guess of [{key: mine, token: 'a-guess'}, UNKNOWN]) {
      const {active} = await thief.request('verify', claims++, {claims: [guess]})
      assert.deepEqual(active, [false])
      const items = [{...APPEND, ...guess}]
      assert.deepEqual((await thief.request('append', claims++, {items})).accepted, [false])
      const {outcomes} = await thief.request('finish', claims++, {items: [{...END, ...guess}]})
      assert.deepEqual(outcomes, [{kind: 'unknown', key: guess.key}])
    }
    assert.deepEqual((await thief.request('cancelled', claims++, {})).keys, [])
    const beat = {status: 'alive', activeClaims: [{key: mine, token}], pendingToken: null}
    assert.deepEqual(
      (await thief.request('heartbeat', claims++, beat)).revoked,
      [{key: mine, token}],
      'the claim is revoked',
    )
    const stolen = await thief.request('finish', claims++, {items: [{...END, key: mine, token}]})
    assert.deepEqual(stolen.outcomes, [{kind: 'unknown', key: mine}], 'with the stolen token too')
    const {outcomes} = await agent.request('finish', claims++, {
      items: [{...END, key: mine, token}],
    })
    assert.equal(outcomes[0].kind, 'finished')
    const {json} = await get('/jobs/owner/executions')
    assert.deepEqual(
      json.map(({status, output}: {status: string; output: string}) => [status, output]),
      [['succeeded', 'ok\n']],
    )
  })

  test('an end in the year 144683 is stored as one of now', async (t) => {
    const {agent, key: mine, token} = await working(t, 'time-traveller')
    const items = [{...END, key: mine, token, durationMs: 2 ** 52, startedAfterMs: 2 ** 52}]
    const {outcomes} = await agent.request('finish', claims++, {items})
    assert.equal(outcomes[0].kind, 'finished')
    const {json} = await get('/jobs/time-traveller')
    const [execution] = (await get('/jobs/time-traveller/executions')).json
    for (const text of [json.last_success, execution.started_at, execution.finished_at]) {
      const fromNowMs = Date.parse(text) - Date.now()
      assert.ok(Math.abs(fromNowMs) < 90_000, text)
    }
  })

  test('an agent cannot blame its death on a job', async (t) => {
    const {agent, key: mine, token} = await working(t, 'martyr')
    const items = [{...END, key: mine, token, status: 'lost', reason: 'node_lost'}]
    const {outcomes} = await agent.request('finish', claims++, {items})
    assert.deepEqual(
      [outcomes[0].execution.status, outcomes[0].execution.reason, outcomes[0].jobDisabled],
      ['lost', '', false],
    )
  })

  test('an agent that reports more executions than its slots can have is disconnected', async (t) => {
    const held = Array.from({length: 4 * 6 + 257}, () => UNKNOWN)
    const agent = await RawAgent.connect(t, server(), TOKEN)
    await agent.join('hoarder')
    agent.send({kind: 'heartbeat', id: 1, status: 'alive', activeClaims: held, pendingToken: null})
    const again = await RawAgent.connect(t, server(), TOKEN)
    again.send(aHello('hoarder', {activeClaims: held}))
    for (const each of [agent, again]) {
      assert.equal((await each.receives({kind: 'refused'})).code, 'malformed')
      assert.match((await each.closing).reason, /reports more executions than its slots allow/)
    }
  })

  test('impossible output sizes affect only the execution that reports them', async (t) => {
    const {agent, key: mine, token} = await working(t, 'braggart')
    const items = [2 ** 52, 7, 0].map((offset) => ({...APPEND, key: mine, token, offset}))
    assert.deepEqual((await agent.request('append', claims++, {items})).accepted, [
      true,
      true,
      true,
    ])
    const output = {offset: 5, bytes: 'b2sK', totalBytes: 1}
    const ends = [{...END, key: mine, token, output}]
    assert.equal(
      (await agent.request('finish', claims++, {items: ends})).outcomes[0].kind,
      'finished',
    )
    const {status, json} = await get('/jobs/braggart/executions')
    assert.equal(status, 200)
    assert.ok(json.every(isOver))
  })
})

test('an agent that sends requests and never reads is disconnected', async (t) => {
  const agent = await RawAgent.connect(t, server(), TOKEN)
  await agent.join('unread')
  agent.socket.pause()
  const before = peakResidentBytes(server().pid)
  const key = {...UNKNOWN.key, node: 'n'.repeat(63)}
  const items = Array.from({length: 256}, () => end({key}))
  const finish = JSON.stringify({kind: 'finish', id: 1, items})
  for (let count = 0; count < 1_000; count += 1) agent.send(finish)
  await within(closedOf(agent), 'the connection closes', 30_000)
  assert.equal((await get('/members')).status, 200)
  const grownBytes = peakResidentBytes(server().pid) - before
  assert.ok(grownBytes < 250 * 2 ** 20, `the server grew by ${grownBytes} bytes`)
})

/** A socket that is never read notices its close only on a write. */
async function closedOf(agent: RawAgent): Promise<void> {
  await until(
    'the server has closed the connection',
    async () => {
      const {json} = await get('/members')
      const member = json.find(({Name}: {Name: string}) => Name === 'unread')
      return member?.Status !== 1
    },
    30_000,
  )
  agent.socket.terminate()
  await agent.closing
}

function end(changes: object): object {
  return {...END, ...UNKNOWN, ...changes}
}

function manyTags(): Readonly<Record<string, string>> {
  return Object.fromEntries(Array.from({length: 200}, (_, index) => [`tag-${index}`, '']))
}
