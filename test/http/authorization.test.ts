/**
 * Every route of the OpenAPI document with every kind of token, on an own object and a foreign one.
 * Expectations come from the tables here, not from the server: a new route without a row fails. The tests
 * have no other list of all routes.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {Api, Stream} from './harness.ts'
import {definition, type LockedApi, startLockedApi, TEAM_A, upload} from './tokens.ts'

type Need =
  | 'public'
  | 'metrics'
  /** Every token for the API. */
  | 'any'
  /** Reads or changes one job. */
  | 'read'
  | 'change'
  /** The body names the job. */
  | 'store'
  /** Granted to the team. */
  | 'team list'
  /** Access that the team does not have. */
  | 'cluster read'
  | 'cluster change'
  | 'management'

const ROUTES: Readonly<Record<string, Need>> = {
  'GET /v1': 'cluster read',
  'GET /v1/jobs': 'team list',
  'POST /v1/jobs': 'store',
  'PATCH /v1/jobs': 'store',
  'GET /v1/jobs/{name}': 'read',
  'PUT /v1/jobs/{name}': 'store',
  'PATCH /v1/jobs/{name}': 'store',
  'POST /v1/jobs/{name}': 'change',
  'DELETE /v1/jobs/{name}': 'change',
  'POST /v1/jobs/{name}/run': 'change',
  'POST /v1/jobs/{name}/toggle': 'change',
  'POST /v1/jobs/{name}/enable': 'change',
  'POST /v1/jobs/{name}/disable': 'change',
  'GET /v1/jobs/{name}/next': 'read',
  'GET /v1/jobs/{name}/explain': 'read',
  'GET /v1/jobs/{name}/executions': 'read',
  'DELETE /v1/jobs/{name}/executions': 'change',
  'GET /v1/executions/{name}': 'read',
  'GET /v1/jobs/{name}/executions/{execution}': 'read',
  'GET /v1/jobs/{name}/executions/{execution}/output': 'read',
  'POST /v1/jobs/{name}/executions/{execution}/cancel': 'change',
  'POST /v1/jobs/{name}/executions/cancel': 'change',
  'GET /v1/launches': 'team list',
  'GET /v1/launches/{group}': 'any',
  'GET /v1/launches/{group}/trace': 'any',
  'GET /v1/executions': 'team list',
  'GET /v1/problems': 'team list',
  'GET /v1/jobs/{name}/launches': 'read',
  'GET /v1/jobs/{name}/launches/{group}': 'read',
  'GET /v1/schedules/preview': 'cluster read',
  'GET /v1/busy': 'team list',
  'GET /v1/stats': 'cluster read',
  'GET /v1/members': 'cluster read',
  'DELETE /v1/members/{member}': 'cluster change',
  'POST /v1/members/{member}/cordon': 'cluster change',
  'POST /v1/members/{member}/uncordon': 'cluster change',
  'POST /v1/members/{member}/drain': 'cluster change',
  'GET /v1/leader': 'cluster read',
  'GET /v1/isleader': 'cluster read',
  'POST /v1/leave': 'cluster change',
  'GET /v1/pause': 'cluster read',
  'POST /v1/pause': 'cluster change',
  'POST /v1/unpause': 'cluster change',
  'POST /v1/resume': 'cluster change',
  'GET /v1/firing': 'cluster read',
  'GET /v1/settings': 'cluster read',
  'PATCH /v1/settings': 'management',
  'POST /v1/firing/pause': 'cluster change',
  'POST /v1/firing/resume': 'cluster change',
  'POST /v1/restore': 'store',
  'GET /v1/backup': 'cluster read',
  'GET /v1/events': 'team list',
  'GET /v1/acl/policies': 'cluster read',
  'GET /v1/acl/policies/{name}': 'cluster read',
  'POST /v1/acl/policies/{name}': 'management',
  'DELETE /v1/acl/policies/{name}': 'management',
  'POST /v1/acl/bootstrap': 'management',
  'GET /v1/acl/tokens': 'cluster read',
  'POST /v1/acl/tokens': 'management',
  'GET /v1/acl/tokens/{accessor}': 'cluster read',
  'DELETE /v1/acl/tokens/{accessor}': 'management',
  'GET /v1/acl/tokens/{accessor}/check': 'cluster read',
  'GET /v1/secrets': 'cluster read',
  'PUT /v1/secrets/{name}': 'cluster change',
  'DELETE /v1/secrets/{name}': 'cluster change',
  'GET /v1/notices/channels': 'cluster read',
  'GET /v1/notices/channels/{name}': 'cluster read',
  'PUT /v1/notices/channels/{name}': 'cluster change',
  'DELETE /v1/notices/channels/{name}': 'cluster change',
  'POST /v1/notices/channels/{name}/test': 'cluster change',
  'GET /v1/notices/rules': 'cluster read',
  'GET /v1/notices/rules/{name}': 'cluster read',
  'PUT /v1/notices/rules/{name}': 'cluster change',
  'DELETE /v1/notices/rules/{name}': 'cluster change',
  'GET /v1/notices/incidents': 'cluster read',
  'GET /v1/notices/messages': 'cluster read',
  'POST /v1/notices/messages/{id}/resend': 'cluster change',
  'POST /v1/notices/preview': 'cluster change',
  'GET /v1/notices/mutes': 'cluster read',
  'POST /v1/notices/mutes': 'cluster change',
  'DELETE /v1/notices/mutes/{id}': 'cluster change',
  'GET /v1/acl/sessions': 'cluster read',
  'POST /v1/session': 'any',
  'GET /v1/session': 'any',
  'DELETE /v1/session': 'any',
  'GET /v1/audit': 'cluster read',
  'GET /v1/jobs/{name}/revisions': 'read',
  'GET /v1/jobs/{name}/revisions/{revision}': 'read',
  'GET /v1/jobs/{name}/revisions/{revision}/diff': 'read',
  'POST /v1/jobs/{name}/revisions/{revision}/restore': 'store',
  'GET /livez': 'public',
  'GET /readyz': 'public',
  'GET /health': 'public',
  'GET /metrics': 'metrics',
  // Outside of the document.
  'GET /v1/openapi.json': 'cluster read',
  'GET /docs': 'cluster read',
}
/** Any token for the API may read these, whatever its policies. */
const FOR_ANY: readonly string[] = ['GET /v1/openapi.json', 'GET /docs']

/**
 * Callers who may; the others get 403, and without a token 401. `team` owns team-a-*, `wide` has all of
 * /v1/**.
 */
const MAY: Readonly<Record<Need, readonly string[]>> = {
  public: [
    'none',
    'wrong',
    'management',
    'read',
    'metrics',
    'agent',
    'join',
    'team own',
    'team foreign',
    'wide',
  ],
  metrics: ['management', 'read', 'metrics', 'team own', 'team foreign', 'wide'],
  any: ['management', 'read', 'team own', 'team foreign', 'wide'],
  read: ['management', 'read', 'team own', 'wide'],
  change: ['management', 'team own', 'wide'],
  store: ['management', 'team own', 'wide'],
  'team list': ['management', 'read', 'team own', 'team foreign', 'wide'],
  'cluster read': ['management', 'read', 'wide'],
  'cluster change': ['management', 'wide'],
  management: ['management'],
}

const OWN = 'team-a-job'
const FOREIGN = 'team-b-job'
const ALL = ['create', 'read', 'update', 'delete', 'list']

interface Caller {
  readonly name: string
  readonly headers: Readonly<Record<string, string>>
  readonly job: string
}

async function callersOf(locked: LockedApi): Promise<readonly Caller[]> {
  const team = await locked.client('team-a', TEAM_A)
  const wide = await locked.client('wide', {path: {'/v1/**': {capabilities: ALL}}})
  const kinds = ['management', 'read', 'metrics', 'agent', 'join']
  const tokens = await Promise.all(kinds.map((kind) => locked.token(kind)))
  return [
    {name: 'none', headers: {}, job: FOREIGN},
    {name: 'wrong', headers: {'x-service-token': 'belfry_guess'}, job: FOREIGN},
    ...tokens.map(({headers}, at) => ({name: kinds[at]!, headers, job: FOREIGN})),
    {name: 'team own', headers: team.headers, job: OWN},
    {name: 'team foreign', headers: team.headers, job: FOREIGN},
    {name: 'wide', headers: wide.headers, job: FOREIGN},
  ]
}

/** All operations of the document, with the status of success that each describes. */
async function routesOf({api, headers}: LockedApi): Promise<ReadonlyMap<string, number>> {
  const {json} = await api.get('/v1/openapi.json', headers)
  const paths = Object.entries(
    json.paths as Record<string, Record<string, {readonly responses: object}>>,
  )
  return new Map(
    paths.flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, {responses}]) => [
        `${method.toUpperCase()} ${path}`,
        Number(Object.keys(responses).find((status) => status.startsWith('2'))),
      ]),
    ),
  )
}

/** The status of a request to the route, for the caller's object. */
async function statusOf({api}: LockedApi, route: string, {headers, job}: Caller): Promise<number> {
  const [method = '', pattern = ''] = route.split(' ')
  const path = pattern.replace(/\{(\w+)\}/g, (_all, name: string) => {
    if (name === 'group') return '1'
    return name === 'name' ? job : 'nothing'
  })
  if (route === 'GET /v1/events') {
    const stream = await Stream.open(api, path, headers)
    stream.close()
    return stream.status
  }
  if (route === 'POST /v1/restore') {
    const file = upload([definition(job)])
    const more = {...file.headers, ...headers}
    return (await api.call(method, path, {body: file.body, headers: more})).status
  }
  const body = ROUTES[route] === 'store' ? definition(job) : undefined
  return (await api.call(method, path, {body, headers})).status
}

test('every route has a row', async (t) => {
  const real = await routesOf(await startLockedApi(t))
  const rows = Object.keys(ROUTES).filter((route) => !FOR_ANY.includes(route))
  assert.deepEqual(rows.toSorted(), [...real.keys()].toSorted())
})

test('every route decides for every kind of token, on own and foreign objects', async (t) => {
  const locked = await startLockedApi(t)
  const {api, admin} = locked
  await api.join()
  const callers = await callersOf(locked)
  const described = await routesOf(locked)
  for (const name of [OWN, FOREIGN]) await locked.job(name)
  for (const [route, need] of Object.entries(ROUTES)) {
    const may = FOR_ANY.includes(route) ? MAY['team list'] : MAY[need]
    for (const caller of callers) {
      await admin.call('POST', '/v1/unpause')
      for (const name of [OWN, FOREIGN]) await locked.job(name)
      const before = (await admin.call('GET', `/v1/jobs/${FOREIGN}`)).text
      const status = await statusOf(locked, route, caller)
      const about = `${route} as ${caller.name} is ${status}`
      if (may.includes(caller.name)) {
        assert.ok(![401, 403, 500].includes(status), about)
        if (status < 300) assert.equal(status, described.get(route) ?? 200, about)
      } else {
        assert.equal(status, caller.name === 'none' || caller.name === 'wrong' ? 401 : 403, about)
        assert.equal((await admin.call('GET', `/v1/jobs/${FOREIGN}`)).text, before, about)
      }
    }
  }
  assert.deepEqual(api.faults, [])
})

test('a HEAD request needs what its GET needs', async (t) => {
  const locked = await startLockedApi(t)
  const team = await locked.client('team-a', TEAM_A)
  for (const name of [OWN, FOREIGN]) await locked.job(name)
  const head = async (path: string) => (await team.call('HEAD', path)).status
  assert.deepEqual(
    [await head(`/v1/jobs/${OWN}`), await head(`/v1/jobs/${FOREIGN}`), await head('/v1/members')],
    [200, 403, 403],
  )
})

test('a route that declares nothing stops the start', async (t) => {
  const api = new Api({})
  await api.build()
  t.after(() => api.close())
  const handler = () => 'open to all'
  assert.throws(
    () => api.app.get('/undeclared', handler),
    /GET \/undeclared declares what it needs/,
  )
})
