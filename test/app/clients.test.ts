/**
 * Requests of existing clients, and hostile ones: whole objects posted back, empty texts, unusual content
 * types, trailing slashes, old forms, malformed and endless requests, over a real connection.
 */
import assert from 'node:assert/strict'
import {before, describe, test} from 'node:test'
import {rawReply} from '../support/raw-reply.ts'
import {aServer, sharedServer, type Answer, type ServerProcess} from '../support/server-process.ts'

const ZERO_TIME = '0001-01-01T00:00:00Z'
const HEAVY_BYTES = 9 * 2 ** 20
const shellJob = {schedule: '@manually', executor: 'shell', executor_config: {command: 'echo hi'}}

/** A server that closes early may reset the connection. */
function raw(server: ServerProcess, request: string): Promise<string> {
  return rawReply(Number(new URL(server.url).port), request, {mayReset: true})
}

describe('clients', () => {
  // Server of all tests.
  const shared = sharedServer()
  let server: ServerProcess
  before(() => {
    server = shared()
  })

  test('a whole object can be read, changed and posted back without loss', async () => {
    await server.store({name: 'whole', ...shellJob, metadata: {a: '1'}})
    await server.run('whole')
    await server.execution('whole')
    const {json, headers} = await server.get('/jobs/whole')
    const again = await server.ask('PATCH', '/jobs', {...json, displayname: 'Changed'})
    assert.equal(again.status, 201)
    assert.equal(again.headers.get('x-ignored-fields'), null)
    assert.deepEqual(again.json, {...json, displayname: 'Changed'})
    assert.notEqual(again.headers.get('etag'), headers.get('etag'))
    const same = await server.ask('PUT', '/jobs/whole/', again.json)
    assert.equal(
      same.headers.get('etag'),
      again.headers.get('etag'),
      'an equal submit changes nothing',
    )
    // Read-only fields are accepted and ignored.
    const cheat = await server.post('/jobs', {
      ...json,
      success_count: 99,
      last_error: ZERO_TIME,
      next: ZERO_TIME,
      status: 'x',
    })
    assert.equal(cheat.json.success_count, 1)
    const list = (await server.get('/jobs')).json.find(({name}: Answer['json']) => name === 'whole')
    assert.deepEqual(list, (await server.get('/jobs/whole')).json, 'list and item are equal')
  })

  test('empty texts, nulls and zero times mean not set', async () => {
    const job = {
      name: 'empty',
      displayname: '',
      timezone: '',
      schedule: '@manually',
      owner: '',
      owner_email: '',
      tags: null,
      metadata: null,
      retries: null,
      parent_job: '',
      processors: null,
      concurrency: '',
      executor: '',
      executor_config: null,
      starts_at: '',
      expires_at: null,
      disabled: null,
      ephemeral: null,
      dependent_jobs: null,
    }
    const {status, json, text} = await server.post('/jobs', job)
    assert.equal(status, 201, text)
    assert.deepEqual(
      [json.concurrency, json.tags, json.starts_at, json.next],
      ['allow', {}, null, null],
    )
    const config = {
      command: 'true',
      shell: '',
      env: '',
      cwd: '',
      timeout: '',
      payload: '',
      su: '',
      mem_limit: '',
    }
    await server.store({...shellJob, name: 'empty-config', executor_config: config})
    await server.run('empty-config')
    assert.equal((await server.execution('empty-config')).status, 'succeeded')
    const zero = await server.post('/jobs', {
      ...shellJob,
      name: 'zero',
      starts_at: ZERO_TIME,
      expires_at: ZERO_TIME,
    })
    assert.equal(zero.status, 201, zero.text)
    assert.equal(zero.json.expires_at, null)
  })

  test('older forms: command on top, processors as texts, /executions, booleans in maps', async () => {
    await server.store({
      name: 'old',
      schedule: '@every 1h',
      command: 'echo $ENV_JOB_NAME',
      shell: true,
      processors: {log: 'true'},
      metadata: {flag: true, number: 3},
    })
    await server.run('old')
    const execution = await server.execution('old')
    assert.equal(execution.output, 'old\n')
    assert.deepEqual((await server.get('/executions/old/')).json, await server.executions('old'))
    assert.deepEqual((await server.get('/jobs/old')).json.metadata, {flag: 'true', number: '3'})
  })

  test('trailing slashes, pretty, HEAD, and the headers of every response', async () => {
    for (const path of [
      '',
      '/',
      '/jobs/',
      '/members/',
      '/leader/',
      '/busy/',
      '/pause/',
      '/stats/',
    ]) {
      const {status, headers} = await server.get(path)
      assert.equal(status, 200, path)
      assert.equal(headers.get('content-type'), 'application/json; charset=utf-8')
      assert.notEqual(headers.get('x-whom'), null)
    }
    assert.equal((await server.get('/isleader/')).text, '"I am a leader"')
    for (const query of ['pretty', 'pretty=', 'pretty=true', 'pretty=1'])
      assert.match((await server.get(`/pause?${query}`)).text, /^\{\n {2}"paused": false\n\}$/)
    assert.equal((await server.get('/pause?pretty=false')).text, '{"paused":false}')
    const head = await server.ask('HEAD', '/jobs')
    assert.deepEqual([head.status, head.text], [200, ''])
    assert.notEqual(head.headers.get('x-total-count'), null)
    const wrong = await server.ask('DELETE', '/jobs')
    assert.deepEqual([wrong.status, wrong.json.code], [405, 'method_not_allowed'])
    assert.match(wrong.headers.get('allow') ?? '', /GET.*POST|POST.*GET/)
    assert.equal((await server.get('/nothing')).status, 404)
  })

  test('any content type with a JSON body, no content type, and a body that is no JSON', async () => {
    const body = JSON.stringify({...shellJob, name: 'typed'})
    for (const type of [
      'application/json',
      'encoding/json',
      'application/x-www-form-urlencoded',
      'text/plain',
      'application/json; charset=UTF-8',
    ])
      assert.equal(
        (await server.ask('POST', '/jobs', body, {'content-type': type})).status,
        201,
        type,
      )
    const length = Buffer.byteLength(body)
    const host = new URL(server.url).host
    const none = await raw(
      server,
      `POST /v1/jobs HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n` +
        `Content-Length: ${length}\r\n\r\n${body}`,
    )
    assert.match(none, /^HTTP\/1\.1 201 /)
    for (const bad of ['', '{', 'null', '[]', '"x"', '{"name":"x","schedule":"@manually"} more']) {
      const {status, text, headers} = await server.ask('POST', '/jobs', bad)
      assert.equal(status, 400, bad)
      assert.match(headers.get('content-type') ?? '', /^text\/plain/)
      assert.match(text, /^(Unable to parse payload|Job validation failed:)[^\n]*\n?$/, bad)
    }
    const empty = await server.ask('POST', '/jobs/typed/toggle', '', {
      'content-type': 'application/json',
    })
    assert.equal(empty.status, 200, 'a body is optional')
  })

  test('the list: filters, sorting and pages of existing clients', async () => {
    for (const [name, team] of [
      ['list-a', 'red'],
      ['list-b', 'blue'],
      ['list-c', 'red'],
    ] as const)
      await server.store({
        ...shellJob,
        name,
        displayname: name.toUpperCase(),
        metadata: {team, 'k:x': 'v'},
      })
    const names = async (query: string) => {
      const {json, headers} = await server.get(`/jobs?${query}`)
      return [json.map(({name}: Answer['json']) => name).join(' '), headers.get('x-total-count')]
    }
    assert.deepEqual(await names('metadata[team]=red'), ['list-a list-c', '2'])
    assert.deepEqual(await names('metadata%5Bteam%5D=red'), ['list-a list-c', '2'])
    assert.deepEqual(await names('metadata=team:blue'), ['list-b', '1'])
    assert.deepEqual(await names('metadata[]=team=blue'), ['list-b', '1'])
    assert.deepEqual(await names('metadata=red&_sort=name&_order=DESC'), ['list-c list-a', '2'])
    assert.deepEqual(await names('q=LIST-&_sort=id&_order=desc&_start=1&_end=2'), ['list-b', '3'])
    assert.deepEqual(await names('q=list-&_start=5&_end=10'), ['', '3'])
    assert.equal((await server.get('/jobs?_sort=nothing')).status, 400)
    assert.equal((await server.get('/jobs?_start=a')).status, 400)
  })

  test('times of events that have not happened yet', async () => {
    await server.store({...shellJob, name: 'holding', executor_config: {command: 'sleep 30'}})
    await server.run('holding')
    const running = await server.execution('holding', ({status}) => status === 'running')
    assert.equal(running.finished_at, ZERO_TIME)
    assert.match(running.started_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    assert.equal((await server.get('/jobs/holding')).json.last_success, null)
    await server.ask('DELETE', '/jobs/holding')
  })

  test('names and texts of every kind are stored unchanged', async () => {
    const name = 'größe_ñ-ж9'
    const command = `printf '%s' 'a "b" \\ ü 𝄞 $x'`
    const job = {
      ...shellJob,
      name,
      displayname: '<script>"\u2028',
      executor_config: {shell: 'true', command},
    }
    const {json, headers} = await server.store(job)
    assert.equal(json.displayname, job.displayname)
    assert.equal(headers.get('location'), `/v1/jobs/${encodeURIComponent(name)}`)
    const path = `/jobs/${encodeURIComponent(name)}`
    assert.equal((await server.get(path)).json.name, name)
    assert.equal((await server.post(path)).status, 202)
    assert.equal((await server.execution(encodeURIComponent(name))).output, `a "b" \\ ü 𝄞 $x`)
    for (const bad of ['', 'A', 'a b', 'a/b', '../a', 'a.b', 'x'.repeat(129), 'a\u0000'])
      assert.equal((await server.post('/jobs', {...shellJob, name: bad})).status, 400, bad)
    assert.equal((await server.get('/jobs/..%2f..%2fetc%2fpasswd')).status, 404)
    assert.equal((await server.get('/jobs/%00')).status, 404)
  })

  test('hostile requests get an error response, and the process keeps running', async () => {
    const host = new URL(server.url).host
    const poison = await server.ask(
      'POST',
      '/jobs',
      '{"name":"p","schedule":"@manually","__proto__":{"x":1}}',
    )
    assert.equal(poison.status, 400)
    assert.equal((await server.ask('POST', '/jobs', '['.repeat(5_000))).status, 400)
    assert.equal(
      (await server.ask('POST', '/jobs', `{"name":"${'x'.repeat(2 ** 20)}"}`)).status,
      413,
    )
    assert.match(await raw(server, 'NONSENSE\r\n\r\n'), /^HTTP\/1\.1 400 /)
    assert.match(
      await raw(server, `GET /v1/%zz HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`),
      /^HTTP\/1\.1 40[04] /,
    )
    assert.match(
      await raw(server, `GET / HTTP/1.1\r\nHost: ${host}\r\nX: ${'a'.repeat(100_000)}\r\n\r\n`),
      /^HTTP\/1\.1 431 /,
    )
    const elsewhere = await raw(
      server,
      'GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n',
    )
    assert.match(elsewhere, /^HTTP\/1\.1 421 /)
    const cross = await server.ask(
      'POST',
      '/jobs',
      {...shellJob, name: 'cross'},
      {'sec-fetch-site': 'cross-site'},
    )
    assert.equal(cross.status, 403)
    const origin = await server.ask(
      'POST',
      '/jobs',
      {...shellJob, name: 'cross'},
      {origin: 'https://evil.example'},
    )
    assert.equal(origin.status, 403)
    const proxied = await server.ask('GET', '/jobs', undefined, {'x-forwarded-for': '10.0.0.1'})
    assert.equal(proxied.status, 403, 'without a token, requests through a proxy are refused')
    const heavy = await fetch(`${server.url}/v1/jobs`, {
      method: 'POST',
      body: ' '.repeat(HEAVY_BYTES),
    }).then(
      ({status}) => status,
      () => 'closed',
    )
    assert.ok(heavy === 413 || heavy === 'closed')
    assert.equal((await server.get('/jobs/cross')).status, 404)
    assert.equal((await server.ask('GET', '//readyz')).status, 200)
  })
})

test('with a token every route is protected, and every way to send the token works', async (t) => {
  const token = 'sixteen-characters-and-more'
  const server = await aServer(t, {flags: ['--token', token]})
  for (const [method, path] of [
    ['GET', '/'],
    ['GET', '/jobs'],
    ['POST', '/jobs'],
    ['POST', '/leave'],
    ['GET', '/busy'],
    ['GET', '/backup'],
    ['GET', '/events'],
    ['GET', '//metrics'],
    ['GET', '/openapi.json'],
  ] as const) {
    const {status, headers} = await server.ask(method, path)
    assert.equal(status, 401, `${method} ${path}`)
    assert.notEqual(headers.get('www-authenticate'), null)
  }
  for (const path of ['//livez', '//readyz', '//health']) {
    const {status, text} = await server.ask('GET', path)
    assert.equal(status, 200, path)
    assert.ok(!text.includes('sqlite'))
  }
  for (const headers of [
    {'x-service-token': token},
    {'x-dkron-token': token},
    {authorization: `Bearer ${token}`},
  ])
    assert.equal((await server.ask('GET', '/jobs', undefined, headers)).status, 200)
  for (const wrong of ['', 'x', `${token}x`, token.slice(1), token.toUpperCase()])
    assert.equal(
      (await server.ask('GET', '/jobs', undefined, {'x-service-token': wrong})).status,
      401,
    )
})
