/**
 * Targets, live output, cancellation and chains across nodes. Real processes: three servers, two agents, one
 * PostgreSQL.
 */
import assert from 'node:assert/strict'
import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import type {Answer, ServerProcess} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {
  byHand,
  KEEPING_LAUNCHES,
  NODES,
  nodesOf,
  sameOnAll,
  SERVERS,
  settled,
  sharedCluster,
  turns,
} from './shared-cluster.ts'
import {Stream} from '../../tools/faults/stream.ts'

const cluster = sharedCluster(KEEPING_LAUNCHES)

/** Submits a job, runs it once, deletes it; returns its nodes, or the code of the refusal. */
async function placesOf(tags: Readonly<Record<string, string>>): Promise<string> {
  const {first, others} = turns(cluster(), 0)
  const stored = await first.post('/jobs', byHand('placed', 'true', {tags}))
  if (stored.status !== 201) return String(stored.status)
  const answer = await others[0].post('/jobs/placed/run')
  const group = Number(answer.headers.get('x-launch-id'))
  const places =
    answer.status === 202
      ? nodesOf(await settled(others[1], 'placed', group)).join(' ')
      : `${answer.status} ${answer.json.code}`
  await first.ask('DELETE', '/jobs/placed')
  return places
}

const ALL = NODES.toSorted().join(' ')
const ALL_SERVERS = SERVERS.toSorted().join(' ')

for (const [tags, expected] of [
  [{role: 'belfry'}, ALL],
  [{region: 'global', dc: 'dc1'}, ALL],
  [{server: 'true'}, ALL_SERVERS],
  [{server: 'false'}, 'oven press'],
  [{server: 'true:9'}, ALL_SERVERS],
  [{node: 'west'}, 'west'],
  [{room: 'printing'}, 'press'],
  [{room: 'kitchen', role: 'belfry:4'}, 'oven'],
  [{room: 'printing', server: 'true'}, '409 no_target'],
  [{room: 'Printing'}, '409 no_target'],
  [{host: 'printer:9100:1'}, 'press'],
  [{host: 'printer:9100'}, '409 no_target'],
  [{room: 'printing:0'}, '400'],
] as const) {
  test(`${JSON.stringify(tags)} runs on ${expected}`, async () => {
    assert.equal(await placesOf(tags), expected)
  })
}

test('the smallest count of several tags applies; a job without tags runs on one node', async () => {
  assert.match(await placesOf({role: 'belfry:4', server: 'true:2'}), /^\w+ \w+$/)
  assert.match(await placesOf({role: 'belfry:1', server: 'true:2'}), /^(north|east|west)$/)
  assert.ok(NODES.includes(await placesOf({})))
})

test('nodes with equal load get equal shares', async () => {
  const {first} = turns(cluster(), 0)
  const launches = 300
  await first.store(byHand('shared', 'true'))
  for (let run = 0; run < launches; run += 10) {
    const asked = Array.from({length: 10}, (_, index) => turns(cluster(), index).first)
    await Promise.all(asked.map((server) => server.run('shared')))
  }
  await until(
    'all have run',
    async () => (await first.get('/jobs/shared')).json.success_count === launches,
  )
  const shares = new Map<string, number>()
  for (const launch of await first.launches('shared'))
    for (const node of nodesOf(launch)) shares.set(node, (shares.get(node) ?? 0) + 1)
  // 60 each on average; by chance one of five is below 30 once in a hundred thousand runs.
  for (const node of NODES) assert.ok((shares.get(node) ?? 0) > 30, JSON.stringify([...shares]))
  await first.ask('DELETE', '/jobs/shared')
})

test('any server streams the output of any node while it is written', async (t) => {
  const {first} = turns(cluster(), 0)
  for (const node of ['north', 'press']) {
    await first.store(
      byHand(`talks-${node}`, 'echo one; sleep 1; echo two; sleep 60', {tags: {node}}),
    )
    await first.run(`talks-${node}`)
    const {id} = await first.execution(`talks-${node}`, ({status}) => status === 'running')
    const path = `/jobs/talks-${node}/executions/${id}`
    const streams = await Promise.all(
      SERVERS.map((name) => Stream.open(t, cluster().server(name), `${path}/output`)),
    )
    for (const stream of streams) await stream.says(/two/)
    await first.post(`${path}/cancel`)
    for (const stream of streams) {
      await stream.says(/^event: end$/m)
      assert.equal(stream.texts().join(''), 'one\ntwo\n')
    }
    await first.ask('DELETE', `/jobs/talks-${node}`)
  }
})

test('the event stream of a server reports its own events', async (t) => {
  const leader = await cluster().leaderName()
  const followers = SERVERS.filter((name) => name !== leader)
  const [asked, other] = followers.map((name) => cluster().server(name)) as [
    ServerProcess,
    ServerProcess,
  ]
  const [atLeader, atAsked, atOther] = await Promise.all(
    [cluster().server(leader), asked, other].map((server) => Stream.open(t, server, '/events')),
  )
  await asked.store(byHand('heard', 'true', {tags: {node: followers[1]!}}))
  await settled(asked, 'heard', await asked.run('heard'))
  await atAsked!.says(/^event: job_stored$/m)
  await atLeader!.says(/^event: launch_decided$/m)
  await atOther!.says(/^event: execution_finished$/m)
  assert.doesNotMatch(atOther!.text, /^event: (job_stored|launch_decided)$/m)
  assert.doesNotMatch(atLeader!.text, /^event: (job_stored|execution_finished)$/m)
  await asked.ask('DELETE', '/jobs/heard')
})

test('a child runs once for each success of its parent, on any node', async () => {
  const {first, others} = turns(cluster(), 1)
  const runs = 5
  await first.store(byHand('parent', 'true', {tags: {room: 'printing'}}))
  const child = (name: string, parent_job: string, tags: Record<string, string>) =>
    first.store({...byHand(name, 'true', {tags, parent_job}), schedule: ''})
  await child('child-1', 'parent', {server: 'true'})
  await child('child-2', 'parent', {room: 'kitchen'})
  await child('grandchild', 'child-1', {room: 'kitchen'})
  const groups = await Promise.all(
    Array.from({length: runs}, (_, index) => turns(cluster(), index).first.run('parent')),
  )
  for (const group of groups) await settled(others[0], 'parent', group)
  await until('the grandchildren have run', async () => {
    return (await others[1].get('/jobs/grandchild')).json.success_count === runs
  })
  await first.store(byHand('parent', 'exit 3', {tags: {room: 'printing'}}))
  await settled(others[0], 'parent', await others[0].run('parent'))
  await cluster().idle(first)
  for (const name of ['child-1', 'child-2', 'grandchild']) {
    const launches = await sameOnAll(cluster(), `/jobs/${name}/launches`)
    const found: string[] = []
    for (const {cause, decision} of launches) found.push(`${cause} ${decision}`)
    const ran = Array.from({length: runs}, () => 'parent launched')
    // The failure of the parent is one row of each job below it.
    assert.deepEqual(found.toSorted(), [...ran, 'parent skipped'], name)
  }
  assert.equal((await others[0].ask('DELETE', '/jobs/parent')).json.code, 'job_has_dependents')
  for (const name of ['grandchild', 'child-2', 'child-1', 'parent'])
    assert.equal((await others[1].ask('DELETE', `/jobs/${name}`)).status, 200)
})

test('run on create, ephemeral and forbid hold across all nodes', async () => {
  const {first, others} = turns(cluster(), 2)
  const once = byHand('once', 'true', {ephemeral: true, tags: {room: 'kitchen'}})
  const created = await first.post('/jobs?runoncreate', once)
  const group = Number(created.headers.get('x-launch-id'))
  await until('it is gone', async () => (await others[0].get('/jobs/once')).status === 404)
  const kept = await others[1].get(`/jobs/once/launches/${group}`)
  assert.deepEqual([kept.json.cause, nodesOf(kept.json)], ['create', ['oven']])

  await first.store(byHand('alone', 'exec sleep 60', {concurrency: 'forbid'}))
  const answers = await Promise.all(
    [...SERVERS, ...SERVERS].map((name) => cluster().server(name).post('/jobs/alone/run')),
  )
  const accepted = answers.filter(({status}) => status === 202)
  assert.equal(accepted.length, 1, answers.map(({status}) => status).join())
  for (const {status, json} of answers)
    if (status !== 202) assert.deepEqual([status, json.code], [409, 'launch_open'])
  await others[0].execution('alone', ({status}) => status === 'running')
  await first.ask('DELETE', '/jobs/alone')
})

test('processors and the http executor work on an agent', async () => {
  const {first, others} = turns(cluster(), 0)
  const tags = {room: 'printing'}
  const finished = async (job: {readonly name: string}): Promise<Answer['json']> => {
    await first.store(job)
    await first.run(job.name)
    const end = await others[0].execution(job.name)
    await first.ask('DELETE', `/jobs/${job.name}`)
    return end
  }
  const files = {processors: {files: {forward: 'false'}}}
  const filed = await finished(byHand('filed', 'echo kept; echo too >&2', {tags, ...files}))
  const file = join(cluster().agent('press').data, 'logs', `${filed.id}.log`)
  assert.equal(filed.output, `${file}\n`)
  assert.equal(existsSync(file) && readFileSync(file, 'utf8'), 'kept\ntoo\n')

  const log = {processors: {log: {forward: 'true'}}}
  const logged = await finished(byHand('logged', 'echo into the log', {tags, ...log}))
  assert.equal(logged.output, 'into the log\n')
  assert.match(cluster().agent('press').program.stderr(), /into the log/)

  const executor_config = {method: 'GET', url: `${first.url}/livez`, expectCode: '200'}
  const fetched = await finished({
    ...byHand('fetched'),
    tags,
    executor: 'http',
    executor_config,
  } as {
    name: string
  })
  assert.deepEqual([fetched.status, fetched.node_name], ['succeeded', 'press'])
})

test('a follower serves a backup and accepts a restore', async () => {
  const leader = await cluster().leaderName()
  const follower = cluster().server(SERVERS.find((name) => name !== leader)!)
  const answer = await fetch(`${follower.url}/v1/backup`)
  assert.equal(answer.status, 200)
  assert.match(await answer.text(), /^SQLite format 3/)
})
