/** The OpenAPI document against the routes: all routes are described, exist, and need the token. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {Validator} from '@seriousme/openapi-schema-validator'
import {ERROR_CODES} from '../../src/core/error-codes.ts'
import {LATER_FIELDS} from '../../src/core/job-fields.ts'
import {startApi, type Api} from './harness.ts'

interface Parameter {
  readonly name: string
  readonly in: string
  readonly description?: string
  readonly allowEmptyValue?: boolean
  readonly schema: Record<string, unknown>
}

interface Operation {
  readonly operationId: string
  readonly parameters?: readonly Parameter[]
  readonly requestBody?: {readonly required: boolean}
  readonly summary: string
  readonly security?: readonly unknown[]
  readonly responses: Record<string, unknown>
}

interface Document {
  readonly openapi: string
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: {readonly schemas: Record<string, unknown>}
}

const PUBLIC = new Set(['/livez', '/readyz', '/health'])

async function documentOf(api: Api, version = ''): Promise<Document> {
  const reply = await api.get(`/v1/openapi${version}.json`)
  assert.equal(reply.status, 200)
  return reply.json
}

function operationsOf(document: Document) {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operation,
    })),
  )
}

test('operations have unique ids, summaries and error statuses; every $ref resolves', async (t) => {
  const document = await documentOf(await startApi(t))
  const operations = operationsOf(document)
  const ids = operations.map(({operation}) => operation.operationId)
  assert.equal(new Set(ids).size, ids.length)
  const statuses = new Set(Object.values(ERROR_CODES).map(({status}) => String(status)))
  for (const {path, operation} of operations) {
    assert.notEqual(operation.summary ?? '', '', path)
    for (const {name, description} of operation.parameters ?? [])
      assert.notEqual(description ?? '', '', `${path} ${name}`)
    const refusals = Object.keys(operation.responses).filter((status) => status >= '400')
    for (const status of refusals) assert.ok(statuses.has(status), `${path} ${status}`)
    if (!PUBLIC.has(path)) assert.ok(refusals.includes('401'), path)
    assert.equal(operation.security?.length === 0, PUBLIC.has(path), path)
  }
  const references = JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)
  for (const [, reference = ''] of references) {
    const name = /^#\/components\/schemas\/(\w+)$/.exec(reference)?.[1]
    assert.ok(name !== undefined && name in document.components.schemas, reference)
  }
})

/** All objects of a document, with the path of each. */
function* partsOf(
  part: unknown,
  path = '#',
): Generator<{path: string; part: Record<string, unknown>}> {
  if (typeof part !== 'object' || part === null) return
  yield {path, part: part as Record<string, unknown>}
  for (const [key, inner] of Object.entries(part)) yield* partsOf(inner, `${path}/${key}`)
}

test('both documents are valid, with patterns that every language can read', async (t) => {
  const api = await startApi(t)
  for (const [version, format] of [
    ['', /^3\.1\.\d$/],
    ['-3.0', /^3\.0\.\d$/],
  ] as const) {
    const document = await documentOf(api, version)
    assert.match(document.openapi, format)
    const {valid, errors} = await new Validator().validate(structuredClone({...document}))
    assert.ok(valid, JSON.stringify(errors))
    for (const {path, part} of partsOf(document)) {
      if (typeof part['pattern'] === 'string')
        assert.doesNotMatch(part['pattern'], /\\[pPuk]|\(\?/, path)
      if (Array.isArray(part['enum'])) assert.equal(part['type'], 'string', path)
    }
  }
})

test('the document in version 3.0 has the same operations and schemas, without newer keywords', async (t) => {
  const api = await startApi(t)
  const newer = await documentOf(api)
  const older = await documentOf(api, '-3.0')
  const ids = (document: Document) =>
    operationsOf(document).map(({method, path, operation}) => {
      const parameters = (operation.parameters ?? []).map(({name}) => name)
      return [method, path, operation.operationId, parameters, Object.keys(operation.responses)]
    })
  assert.deepEqual(ids(older), ids(newer))
  const names = ({components}: Document) =>
    Object.entries(components.schemas).map(([name, schema]) => {
      return [name, Object.keys((schema as {properties?: object}).properties ?? {})]
    })
  assert.deepEqual(names(older), names(newer))
  for (const {path, part} of partsOf(older)) {
    assert.notEqual(part['type'], 'null', path)
    assert.ok(!Array.isArray(part['type']) && !Array.isArray(part['examples']), path)
    if (part['nullable'] === true) assert.equal(typeof part['type'], 'string', path)
  }
  const {JobDefinition, Job} = older.components.schemas as Record<
    string,
    {properties: Record<string, {type: string; nullable: boolean; enum?: unknown[]}>}
  >
  assert.deepEqual(JobDefinition!.properties['concurrency']!.enum, ['allow', 'forbid', '', null])
  assert.deepEqual(
    [Job!.properties['next']!.type, Job!.properties['next']!.nullable],
    ['string', true],
  )
})

test('what the server accepts is described: empty parameters, sizes, policies', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('nobody')
  const document = await documentOf(api)
  for (const {method, path, operation} of operationsOf(document)) {
    if (method !== 'GET' || path === '/v1/events') continue
    for (const {name, in: place, allowEmptyValue} of operation.parameters ?? []) {
      if (place !== 'query') continue
      assert.equal(allowEmptyValue === true, name !== 'schedule', `${path} ${name}`)
      const query = path.includes('preview') ? `schedule=@daily&${name}=` : `${name}=`
      assert.notEqual((await api.get(`${pathOf(path)}?${query}`)).status, 400, `${path} ${name}`)
    }
  }
  const parameter = (path: string, method: string, name: string) =>
    document.paths[path]![method]!.parameters!.find((each) => each.name === name)!
  for (const path of ['/v1/jobs/{name}/executions', '/v1/busy']) {
    assert.deepEqual(parameter(path, 'get', 'output_size_limit').schema, {
      type: 'integer',
      minimum: 0,
    })
    for (const [size, status] of [
      [-1, 400],
      [0, 200],
      [262_145, 200],
    ] as const)
      assert.equal((await api.get(`${pathOf(path)}?output_size_limit=${size}`)).status, status)
  }
  const preview = parameter('/v1/schedules/preview', 'get', 'schedule')
  assert.equal(preview.schema['minLength'], 1)
  assert.equal((await api.get('/v1/schedules/preview?schedule=')).status, 400)
  const named = parameter('/v1/acl/policies/{name}', 'post', 'name')
  const pattern = new RegExp(String(named.schema['pattern']))
  for (const [name, isValid] of [
    ['a.B_1-', true],
    ['a b', false],
    ['x'.repeat(129), false],
  ] as const) {
    assert.equal(pattern.test(name), isValid)
    const path = `/v1/acl/policies/${encodeURIComponent(name)}`
    const stored = await api.post(path, {Name: null, Rules: ''})
    assert.equal(stored.status, isValid ? 202 : 400, name)
  }
  const putPolicy = document.paths['/v1/acl/policies/{name}']!['post']!
  assert.equal(putPolicy.requestBody!.required, false)
  assert.ok(document.paths['/v1/jobs']!['post']!.requestBody!.required)
})

test('statuses and media types that clients meet are described', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('nobody')
  const document = await documentOf(api)
  for (const path of ['/v1/jobs/{name}', '/v1/jobs/{name}/run']) {
    const empty = await api.post(pathOf(path), undefined, {'idempotency-key': ''})
    assert.equal(empty.status, 400)
    assert.ok('400' in document.paths[path]!['post']!.responses, path)
  }
  const backup = await api.get('/v1/backup')
  assert.equal(backup.headers['content-type'], 'application/octet-stream')
  const content = (path: string, status: string) =>
    (document.paths[path]!['get']!.responses[status] as {content?: object}).content
  assert.deepEqual(Object.keys(content('/v1/backup', '200')!), ['application/octet-stream'])
  assert.equal(content('/v1/isleader', '404'), undefined)
  assert.deepEqual(Object.keys(content('/readyz', '503')!), ['application/json'])
})

const pathOf = (path: string) =>
  path.replace(/\{(\w+)\}/g, (_whole, name: string) => (name === 'group' ? '1' : 'nobody'))

test('every described operation exists, and needs the token unless it is public', async (t) => {
  const api = await startApi(t, {token: 'a-token-of-some-length'})
  const headers = {'x-service-token': 'a-token-of-some-length'}
  const reply = await api.get('/v1/openapi.json', headers)
  for (const {method, path} of operationsOf(reply.json)) {
    const place = pathOf(path)
    const withoutToken = await api.call(method, place)
    assert.equal(withoutToken.status, PUBLIC.has(path) ? 200 : 401, `${method} ${path}`)
    if (path === '/v1/events') continue
    const withToken = await api.call(method, place, {headers})
    assert.notEqual(withToken.json?.code, 'route_unknown', `${method} ${path}`)
    assert.ok(
      ![401, 403, 405, 500].includes(withToken.status),
      `${method} ${path} ${withToken.text}`,
    )
  }
})

/** The last one locks the API. */
async function accessReplies(api: Api): Promise<readonly (readonly [string, unknown])[]> {
  await api.post('/v1/acl/policies/p', {path: {'/v1/jobs': {capabilities: ['list']}}})
  const created = (await api.post('/v1/acl/bootstrap')).json
  const headers = {'x-service-token': created.secret as string}
  const token = {name: 'c', type: 'client', policies: ['p']}
  const {accessor} = (await api.post('/v1/acl/tokens', token, headers)).json
  const at = `/v1/acl/tokens/${accessor}`
  const answer = (await api.get(`${at}/check?method=GET&path=/v1/jobs`, headers)).json
  return [
    ['CreatedToken', created],
    ['Token', (await api.get(at, headers)).json],
    ['AccessAnswer', answer],
    ['AccessCheck', answer.checks[0]],
  ]
}

/** Fields that the API contract does not name are absent when they are not set. */
const ABSENT: Readonly<Record<string, readonly string[]>> = {
  Job: ['firing_paused', 'waits_for_node', ...LATER_FIELDS.map(({wire}) => wire)],
  Execution: ['not_before'],
  LaunchExecution: ['not_before'],
  Launch: ['ended_at', 'parent', 'root', 'children'],
}

test('replies have exactly the described fields', async (t) => {
  const api = await startApi(t)
  const {components} = await documentOf(api)
  await api.join()
  const job = await api.job('shape')
  await api.finish(await api.running('shape'), 'succeeded', {text: 'x'})
  await api.running('shape')
  const replies: readonly (readonly [string, unknown])[] = [
    ['Job', job],
    ['Execution', (await api.get('/v1/jobs/shape/executions')).json[0]],
    ['Launch', (await api.get('/v1/jobs/shape/launches')).json[0]],
    ['LaunchExecution', (await api.get('/v1/jobs/shape/launches')).json[0].executions[0]],
    ['LaunchList', (await api.get('/v1/launches')).json],
    ['ExecutionList', (await api.get('/v1/executions')).json],
    ['Trace', (await api.get('/v1/launches/1/trace')).json],
    ['Problems', (await api.get('/v1/problems')).json],
    ['Member', (await api.get('/v1/leader')).json],
    ['Status', (await api.get('/v1/')).json],
    ['PauseStatus', (await api.get('/v1/pause')).json],
    ['Firing', (await api.post('/v1/resume')).json],
    ['ExecutionStats', (await api.get('/v1/stats')).json],
    ['ExecutionStat', (await api.get('/v1/stats')).json.stats[0]],
    ['PlannedTimes', (await api.get('/v1/jobs/shape/next')).json],
    ['Policy', (await api.post('/v1/acl/policies/p', {Rules: ''})).json],
    ['Health', (await api.get('/health')).json],
    ['Readiness', (await api.get('/readyz')).json],
    ['Problem', (await api.get('/v1/jobs/nobody')).json],
    ['Revision', (await api.get('/v1/jobs/shape/revisions')).json[0]],
    ['RevisionDefinition', (await api.get('/v1/jobs/shape/revisions/1')).json],
    ['RevisionDiff', (await api.get('/v1/jobs/shape/revisions/1/diff')).json],
    ['AuditEntry', (await api.get('/v1/audit')).json[0]],
    ...(await accessReplies(api)),
  ]
  for (const [name, reply] of replies) {
    const shape = components.schemas[name] as {properties: object; required: string[]}
    const absent = ABSENT[name] ?? []
    const always = Object.keys(shape.properties).filter((field) => !absent.includes(field))
    assert.deepEqual(Object.keys(reply as object).toSorted(), always.toSorted(), name)
    assert.deepEqual([...shape.required].toSorted(), always.toSorted(), name)
  }
})

test('the API reference page loads nothing from other servers', async (t) => {
  const api = await startApi(t)
  const page = await api.get('/docs')
  assert.equal(page.status, 200)
  assert.match(String(page.headers['content-type']), /^text\/html/)
  assert.doesNotMatch(page.text, /https?:\/\//, 'no external URL')
  const [, script] = /<script src="([^"]+)"/.exec(page.text) ?? []
  assert.equal(script, '/docs/js/scalar.js')
  const code = await api.get(script)
  assert.equal(code.status, 200)
  assert.ok(code.text.length > 1_000_000)
  assert.match(page.text, /"url": "\/v1\/openapi\.json"/)
  assert.equal((await api.get('/docs/')).text, page.text)
})
