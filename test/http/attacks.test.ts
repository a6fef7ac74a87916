/**
 * Attacks on the HTTP API: rebinding, cross-site requests, split headers, poisoned and bombed bodies, texts
 * that make matching slow. Each is refused, or has no effect, and the server serves the next request.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AGENT_PATH} from '../../src/agents/protocol.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {rawReply} from '../support/raw-reply.ts'
import {type Api, type Reply, startApi} from './harness.ts'
import {definition, startLockedApi, TEAM_A} from './tokens.ts'

const AGENTS = {connect: () => assert.fail('no agent was accepted'), stop: async () => undefined}
const HANDSHAKE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
}
const JOB = definition('attacked')

/** A request as bytes, on a connection of its own. */
function rawRequest(
  api: Api,
  line: string,
  headers: Readonly<Record<string, string>>,
  body = '',
): Promise<string> {
  const all = {host: 'localhost', connection: 'close', ...headers}
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return rawReply(api.port, `${line} HTTP/1.1\r\n${lines.join('')}\r\n${body}`)
}

const statusOf = (reply: string) => Number(/^HTTP\/1\.1 (\d{3}) /.exec(reply)?.[1] ?? 0)

/** Afterwards it serves, has met no internal error, and has no object that the attack made. */
async function survives(api: Api, headers: Record<string, string> = {}): Promise<void> {
  assert.equal((await api.get('/v1/jobs', headers)).status, 200)
  assert.deepEqual(api.faults, [])
  assert.equal(({} as Record<string, unknown>)['polluted'], undefined)
}

test('a page that rebinds its name to this machine reaches nothing', async (t) => {
  const api = await startApi(t, {agents: AGENTS})
  const hosts = [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'evil.example:80',
    'localhost@evil.example',
    'localhost:80@evil.example',
    'evil.example#localhost',
    'localhost,evil.example',
    '[::1]evil.example',
    '[::1].evil.example:80',
    '0x7f000001.evil.example',
    'localhost:999999',
    'node-a.evil.example',
    'lоcalhost', // Cyrillic
    '',
  ]
  const asked: readonly (readonly [string, string, Readonly<Record<string, string>>?])[] = [
    ['GET', '/v1/jobs'],
    ['GET', '/v1'],
    ['POST', '/v1/jobs'],
    ['GET', '/v1/events', {accept: 'text/event-stream'}],
    ['GET', AGENT_PATH, HANDSHAKE],
    ['GET', '/ui/'],
    ['GET', '/livez'],
    ['GET', 'http://evil.example/v1/jobs'],
  ]
  for (const host of hosts)
    for (const [method, path, more = {}] of asked) {
      const reply = await rawRequest(api, `${method} ${path}`, {...more, host})
      assert.ok([400, 421].includes(statusOf(reply)), `${host} ${path}: ${reply}`)
    }
  // A target with its own host name does not replace the header.
  const absolute = await rawRequest(api, 'GET http://localhost/v1/jobs', {host: 'evil.example'})
  assert.equal(statusOf(absolute), 421)
  await survives(api)
})

test('pages of other sites change nothing and open no stream and no WebSocket', async (t) => {
  const api = await startApi(t, {agents: AGENTS})
  const {port} = api
  const own = `http://127.0.0.1:${port}`
  const foreign: Record<string, string>[] = [
    ...[
      'http://evil.example',
      `https://evil.example:${port}`,
      `http://127.0.0.1:${port}.evil.example`,
      `http://127.0.0.1:${port}@evil.example`,
      `http://localhost:${port}`,
      'http://127.0.0.1',
      'null',
      'file://',
      '',
      `${own}, http://evil.example`,
      `${own} http://evil.example`,
    ].map((origin) => ({origin})),
    ...['cross-site', 'same-site', 'CROSS-SITE', 'cross-site, same-origin', 'unheard-of'].map(
      (site) => ({'sec-fetch-site': site, origin: own}),
    ),
  ]
  const asked: readonly (readonly [string, string, Readonly<Record<string, string>>?])[] = [
    ['POST', '/v1/jobs', {'content-type': 'text/plain'}],
    ['POST', '/v1/jobs/attacked', {'content-type': 'application/x-www-form-urlencoded'}],
    ['POST', '/v1/jobs/attacked/run'],
    ['PUT', '/v1/jobs/attacked'],
    ['PATCH', '/v1/jobs'],
    ['DELETE', '/v1/jobs/attacked'],
    ['POST', '/v1/restore', {'content-type': 'multipart/form-data; boundary=border'}],
    ['POST', '/v1/acl/bootstrap'],
    ['POST', '/v1/leave'],
    ['GET', '/v1/events'],
    ['GET', '/v1/jobs', {accept: 'text/event-stream'}],
    ['GET', AGENT_PATH, HANDSHAKE],
  ]
  await api.job('attacked')
  for (const headers of foreign)
    for (const [method, path, more = {}] of asked) {
      const about = `${method} ${path} ${JSON.stringify(headers)}`
      const reply = await rawRequest(api, `${method} ${path}`, {
        host: `127.0.0.1:${port}`,
        ...more,
        ...headers,
        ...(method === 'GET' ? {} : {'content-length': '0'}),
      })
      assert.equal(statusOf(reply), 403, `${about}: ${reply}`)
      assert.match(reply, /"code":"origin_refused"/, about)
      assert.doesNotMatch(reply, /access-control-allow/i, about)
    }
  assert.equal((await api.get('/v1/jobs/attacked')).json.success_count, 0)
  assert.equal(api.leaveCalls, 0)
  assert.deepEqual((await api.get('/v1/acl/tokens')).json, [])
  await survives(api)
})

test('a request that two servers could read as two is refused, and its connection closed', async (t) => {
  const api = await startApi(t)
  const smuggled = 'POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n'
  const length = String(smuggled.length)
  const requests = [
    `Content-Length: ${length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    `Content-Length: 0\r\nContent-Length: ${length}\r\n\r\n${smuggled}`,
    `Content-Length: 0,${length}\r\n\r\n${smuggled}`,
    `Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${smuggled}`,
    `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n${smuggled}`,
    `Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${smuggled}`,
    `X: 1\n Content-Length: 0\r\n\r\n${smuggled}`,
    `Content-Length: +0\r\n\r\n${smuggled}`,
    `X: \0\r\n\r\n`,
  ]
  for (const text of requests) {
    const reply = await rawReply(api.port, `POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n${text}`)
    assert.equal(statusOf(reply), 400, `${text} ${reply}`)
    assert.equal(reply.split('HTTP/1.1 ').length, 2, `one reply to ${text}`)
  }
  assert.deepEqual((await api.get('/v1/pause')).json, {paused: false})
  await survives(api)
})

test('text of a request or a job cannot inject a header into the reply', async (t) => {
  const api = await startApi(t)
  const split = '\r\nX-Injected: yes\r\n\r\n<html>'
  const encoded = encodeURIComponent(split)
  const replies: Reply[] = []
  for (const body of [
    {...JOB, [`odd${split}`]: 1},
    {...JOB, name: `x${split}`},
    {...JOB, owner: split, displayname: split, executor_config: {command: split}},
    {...JOB, executor_config: {}, tags: {[split]: split}},
    {...JOB, processors: {[split]: {}}},
    {...JOB, metadata: {[split]: split}},
  ])
    replies.push(
      await api.post('/v1/jobs', body),
      await api.call('PUT', `/v1/jobs/${encoded}`, {body}),
    )
  for (const path of [
    `/v1/jobs/${encoded}`,
    `/v1/jobs/attacked/executions/${encoded}/output?download=${encoded}`,
    `/v1/jobs?_sort=${encoded}`,
    `/v1/${encoded}`,
    `/v1/schedules/preview?schedule=${encoded}`,
    `/ui/${encoded}`,
  ])
    replies.push(await api.get(path), await api.post(path))
  for (const {headers, text} of replies) {
    assert.equal(headers['x-injected'], undefined, text)
    assert.doesNotMatch(String(headers['content-type']), /html/)
  }
  const key = await rawRequest(api, 'POST /v1/jobs/attacked', {
    'idempotency-key': 'a\rX-Injected: b',
  })
  assert.equal(statusOf(key), 400)
  await survives(api)
})

const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)

test('poisoned, repeated and deeply nested keys reach no object', async (t) => {
  const {api, admin, client, headers} = await startLockedApi(t)
  const team = await client('team-a', TEAM_A)
  const start = '{"name":"team-a-x","schedule":"@manually","executor":"shell"'
  const bodies = [
    ...['__proto__', 'constructor', 'prototype', '\\u005f_proto__', 'constr\\u0075ctor'].flatMap(
      (key) => [
        `${start},"${key}":{"polluted":"yes","disabled":true}}`,
        `${start},"tags":{"${key}":"1"}}`,
        `${start},"metadata":{"${key}":{"polluted":"yes"}}}`,
        `${start},"processors":{"${key}":{"polluted":"yes"}}}`,
        `${start},"processors":{"log":{"${key}":"yes"}}}`,
        `${start},"executor_config":{"${key}":"yes"}}`,
      ],
    ),
    `${start},"tags":${nested(32)}}`,
    `${start},"tags":${nested(300_000)}}`,
    `${start},"metadata":${'{"a":'.repeat(33)}1${'}'.repeat(33)}}`,
  ]
  for (const body of bodies) {
    const about = body.slice(0, 120)
    assert.equal((await admin.call('POST', '/v1/jobs', body)).status, 400, about)
    assert.equal((await admin.call('PUT', '/v1/jobs/team-a-x', body)).status, 400, about)
    const file = multipart([{name: 'file', filename: 'jobs.json', body: `[${body}]`}])
    const restored = await api.call('POST', '/v1/restore', {
      body: file.body,
      headers: {...headers, ...file.headers},
    })
    assert.equal(restored.status, 400, about)
    const policy = await admin.call('POST', '/v1/acl/policies/odd', body)
    assert.ok([200, 201, 400].includes(policy.status), about)
    assert.ok([400, 404].includes((await admin.call('POST', '/v1/acl/tokens', body)).status), about)
  }
  // The last of repeated keys counts, for the policy and for the store.
  const repeated = (...names: string[]) =>
    `{${names.map((name) => `"name":"${name}"`).join()},"schedule":"@manually","executor":"shell"}`
  const path = '/v1/jobs'
  assert.equal((await team.call('POST', path, repeated('team-a-x', 'team-b-x'))).status, 403)
  assert.equal((await team.call('POST', path, repeated('team-b-x', 'team-a-x'))).status, 201)
  const names = (await admin.call('GET', path)).json.map(({name}: {name: string}) => name)
  assert.deepEqual(names, ['team-a-x'])
  for (const query of [
    '__proto__=1',
    'metadata[__proto__]=1',
    'metadata[constructor]=1',
    '_sort=__proto__',
    'status=constructor',
  ])
    assert.ok((await admin.call('GET', `/v1/jobs?${query}`)).status <= 400, query)
  for (const name of ['__proto__', 'constructor', 'toString'])
    for (const list of ['/v1/jobs', '/v1/acl/policies', '/v1/acl/tokens'])
      assert.ok([400, 404, 405].includes((await admin.call('GET', `${list}/${name}`)).status), name)
  await survives(api, headers)
})

interface Part {
  readonly name: string
  readonly filename?: string
  readonly headers?: string
  readonly body: string
}

function multipart(parts: readonly Part[], boundary = 'border') {
  const texts = parts.map(({name, filename, headers = '', body}) => {
    const file = filename === undefined ? '' : `; filename="${filename}"`
    const disposition = `content-disposition: form-data; name="${name}"${file}`
    return `--${boundary}\r\n${disposition}\r\n${headers}\r\n${body}\r\n`
  })
  return {
    body: `${texts.join('')}--${boundary}--\r\n`,
    headers: {'content-type': `multipart/form-data; boundary=${boundary}`},
  }
}

test('a multipart body that is a bomb is refused, and the connection stays usable', async (t) => {
  const api = await startApi(t, {limits: {restoreBytesMax: 64 * 1024}})
  const good = {name: 'file', filename: 'jobs.json', body: JSON.stringify([JOB])}
  const junk = {name: 'x', body: 'y'}
  const form = multipart([good])
  const type = 'content-type'
  const bombs: Readonly<Record<string, {body: string; headers: Record<string, string>}>> = {
    parts: multipart([...Array.from({length: 1_000}, () => junk), good]),
    files: multipart([...Array.from({length: 1_000}, () => ({...junk, filename: 'f'})), good]),
    name: multipart([{name: 'n'.repeat(100_000), body: ''}]),
    filename: multipart([{name: 'x', filename: 'f'.repeat(100_000), body: ''}]),
    poison: multipart([
      {name: '__proto__', body: '1'},
      {name: 'constructor', body: '1'},
    ]),
    headers: multipart([{...junk, headers: 'x-h: 1\r\n'.repeat(5_000)}]),
    header: multipart([{...junk, headers: `x-h: ${'1'.repeat(500_000)}\r\n`}]),
    field: multipart([{name: 'file', body: 'x'.repeat(2 * 1024 * 1024)}]),
    size: multipart([{...good, body: `[${' '.repeat(128 * 1024)}]`}]),
    element: multipart([{...good, body: `[${nested(20_000)}]`}]),
    unfinished: {...form, body: form.body.slice(0, -20)},
    empty: {...form, body: ''},
    'no boundary': {...form, headers: {[type]: 'multipart/form-data'}},
    'empty boundary': {...form, headers: {[type]: 'multipart/form-data; boundary='}},
    'long boundary': multipart([junk], 'b'.repeat(10_000)),
    compressed: {...form, headers: {...form.headers, 'content-encoding': 'gzip'}},
    'other type': {...form, headers: {[type]: 'multipart/mixed; boundary=border'}},
    'encoded part': multipart([
      {...good, headers: 'content-transfer-encoding: base64\r\n', body: '!'.repeat(5_000)},
    ]),
  }
  for (const [name, {body, headers}] of Object.entries(bombs)) {
    const reply = await api.post('/v1/restore', body, headers)
    assert.ok([400, 413, 415].includes(reply.status), `${name}: ${reply.status} ${reply.text}`)
    assert.match(String(reply.headers[type]), /problem\+json/, name)
  }
  assert.deepEqual((await api.get('/v1/jobs')).json, [], 'nothing is stored')
  assert.equal((await api.post('/v1/restore', form.body, form.headers)).status, 200)
  await survives(api)
})

/** Exceeds the time of any of these texts, and is far less than that of an exponential search. */
const MATCHING_MS_MAX = 2_000

test('no text that is matched makes the server slow', async (t) => {
  const {api, admin, client, headers} = await startLockedApi(t)
  const stars = '*a'.repeat(120)
  const aaa = 'a'.repeat(128)
  const glob = `/v1/jobs/${stars}b`
  const deep = `/v1/${'**/a*a*/'.repeat(25)}**`
  const rules = (path: string) => [path, {capabilities: ['read', 'list', 'create']}] as const
  const globs = ['/v1/jobs', glob, deep, ...Array.from({length: 50}, (_each, at) => `${glob}${at}`)]
  const bait = await client('bait', {
    path: Object.fromEntries(globs.map(rules)),
    executors: [`${stars}b`],
    tags: {a: [`${stars}b`]},
  })
  assert.equal((await bait.call('GET', '/v1/jobs')).status, 200, 'its rules are valid')
  await admin.call('POST', '/v1/jobs', definition(aaa))
  const clock = systemClock()
  const quick = async (about: string, call: () => Promise<Reply>) => {
    const startedAt = clock.monotonicMs()
    const {status} = await call()
    const took = clock.monotonicMs() - startedAt
    assert.ok(took < MATCHING_MS_MAX, `${about.slice(0, 80)} took ${took} ms`)
    assert.ok(status < 500, `${about.slice(0, 80)} is ${status}`)
  }
  const schedules = [
    `0 ${'*/1,'.repeat(60)}1 * * * *`,
    `${'0-59/1,'.repeat(34)}0 * * * * *`,
    '0 0 0 30 2 *',
    '0 0 0 29 2 1#5',
    '0 0 0 31 2,4,6,9,11 *',
    '59 59 23 29W 2 0#5',
    '~ ~ ~ ~ ~ ~',
    '@every 1ns',
    '@every 99999999999999999999h',
    `@every ${'1h'.repeat(120)}`,
    `@every ${'9'.repeat(240)}s`,
    `@at ${'2'.repeat(250)}`,
    '*'.repeat(250),
    `${' '.repeat(250)}x`,
    `${'1,'.repeat(20_000)}1 * * * * *`,
    `CRON_TZ=${'Europe/'.repeat(34)} * * * * * *`,
  ]
  for (const schedule of schedules) {
    const query = new URLSearchParams({schedule: schedule.slice(0, 12_000), count: '100'})
    await quick(schedule, () => admin.call('GET', `/v1/schedules/preview?${query.toString()}`))
    await quick(schedule, () => admin.call('POST', '/v1/jobs', {...definition('s'), schedule}))
  }
  const texts = [
    stars,
    aaa,
    '%'.repeat(500),
    '_'.repeat(500),
    `${'\\'.repeat(500)}%`,
    '(a+)+$',
    '\u{1F600}'.repeat(200),
  ]
  for (const text of texts) {
    const q = encodeURIComponent(text)
    for (const by of [admin, bait]) {
      await quick(text, () => by.call('GET', `/v1/jobs?q=${q}`))
      await quick(text, () => by.call('GET', `/v1/jobs?metadata[${q}]=${q}`))
      await quick(text, () => by.call('GET', `/v1/jobs/${q}`))
      await quick(text, () => by.call('POST', '/v1/jobs', definition(text)))
    }
  }
  for (const path of ['/a'.repeat(1_000), `/v1/jobs/${aaa}`, `/v1/${'a/'.repeat(500)}`])
    await quick(path, () => bait.call('GET', path))
  const list = `"1"${' '.repeat(7_000)}x,`
  const odd: readonly Readonly<Record<string, string>>[] = [
    {authorization: `Basic ${'A'.repeat(14_000)}!`},
    {authorization: `Bearer ${' '.repeat(14_000)}x y`},
    {'if-match': `${' '.repeat(7_000)}${list}`},
    {accept: ', '.repeat(5_000)},
    {'accept-encoding': 'gzip;q=0,'.repeat(1_500)},
    {expect: '-'.repeat(14_000)},
    {'content-type': `multipart/form-data${' '.repeat(10_000)};${'a;'.repeat(1_000)}`},
  ]
  for (const each of odd)
    await quick(JSON.stringify(each), () =>
      api.call('PUT', '/v1/jobs/x', {body: JOB, headers: {...headers, ...each}}),
    )
  await survives(api, headers)
})
