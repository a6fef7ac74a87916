/**
 * What may come through the door for agents once somebody has the token: garbage, lies, floods and silence.
 * Each is refused in words, and the server and everybody's work stay well.
 */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {AGENT_MESSAGE_BYTES_MAX, HELD_MAX, PROTOCOL} from '../../src/agents/protocol.ts'
import {peakResidentBytes} from '../support/living-processes.ts'
import {isOver, sharedServer} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {aHello, RawAgent} from './raw-agent.ts'

const TOKEN = 'a-token-of-the-tests'
const server = sharedServer({flags: ['--token', TOKEN, '--name', 'the-server']})
const asked = (path: string) => server().ask('GET', path, undefined, {'x-service-token': TOKEN})
const sent = (path: string, body?: unknown) =>
  server().ask('POST', path, body, {'x-service-token': TOKEN})

/** An agent of its own for each test, and each its own work: a job that only it may run. */
async function working(t: Parameters<typeof RawAgent.connect>[0], name: string) {
  const agent = await RawAgent.connect(t, server(), TOKEN)
  await agent.join(name)
  const job = {name, schedule: '@manually', tags: {raw: name}, executor: 'shell'}
  const stored = await sent('/jobs', {...job, executor_config: {command: 'true'}})
  assert.equal(stored.status, 201, stored.text)
  assert.equal((await sent(`/jobs/${name}/run`)).status, 202)
  const claim = await until('there is work', async () => {
    const answer = await agent.ask('claim', claims, {token: `token-${claims++}`, room: 1})
    return answer.claimed.length === 1 && answer.claimed[0]
  })
  const {group, node, attempt} = claim.execution
  return {agent, key: {group, node, attempt}, token: claim.token as string}
}

let claims = 1_000_000

const NOBODYS = {key: {group: 999_999, node: 'nobody', attempt: 1}, token: 'a-guess'}
const END = {
  status: 'succeeded',
  durationMs: 5,
  exitCode: 0,
  reason: '',
  outputHead: '',
  outputFoot: '',
  output: {offset: 0, bytes: 'b2sK', totalBytes: 3},
  dropOutput: false,
  dice: 0.5,
}
const APPEND = {...NOBODYS, job: 'x', offset: 0, bytes: 'b2sK'}

describe('who is not let in', {concurrency: 4}, () => {
  const hellos: readonly (readonly [string, object, code: string, message: RegExp])[] = [
    ['of another cluster', {clusterId: 'another'}, 'cluster', /belongs to another cluster/],
    ['newer by two', {protocol: PROTOCOL + 2}, 'protocol', /version 3 of .*update the older/],
    ['of no version', {protocol: 'new'}, 'malformed', /cannot read/],
    ['called as a server', {node: {name: 'the-server'}}, 'name_taken', /give this one another/],
    ['without a name', {node: {name: ''}}, 'malformed', /cannot read/],
    ['of very many slots', {node: {slots: 1e9}}, 'malformed', /cannot read/],
    ['with too many tags', {node: {tags: manyTags()}}, 'malformed', /cannot read/],
    ['with holes in its list', {held: [{key: null, token: 't'}]}, 'malformed', /cannot read/],
  ]
  for (const [what, changes, code, message] of hellos)
    test(`an agent ${what}: ${code}`, async (t) => {
      const agent = await RawAgent.connect(t, server(), TOKEN)
      agent.say(aHello('stranger', {...changes}))
      const refused = await agent.hears({kind: 'refused'})
      assert.equal(refused.code, code)
      assert.match(refused.message, message)
      const {code: closed, reason} = await agent.farewell
      assert.deepEqual([closed, reason], [1000, refused.message.slice(0, 123)])
    })

  test('an agent called as another that is alive', async (t) => {
    const first = await RawAgent.connect(t, server(), TOKEN)
    await first.join('first-come')
    const second = await RawAgent.connect(t, server(), TOKEN)
    second.say(aHello('first-come', {node: {id: 'another-identity'}}))
    assert.equal((await second.hears({kind: 'refused'})).code, 'name_taken')
    assert.equal(first.socket.readyState, first.socket.OPEN)
  })

  test('an agent with the identity of the server', async (t) => {
    const id = readFileSync(join(server().data, 'node-id'), 'utf8').trim()
    const agent = await RawAgent.connect(t, server(), TOKEN)
    agent.say(aHello('thief', {node: {id}}))
    assert.match((await agent.hears({kind: 'refused'})).message, /own --data/)
  })

  const firstWords: readonly (readonly [string, unknown, code: number, reason: RegExp])[] = [
    ['no JSON', 'hello', 1000, /cannot read/],
    ['no object', '[]', 1000, /cannot read/],
    ['a kind that is no text', {kind: {}}, 1000, /cannot read/],
    ['a kind from the prototype', {kind: '__proto__', id: 1}, 1000, /cannot read/],
    ['a nest of brackets', '['.repeat(1_000_000), 1000, /cannot read/],
    ['a question', {kind: 'cancelled', id: 1}, 1000, /did not introduce itself/],
    ['bytes', Buffer.from([1, 2, 3]), 1003, /only texts/],
    ['too much', 'x'.repeat(AGENT_MESSAGE_BYTES_MAX + 1), 1009, /^$/],
  ]
  for (const [what, words, code, reason] of firstWords)
    test(`one whose first word is ${what}`, async (t) => {
      const agent = await RawAgent.connect(t, server(), TOKEN)
      agent.say(words)
      const farewell = await within(agent.farewell, 'it is told to go', 20_000)
      assert.equal(farewell.code, code)
      assert.match(farewell.reason, reason)
    })

  test('one that introduces itself twice at once', async (t) => {
    const agent = await RawAgent.connect(t, server(), TOKEN)
    agent.say(aHello('twice'))
    agent.say(aHello('twice'))
    assert.match((await agent.farewell).reason, /introduced itself twice/)
  })

  test('one that says nothing, and one that says nothing any more', async (t) => {
    const silent = await RawAgent.connect(t, server(), TOKEN)
    const asleep = await RawAgent.connect(t, server(), TOKEN)
    await asleep.join('asleep')
    assert.deepEqual(await within(silent.farewell, 'it is closed', 20_000), {
      code: 1008,
      reason: 'the agent did not introduce itself in time',
    })
    const {code, reason} = await within(asleep.farewell, 'it is let go', 30_000)
    assert.deepEqual([code, reason], [1000, 'nothing was heard of this agent for 10 s'])
  })

  test('three hundred of them: everybody else is served meanwhile', async (t) => {
    const crowd = await Promise.all(
      Array.from({length: 300}, () => RawAgent.connect(t, server(), TOKEN)),
    )
    const {agent} = await working(t, 'in-the-crowd')
    assert.equal((await asked('/members')).status, 200)
    const farewells = await within(
      Promise.all(crowd.map(({farewell}) => farewell)),
      'all are closed',
      30_000,
    )
    assert.ok(farewells.every(({code}) => code === 1008))
    assert.equal(agent.socket.readyState, agent.socket.OPEN)
  })
})

describe('what an agent may not say', {concurrency: 4}, () => {
  const key = (changes: object) => ({...NOBODYS, key: {...NOBODYS.key, ...changes}})
  const questions: readonly (readonly [string, object])[] = [
    ['a group below one', {kind: 'verify', id: 1, claims: [key({group: 0})]}],
    ['half a group', {kind: 'verify', id: 1, claims: [key({group: 1.5})]}],
    ['a node with a slash', {kind: 'verify', id: 1, claims: [key({node: 'a/b'})]}],
    ['an attempt of a text', {kind: 'verify', id: 1, claims: [key({attempt: '1'})]}],
    ['a token with spaces', {kind: 'verify', id: 1, claims: [{...NOBODYS, token: 'a b'}]}],
    ['too many at once', {kind: 'verify', id: 1, claims: Array.from({length: 257}, () => NOBODYS)}],
    ['no number', {kind: 'cancelled', id: 0}],
    ['negative room', {kind: 'claim', id: 1, token: 't', room: -1}],
    ['a negative offset', {kind: 'append', id: 1, items: [{...APPEND, offset: -1}]}],
    ['a huge offset', {kind: 'append', id: 1, items: [{...APPEND, offset: 2 ** 53}]}],
    ['what is not base64', {kind: 'append', id: 1, items: [{...APPEND, bytes: 'A'}]}],
    ['an exit code of a fable', {kind: 'finish', id: 1, items: [end({exitCode: 1e300})]}],
    ['an end that is none', {kind: 'finish', id: 1, items: [end({status: 'running'})]}],
    ['dice of one', {kind: 'finish', id: 1, items: [end({dice: 1})]}],
    ['a status of nobody', {kind: 'beat', id: 1, status: 'king', held: [], claiming: null}],
  ]
  for (const [index, [what, question]] of questions.entries())
    test(what, async (t) => {
      const agent = await RawAgent.connect(t, server(), TOKEN)
      await agent.join(`bad-${index}`)
      agent.say(question)
      assert.equal((await agent.hears({kind: 'refused'})).code, 'malformed')
      assert.match((await agent.farewell).reason, /cannot read/)
    })

  test('anything about work that another has claimed', async (t) => {
    const {agent, key: mine, token} = await working(t, 'owner')
    const thief = await RawAgent.connect(t, server(), TOKEN)
    await thief.join('thief')
    for (const guess of [{key: mine, token: 'a-guess'}, NOBODYS]) {
      const {hold} = await thief.ask('verify', claims++, {claims: [guess]})
      assert.deepEqual(hold, [false])
      const items = [{...APPEND, ...guess}]
      assert.deepEqual((await thief.ask('append', claims++, {items})).taken, [false])
      const {outcomes} = await thief.ask('finish', claims++, {items: [{...END, ...guess}]})
      assert.deepEqual(outcomes, [{kind: 'unknown', key: guess.key}])
    }
    assert.deepEqual((await thief.ask('cancelled', claims++, {})).keys, [])
    const beat = {status: 'alive', held: [{key: mine, token}], claiming: null}
    assert.deepEqual((await thief.ask('beat', claims++, beat)).end, [mine], 'it is not the thief’s')
    const {outcomes} = await agent.ask('finish', claims++, {items: [{...END, key: mine, token}]})
    assert.equal(outcomes[0].kind, 'finished')
    const {json} = await asked('/jobs/owner/executions')
    assert.deepEqual(
      json.map(({status, output}: {status: string; output: string}) => [status, output]),
      [['succeeded', 'ok\n']],
    )
  })

  test('impossible amounts of its own output harm nobody but itself', async (t) => {
    const {agent, key: mine, token} = await working(t, 'braggart')
    const items = [2 ** 52, 7, 0].map((offset) => ({...APPEND, key: mine, token, offset}))
    assert.deepEqual((await agent.ask('append', claims++, {items})).taken, [true, true, true])
    const output = {offset: 5, bytes: 'b2sK', totalBytes: 1}
    const ends = [{...END, key: mine, token, output}]
    assert.equal((await agent.ask('finish', claims++, {items: ends})).outcomes[0].kind, 'finished')
    const {status, json} = await asked('/jobs/braggart/executions')
    assert.equal(status, 200)
    assert.ok(json.every(isOver))
  })
})

test('an agent that asks and never reads is not asked for ever', async (t) => {
  const agent = await RawAgent.connect(t, server(), TOKEN)
  await agent.join('deaf')
  agent.socket.pause()
  const before = peakResidentBytes(server().pid)
  // Some 2 MB each, answered by 1 MB: what is to be ended.
  const held = Array.from({length: HELD_MAX}, (_, index) => ({
    ...NOBODYS,
    key: {...NOBODYS.key, group: index + 1},
  }))
  const beat = JSON.stringify({kind: 'beat', id: 1, status: 'alive', held, claiming: null})
  for (let sent = 0; sent < 150; sent += 1) agent.say(beat)
  await within(closedOf(agent), 'it is let go', 30_000)
  assert.equal((await asked('/members')).status, 200)
  const grownBytes = peakResidentBytes(server().pid) - before
  assert.ok(grownBytes < 250 * 2 ** 20, `the server grew by ${grownBytes} bytes`)
})

/** A socket that is not read hears of its end only when it is written to. */
async function closedOf(agent: RawAgent): Promise<void> {
  await until(
    'the other side is gone',
    async () => {
      const {json} = await asked('/members')
      const deaf = json.find(({Name}: {Name: string}) => Name === 'deaf')
      return deaf?.Status !== 1
    },
    30_000,
  )
  agent.socket.terminate()
  await agent.farewell
}

function end(changes: object): object {
  return {...END, ...NOBODYS, ...changes}
}

function manyTags(): Readonly<Record<string, string>> {
  return Object.fromEntries(Array.from({length: 200}, (_, index) => [`tag-${index}`, '']))
}
