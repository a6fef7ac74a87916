/**
 * Join tokens: each agent of a fleet gets a token of its own from one secret, also if it or its server
 * crashes meanwhile, and keeps it for itself.
 */
import assert from 'node:assert/strict'
import {existsSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {OwnToken} from '../../src/agents/client/own-token.ts'
import {digestOf} from '../../src/identity/token-cache.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {sharedServer, temporaryDirectory} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {anAgent, startedAgent} from './agent-process.ts'
import {aHello, RawAgent} from './raw-agent.ts'

const TOKEN = 'a-token-of-the-tests'
const headers = {'x-service-token': TOKEN}
const server = sharedServer({flags: ['--token', TOKEN]})
const tokens = async () => (await server().ask('GET', '/acl/tokens', undefined, headers)).json
const called = async (name: string) =>
  (await tokens()).find((token: {name: string}) => token.name === name)

async function joinToken(name: string, more: object = {}): Promise<string> {
  const body = {name, type: 'join', ...more}
  const {status, json, text} = await server().ask('POST', '/acl/tokens', body, headers)
  assert.equal(status, 201, text)
  return json.secret
}

describe('join tokens', {concurrency: 3}, () => {
  test('an agent gets its own token, and uses it without the join token', async (t) => {
    const secret = await joinToken('fleet', {names: ['press-*']})
    const flags = ['--token', secret]
    const agent = await anAgent(t, [server().url], {name: 'press-1', flags})
    const own = await called('fleet press-1')
    assert.deepEqual(
      [own.type, own.node_name, own.names, (await called('fleet')).uses_left],
      ['agent', 'press-1', ['press-*'], 0],
    )
    const file = join(agent.data, 'agent-token')
    assert.equal(statSync(file).mode & 0o777, 0o600)
    assert.ok(!readFileSync(file, 'utf8').includes(secret))
    agent.program.signal('SIGTERM')
    await agent.program.exit

    const {accessor} = await called('fleet')
    await server().ask('DELETE', `/acl/tokens/${accessor}`, undefined, headers)
    for (const again of [flags, []]) {
      const next = await anAgent(t, [server().url], {
        name: 'press-1',
        data: agent.data,
        flags: again,
      })
      next.program.signal('SIGTERM')
      await next.program.exit
    }

    // The agent logs that its own token is revoked, and the join token does not bring it back.
    const last = await anAgent(t, [server().url], {name: 'press-1', data: agent.data, flags})
    await server().ask('DELETE', `/acl/tokens/${own.accessor}`, undefined, headers)
    await until('the reason is logged', () => /revoked or has expired/.test(last.program.stderr()))
    last.program.signal('SIGKILL')
    await last.program.gone
    const {program} = startedAgent(t, [server().url], {name: 'press-1', data: agent.data, flags})
    assert.equal((await within(program.exit, 'it is refused', 15_000)).code, 1)
    assert.match(program.stderr(), /^belfry: .*it refuses the token/)
  })

  test('an agent that crashed before it knew of its token asks again', async (t) => {
    const secret = await joinToken('crashed')
    const data = temporaryDirectory(t)
    const flags = ['--token', secret]
    const first = await anAgent(t, [server().url], {name: 'crashed', data, flags})
    first.program.signal('SIGTERM')
    await first.program.exit
    const file = join(data, 'agent-token')
    const kept = JSON.parse(readFileSync(file, 'utf8'))
    writeFileSync(file, JSON.stringify({...kept, issued: false}))
    const second = await anAgent(t, [server().url], {name: 'crashed', data, flags})
    second.program.signal('SIGTERM')
    await second.program.exit
    // A new id is another agent for the cluster, and the token is used up.
    rmSync(file)
    const {program} = startedAgent(t, [server().url], {name: 'crashed', data, flags})
    assert.equal((await within(program.exit, 'it is refused', 15_000)).code, 1)
    assert.match(program.stderr(), /its join token is used up\. Create another one/)
  })

  test('a join token refuses a stolen identity, too many slots and a missing own token', async (t) => {
    const secret = await joinToken('liars', {uses: 3, slots: 4})
    const answer = async (hello: object, token = secret) => {
      const agent = await RawAgent.connect(t, server(), token)
      agent.send(hello)
      return await until('an answer', () => {
        const [first] = agent.received
        return first && `${first.kind} ${first.message ?? ''}`.trim()
      })
    }
    const ownToken = digestOf('belfry_of-the-victim')
    assert.equal(await answer(aHello('victim', {ownToken})), 'issued')
    const stolen = {ownToken: digestOf('belfry_of-the-thief')}
    const owned = /^refused .*belongs to the token "liars victim"/
    assert.match(await answer(aHello('victim', stolen)), owned)
    assert.match(await answer(aHello('victim', {...stolen, node: {id: 'another'}})), owned)
    assert.match(
      await answer(aHello('other', {...stolen, node: {id: 'identity-of-victim'}})),
      owned,
    )
    assert.match(await answer(aHello('greedy', {...stolen, node: {slots: 5}})), /allows 4/)
    assert.match(await answer(aHello('old')), /^refused .*sent no token of its own/)
    const session = await server().ask('POST', '/session', undefined, headers)
    const cookie = session.headers.get('set-cookie')!.split(';', 1)[0]!
    const known = await joinToken('known', {type: 'read'})
    for (const digested of [known, secret, TOKEN, cookie.split('=')[1]!, 'belfry_of-the-victim']) {
      const shadow = {ownToken: digestOf(digested)}
      assert.match(await answer(aHello('shadow', shadow)), /^refused .* in use\. Remove the file/)
    }
    const jobs = await server().ask('GET', '/jobs', undefined, {'x-service-token': known})
    assert.equal(jobs.status, 200)
    assert.equal((await called('liars')).uses_left, 2)
    assert.equal(await answer(aHello('victim'), 'belfry_of-the-victim'), 'welcome')
  })
})

test('the secret is durable before it is used, and new with each join token', async (t) => {
  const directory = temporaryDirectory(t)
  let seed = 0
  const open = () => OwnToken.open(directory, new SeededRandom((seed += 1)))
  const own = await open()
  const [one, two] = ['belfry_join_one', 'belfry_join_two']
  assert.deepEqual([own.tokenFor('belfry_x'), own.digestFor('belfry_x')], ['belfry_x', null])
  await own.prepare('belfry_x')
  assert.ok(!existsSync(join(directory, 'agent-token')))
  await own.prepare(one)
  const digest = own.digestFor(one)
  assert.equal(own.tokenFor(one), one)
  const restarted = await open()
  await restarted.prepare(one)
  assert.equal(restarted.digestFor(one), digest)
  await restarted.issued()
  const secret = (await open()).tokenFor(null)!
  assert.equal(digestOf(secret), digest)
  assert.deepEqual([restarted.tokenFor(one), restarted.digestFor(one)], [secret, null])
  assert.equal(restarted.tokenFor('belfry_x'), 'belfry_x', 'another token was configured')
  await restarted.prepare(two)
  assert.equal(restarted.tokenFor(two), two)
  assert.notEqual(restarted.digestFor(two), digest)
  writeFileSync(join(directory, 'agent-token'), '{"token": 5}')
  await assert.rejects(open(), /must contain the agent's token: it is damaged\. Remove it/)
})
