/**
 * Tokens of agents against agents that lie: a token is bound to the node that first joined with it, and to
 * the limits it was made with. An agent cannot take the name or the identity of another.
 */
import assert from 'node:assert/strict'
import {describe, test, type TestContext} from 'node:test'
import {sharedServer} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {aHello, RawAgent} from './raw-agent.ts'

const TOKEN = 'a-token-of-the-tests'
const headers = {'x-service-token': TOKEN}
const server = sharedServer({flags: ['--token', TOKEN, '--name', 'the-server']})

/** The secret of a token for agents, and its accessor. */
async function aToken(name: string, limits: object = {}) {
  const body = {name, type: 'agent', ...limits}
  const {status, json, text} = await server().ask('POST', '/acl/tokens', body, headers)
  assert.equal(status, 201, text)
  return {secret: json.secret as string, accessor: json.accessor as string}
}

/** `welcome`, or the code and message of the refusal. */
async function answerTo(t: TestContext, secret: string, hello: object): Promise<string> {
  const agent = await RawAgent.connect(t, server(), secret)
  agent.send(hello)
  return await until('an answer', () => {
    const [first] = agent.received
    if (first === undefined) return undefined
    return first.kind === 'welcome' ? 'welcome' : `${first.code}: ${first.message}`
  })
}

async function members(
  name: string,
): Promise<readonly {readonly id: string; readonly Status: number}[]> {
  const {json} = await server().ask('GET', '/members', undefined, headers)
  return json.filter((member: {Name: string}) => member.Name === name)
}

describe('tokens of agents', {concurrency: 4}, () => {
  test('a second node cannot use the token of another', async (t) => {
    const {secret, accessor} = await aToken('first')
    assert.equal(await answerTo(t, secret, aHello('first')), 'welcome')
    const shown = await server().ask('GET', `/acl/tokens/${accessor}`, undefined, headers)
    assert.deepEqual([shown.json.node_id, shown.json.node_name], ['identity-of-first', 'first'])
    const refusal =
      /^token: The agent \S+ cannot join: its token belongs to (the node first|another)/
    for (const hello of [
      aHello('second'),
      aHello('second', {joined: true}),
      aHello('first', {node: {id: 'another-identity'}}),
      aHello('renamed', {node: {id: 'identity-of-first'}}),
    ])
      assert.match(await answerTo(t, secret, hello), refusal)
    assert.equal((await members('second')).length + (await members('renamed')).length, 0)
    assert.equal(await answerTo(t, secret, aHello('first')), 'welcome')
  })

  test('an agent cannot join as another: its victim is not replaced', async (t) => {
    const {secret} = await aToken('victim')
    const victim = await RawAgent.connect(t, server(), secret)
    await victim.join('victim')
    const thief = await aToken('thief')
    const theft = {node: {id: 'identity-of-victim', incarnation: 'stolen'}}
    for (const [name, joined] of [
      ['victim', false],
      ['victim', true],
      ['other', false],
    ] as const)
      assert.match(
        await answerTo(t, thief.secret, aHello(name, {...theft, joined})),
        /^(token: .*belongs to the token "victim"\. Revoke|fenced: )/,
      )
    // A hello of an incarnation that has joined is a heartbeat too.
    const gone = {node: {id: 'identity-of-victim'}, joined: true, status: 'left'}
    assert.match(await answerTo(t, thief.secret, aHello('other', gone)), /^token: /)
    assert.equal((await members('victim'))[0]!.Status, 1, 'alive')
    const beat = {status: 'alive', activeClaims: [], pendingToken: null}
    assert.equal((await victim.request('heartbeat', 5, beat)).result, 'ok')
    assert.equal(await answerTo(t, thief.secret, aHello('thief')), 'welcome', 'still its own')
  })

  test('an agent that joined with the token of the servers is not replaced while it is alive', async (t) => {
    const agent = await RawAgent.connect(t, server(), TOKEN)
    await agent.join('unbound')
    const {secret} = await aToken('newcomer')
    const theft = aHello('unbound', {node: {incarnation: 'stolen'}})
    assert.match(await answerTo(t, secret, theft), /^(alive|unavailable): /)
    const beat = {status: 'alive', activeClaims: [], pendingToken: null}
    assert.equal((await agent.request('heartbeat', 5, beat)).result, 'ok')
  })

  test('an agent cannot take the name of a silent node, unless its token was made for it', async (t) => {
    const old = await RawAgent.connect(t, server(), TOKEN)
    await old.join('silent')
    await old.request('heartbeat', 1, {status: 'left', activeClaims: [], pendingToken: null})
    old.socket.terminate()
    const hello = aHello('silent', {node: {id: 'a-new-machine'}})
    const any = await aToken('any', {names: ['sil*']})
    assert.match(
      await answerTo(t, any.secret, hello),
      /^name_taken: .* another node has its name\. .*belfry members remove identity-of-silent\.$/,
    )
    const made = await aToken('made', {names: ['silent']})
    assert.equal(await answerTo(t, made.secret, hello), 'welcome')
  })

  const limits = {names: ['press-*'], tags: {room: ['printing', 'store-*'], raw: ['*']}, slots: 4}
  const beyond: readonly (readonly [string, object, RegExp])[] = [
    [
      'another name',
      {name: 'lathe'},
      /^token: The node name lathe .* allows press-\*\. Set --name\.$/,
    ],
    ['too many slots', {slots: 5}, /^token: .* 5 slots: the token allows 4\. Set --slots 4\.$/],
    [
      'an invented tag',
      {tags: {gpu: '1'}},
      /^token: The tag gpu=1 .* only the tags room, raw\. Remove/,
    ],
    [
      'another value',
      {tags: {room: 'office'}},
      /^token: .* allows room = printing, store-\*\. Change/,
    ],
  ]
  for (const [what, node, message] of beyond)
    test(`an agent beyond its token: ${what}`, async (t) => {
      const {secret} = await aToken('limited', limits)
      const own = {name: 'press-1', tags: {room: 'store-7'}, slots: 4}
      assert.match(await answerTo(t, secret, aHello('press-1', {node: {...own, ...node}})), message)
      const id = `identity-of-${what.replaceAll(' ', '-')}`
      const name = `press-${what.replaceAll(' ', '-')}`
      assert.equal(await answerTo(t, secret, aHello('x', {node: {...own, id, name}})), 'welcome')
    })

  test('a second token of the same name replaces the first', async (t) => {
    const [first, second] = [await aToken('rotated'), await aToken('rotated')]
    assert.equal(await answerTo(t, first.secret, aHello('rotated')), 'welcome')
    const next = aHello('rotated', {node: {incarnation: 'next'}, ended: ['only-incarnation']})
    assert.equal(await answerTo(t, second.secret, next), 'welcome')
    const path = `/acl/tokens/${first.accessor}`
    assert.equal((await server().ask('DELETE', path, undefined, headers)).status, 200)
  })

  test('limits that make no sense are refused with their field', async () => {
    const bad: readonly (readonly [string, object])[] = [
      ['names', {names: []}],
      ['names', {names: 'press'}],
      ['slots', {slots: 0}],
      ['tags', {tags: []}],
      ['tags.room', {tags: {room: 'printing'}}],
      ['slots', {type: 'read', slots: 1}],
    ]
    for (const [field, limit] of bad) {
      const body = {name: 'bad', type: 'agent', ...limit}
      const {status, json} = await server().ask('POST', '/acl/tokens', body, headers)
      assert.equal(status, 400)
      assert.match(json.detail, new RegExp(`^The token cannot be created: ${field}: `))
    }
  })
})
