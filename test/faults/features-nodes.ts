/**
 * Consistency between servers: a write acknowledged by one is visible to the next read on every other. Real
 * processes: three servers, two agents, one PostgreSQL.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {Answer, ServerProcess} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {
  askAll,
  byHand,
  KEEPING_LAUNCHES,
  NODES,
  sameOnAll,
  SERVERS,
  sharedCluster,
  turns,
} from './shared-cluster.ts'

const cluster = sharedCluster(KEEPING_LAUNCHES)
const ROUNDS = 15

/** Asserts that each other server replies as `expected`, at the first read. */
async function seen(
  others: readonly ServerProcess[],
  path: string,
  expected: (answer: Answer) => unknown,
): Promise<void> {
  for (const answer of await Promise.all(others.map((server) => server.get(path))))
    assert.ok(expected(answer), `${path}: ${answer.status} ${answer.text}`)
}

async function restore(server: ServerProcess, jobs: readonly unknown[]): Promise<Response> {
  const form = new FormData()
  form.append('file', new Blob([JSON.stringify(jobs)]), 'jobs.json')
  return fetch(`${server.url}/v1/restore`, {method: 'POST', body: form})
}

test('a definition acknowledged by one server is visible on the others at once', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const {first, others} = turns(cluster(), round)
    const displayname = `round ${round}`
    const stored = await first.store(byHand('seen', 'true', {displayname}))
    const etag = stored.headers.get('etag')
    await seen(others, '/jobs/seen', ({text, headers}) => {
      return text === stored.text && headers.get('etag') === etag
    })
    await seen(others, '/jobs', ({json}) => json.at(-1).displayname === displayname)
    const {json: toggled} = await first.post('/jobs/seen/toggle')
    await seen(others, '/jobs/seen', ({json}) => json.disabled === toggled.disabled)
    const group = await first.run('seen')
    await seen(others, `/jobs/seen/launches/${group}`, ({json}) => json.cause === 'manual')
    assert.equal((await first.ask('DELETE', '/jobs/seen')).status, 200)
    await seen(others, '/jobs/seen', ({status}) => status === 404)
    await seen(others, '/jobs/seen/executions', ({status}) => status === 404)
  }
})

test('pause, policies and restored jobs are visible on all servers at once', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const {first, others} = turns(cluster(), round)
    await first.post('/pause')
    for (const other of others) {
      const refused = await other.ask('PATCH', '/jobs', byHand('refused'))
      assert.equal(refused.status, 503)
      assert.match(refused.text, /paused/)
      assert.equal((await restore(other, [byHand('refused')])).status, 503)
    }
    await seen(others, '/pause', ({json}) => json.paused === true)
    await others[0].post('/unpause')
    await seen([first, others[1]], '/pause', ({json}) => json.paused === false)

    const policy = await first.post('/acl/policies/shared', {Rules: rulesOf(round)})
    assert.equal(policy.status, 202)
    await seen(others, '/acl/policies/shared', ({json}) => json.Rules === rulesOf(round))
    await first.ask('DELETE', '/acl/policies/shared')
    await seen(others, '/acl/policies/shared', ({status}) => status === 404)

    const name = `restored-${round}`
    const restored = await restore(first, [byHand(name)])
    assert.deepEqual(await restored.json(), [`success create ${name}`])
    await seen(others, `/jobs/${name}`, ({status}) => status === 200)
    await others[1].ask('DELETE', `/jobs/${name}`)
    await seen([first, others[0]], `/jobs/${name}`, ({status}) => status === 404)
  }
})

function rulesOf(round: number): string {
  return `rules of round ${round}`
}

test('of three conditional writes on three servers, exactly one succeeds', async () => {
  const created = await onAll((server, index) =>
    server.ask('POST', '/jobs', byHand('raced', 'true', {displayname: `by ${index}`}), {
      'if-none-match': '*',
    }),
  )
  assert.deepEqual(statusesOf(created), [201, 412, 412])
  const etag = created.find(({status}) => status === 201)!.headers.get('etag')!
  const [, second] = SERVERS.map((name) => cluster().server(name))
  assert.equal((await second!.get('/jobs/raced')).headers.get('etag'), etag)
  const changed = await onAll((server, index) =>
    server.ask('POST', '/jobs', byHand('raced', 'true', {displayname: `again by ${index}`}), {
      'if-match': etag,
    }),
  )
  assert.deepEqual(statusesOf(changed), [201, 412, 412])
})

test('one idempotency key on three servers is one request', async () => {
  await cluster().server('north').store(byHand('keyed'))
  const keyed = (server: ServerProcess, path: string) =>
    server.ask('POST', path, undefined, {'idempotency-key': 'the same'})
  const answers = await onAll((server) => keyed(server, '/jobs/keyed/run'))
  assert.deepEqual(statusesOf(answers), [202, 202, 202])
  const again = await onAll((server) => keyed(server, '/jobs/keyed/run'))
  const groups = [...answers, ...again].map(({headers}) => headers.get('x-launch-id'))
  assert.equal(new Set(groups).size, 1)
  const others = await onAll((server) => keyed(server, '/jobs/keyed/run?force=true'))
  assert.deepEqual(statusesOf(others), [422, 422, 422])
  // The three replies are compared: its execution must not end between them.
  await cluster().server('north').execution('keyed')
  assert.equal((await sameOnAll(cluster(), '/jobs/keyed/launches')).length, 1)
})

test('exactly one server leads, and all servers name it', async () => {
  const leader = await cluster().leaderName()
  const leading = await askAll(cluster(), '/isleader')
  for (const [index, answer] of leading.entries()) {
    const name = SERVERS[index]!
    assert.equal(answer.headers.get('x-whom'), name)
    const expected = name === leader ? [200, '"I am a leader"'] : [404, '']
    assert.deepEqual([answer.status, answer.text], expected)
  }
  assert.equal((await sameOnAll(cluster(), '/leader')).Name, leader)
  const members = await sameOnAll(cluster(), '/members')
  assert.deepEqual(
    members.map(({Name}: Answer['json']) => Name),
    NODES.toSorted(),
  )
  for (const {Name, Tags} of members) {
    const isServer = SERVERS.some((name) => name === Name)
    assert.deepEqual(
      [Tags.node, Tags.role, Tags.server, Tags.region, Tags.dc],
      [Name, 'belfry', String(isServer), 'global', 'dc1'],
    )
  }
})

test('running executions, history and statistics are the same on all servers', async () => {
  const {first} = turns(cluster(), 0)
  for (const node of NODES) await first.store(byHand(`on-${node}`, 'exec sleep 60', {tags: {node}}))
  const ids = new Map<string, string>()
  for (const [turn, node] of NODES.entries()) {
    const {first: asked, others} = turns(cluster(), turn)
    await asked.run(`on-${node}`)
    const {id} = await others[0].execution(`on-${node}`, ({status}) => status === 'running')
    ids.set(node, id)
  }
  const busy = await sameOnAll(cluster(), '/busy')
  const shown = busy.map(({node_name}: Answer['json']) => node_name)
  assert.deepEqual(shown, NODES, 'in the order in which they were started')
  for (const [turn, node] of NODES.entries()) {
    const {first: asked, others} = turns(cluster(), turn + 1)
    const path = `/jobs/on-${node}/executions/${ids.get(node)}`
    assert.equal((await asked.post(`${path}/cancel`)).status, 202)
    await until('it is ended', async () => (await others[1].get(path)).json.status === 'cancelled')
    const again = await others[0].post(`${path}/cancel`)
    assert.deepEqual([again.status, again.json.code], [409, 'execution_over'])
  }
  assert.deepEqual(await sameOnAll(cluster(), '/busy'), [])
  for (const path of ['/jobs', '/stats', '/jobs/on-press/executions', '/jobs/on-west/launches'])
    await sameOnAll(cluster(), path)
  for (const node of NODES) await first.ask('DELETE', `/jobs/on-${node}`)
})

async function onAll(
  ask: (server: ServerProcess, index: number) => Promise<Answer>,
): Promise<Answer[]> {
  return Promise.all(SERVERS.map((name, index) => ask(cluster().server(name), index)))
}

function statusesOf(answers: readonly Answer[]): number[] {
  return answers.map(({status}) => status).toSorted((a, b) => a - b)
}
