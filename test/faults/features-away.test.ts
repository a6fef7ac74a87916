/**
 * Nodes that leave and return, and the state a cluster keeps across restarts. Real processes: three
 * servers, two agents, one PostgreSQL.
 */
import assert from 'node:assert/strict'
import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {isOver, temporaryDirectory, type Answer} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {Marks} from '../../tools/faults/marks.ts'
import {byHand, nodesOf, SERVERS, settled, sharedCluster, turns} from './shared-cluster.ts'

/** A launch without a matching node ends within the test. Longer than the start of an agent under load. */
const TARGET_WAIT = '12s'
const cluster = sharedCluster({
  flags: ['--target-wait', TARGET_WAIT, '--default-target', 'all', '--no-run'],
})
/** Any one agent. */
const ONE_AGENT = {tags: {server: 'false:1'}}

/** A command that runs until `end` is called, and leaves a mark. */
function lasting(t: Parameters<typeof temporaryDirectory>[0], marks: Marks) {
  const go = join(temporaryDirectory(t), 'go')
  const command = marks.command(`while [ ! -e ${go} ]; do sleep 0.05; done`)
  return {command, end: () => writeFileSync(go, '')}
}

function running({status}: Answer['json']): boolean {
  return status === 'running'
}

test('servers with --no-run are no targets; all other nodes are by default', async () => {
  const {first, others} = turns(cluster(), 0)
  for (const job of [byHand('all'), byHand('belfry', 'true', {tags: {role: 'belfry'}})]) {
    await first.store(job)
    const launch = await settled(others[0], job.name, await others[1].run(job.name))
    assert.deepEqual(nodesOf(launch), ['oven', 'press'])
  }
  await first.store(byHand('none', 'true', {tags: {server: 'true'}}))
  for (const name of SERVERS)
    assert.equal((await cluster().server(name).post('/jobs/none/run')).json.code, 'no_target')
  for (const name of ['all', 'belfry', 'none']) await first.ask('DELETE', `/jobs/${name}`)
})

test('executions for a frozen agent run on the other agent', async () => {
  const {first, others} = turns(cluster(), 1)
  const {program} = cluster().agent('press')
  await first.store(byHand('moved', 'true', ONE_AGENT))
  program.signal('SIGSTOP')
  const groups = await Promise.all(Array.from({length: 8}, () => first.run('moved')))
  const launches = await Promise.all(groups.map((group) => settled(others[0], 'moved', group)))
  program.signal('SIGCONT')
  for (const launch of launches) assert.deepEqual(nodesOf(launch), ['oven'])
  await first.ask('DELETE', '/jobs/moved')
})

test('a node without free slots is skipped while another has some', async (t) => {
  const {first, others} = turns(cluster(), 0)
  const {command, end} = lasting(t, new Marks(t))
  const narrow = await cluster().startAgent('narrow', {flags: ['--tag', 'desk=1', '--slots', '1']})
  const wide = await cluster().startAgent('wide', {flags: ['--tag', 'desk=1', '--slots', '16']})
  await first.store(byHand('fills', command, {tags: {node: 'narrow'}}))
  await first.store(byHand('spreads', command, {tags: {desk: '1:1'}}))
  await first.run('fills')
  await others[0].execution('fills', running)
  const groups = await Promise.all(Array.from({length: 8}, () => first.run('spreads')))
  await until('all run', async () => (await others[1].get('/busy')).json.length === 9)
  end()
  for (const group of groups)
    assert.deepEqual(nodesOf(await settled(others[0], 'spreads', group)), ['wide'])
  for (const name of ['fills', 'spreads']) await first.ask('DELETE', `/jobs/${name}`)
  for (const {program} of [narrow, wide]) {
    program.signal('SIGTERM')
    await program.gone
  }
})

test('a deleted job ends on an agent that was frozen, and a new job of that name waits for it', async (t) => {
  const {first, others} = turns(cluster(), 2)
  const marks = new Marks(t)
  const {command} = lasting(t, marks)
  const forbid = {tags: {room: 'printing'}, concurrency: 'forbid'}
  await first.store(byHand('deleted', command, forbid))
  await first.run('deleted')
  await until('it runs', () => marks.read().length === 1)
  const {program} = cluster().agent('press')
  program.signal('SIGSTOP')
  assert.equal((await others[0].ask('DELETE', '/jobs/deleted')).status, 200)
  assert.deepEqual((await others[1].get('/busy')).json, [])
  await first.store(byHand('deleted', 'true', forbid))
  const {json: refused} = await others[0].post('/jobs/deleted/run')
  assert.deepEqual([refused.code, refused.location], ['launch_open', undefined])
  program.signal('SIGCONT')
  const group = await until('the old one has ended', async () => {
    const answer = await others[1].post('/jobs/deleted/run')
    return answer.status === 202 && Number(answer.headers.get('x-launch-id'))
  })
  const launch = await settled(first, 'deleted', group)
  assert.equal(launch.executions[0].status, 'succeeded')
  assert.equal(marks.read().length, 1, 'the old one never came to its end')
  assert.equal((await first.executions('deleted')).length, 1)
  await first.ask('DELETE', '/jobs/deleted')
})

test('a launch without a matching node takes the first that joins, or is skipped', async () => {
  const {first, others} = turns(cluster(), 0)
  const soon = new Date(Date.now() + 500).toISOString()
  const planned = (name: string, room: string) => ({
    ...byHand(name, 'true', {tags: {room}}),
    schedule: `@at ${soon}`,
  })
  await first.store(planned('served', 'attic'))
  await first.store(planned('given-up', 'nowhere'))
  await until('it waits', async () => {
    const [row] = await others[0].launches('served')
    return row?.reason === 'waits_for_node'
  })
  const attic = await cluster().startAgent('attic', {flags: ['--tag', 'room=attic']})
  const row = async (name: string) => (await others[1].launches(name))[0]
  await until('it has run', async () => (await row('served')).executions.some(isOver))
  const launch = await row('served')
  assert.deepEqual([launch.decision, nodesOf(launch)], ['launched', ['attic']])
  await until('it is given up', async () => (await row('given-up')).decision === 'skipped')
  assert.equal((await row('given-up')).reason, 'no_target')

  // Restarted with other tags: the old ones no longer match.
  attic.program.signal('SIGTERM')
  await attic.program.gone
  const moved = await cluster().startAgent('attic', {flags: ['--tag', 'room=cellar']})
  await first.store(byHand('below', 'true', {tags: {room: 'cellar'}}))
  assert.deepEqual(nodesOf(await settled(others[0], 'below', await first.run('below'))), ['attic'])
  await first.store(byHand('above', 'true', {tags: {room: 'attic'}}))
  assert.equal((await first.post('/jobs/above/run')).json.code, 'no_target')
  moved.program.signal('SIGTERM')
  await moved.program.gone
  for (const name of ['served', 'given-up', 'below', 'above'])
    await first.ask('DELETE', `/jobs/${name}`)
})

test('an agent killed during a run ends it after its restart: lost once, retried there', async (t) => {
  const {first, others} = turns(cluster(), 1)
  const marks = new Marks(t)
  const {command, end} = lasting(t, marks)
  await first.store(byHand('killed', command, {retries: 1, tags: {room: 'kitchen'}}))
  const group = await first.run('killed')
  await until('it runs', () => marks.read().length === 1)
  const {program} = cluster().agent('oven')
  program.signal('SIGKILL')
  await program.gone
  await cluster().startAgent('oven', {flags: ['--tag', 'room=kitchen']})
  await until('it runs again', () => marks.read().length === 2)
  end()
  const launch = await settled(others[0], 'killed', group)
  const ends = launch.executions.map(({attempt, status}: Answer['json']) => [attempt, status])
  assert.deepEqual(ends.toSorted(), [
    [1, 'lost'],
    [2, 'succeeded'],
  ])
  const said = marks.read().map(({attempt, what}) => `${attempt} ${what}`)
  assert.deepEqual(said, ['1 start', '2 start', '2 end'])
  await first.ask('DELETE', '/jobs/killed')
})

test('a parent that finishes without a leader launches its child once', async (t) => {
  const marks = new Marks(t)
  const {command, end} = lasting(t, marks)
  const leader = await cluster().leader()
  const [asked] = cluster()
    .running()
    .filter((server) => server !== leader)
  await asked!.store(byHand('ends', command, {tags: {room: 'printing'}}))
  const child = byHand('follows', marks.command(), {tags: {room: 'kitchen'}, parent_job: 'ends'})
  await asked!.store({...child, schedule: ''})
  await asked!.store(byHand('asked-for'))
  await asked!.run('ends')
  await asked!.execution('ends', running)
  await leader.crash()
  end()
  // Stored without a leader, decided by the next one.
  const group = await asked!.run('asked-for')
  await until('the child has run', async () => (await asked!.executions('follows')).some(isOver))
  await settled(asked!, 'asked-for', group)
  await cluster().idle(asked!)
  assert.equal((await asked!.launches('follows')).length, 1)
  assert.equal(marks.read().filter(({job}) => job === 'follows').length, 2)
  const name = SERVERS.find((one) => cluster().server(one) === leader)!
  await cluster().startServer(name)
  for (const job of ['follows', 'ends', 'asked-for']) await asked!.ask('DELETE', `/jobs/${job}`)
})

test('paused submissions stay paused after all servers restart', async () => {
  const {first} = turns(cluster(), 0)
  await first.store(byHand('kept'))
  await first.post('/pause')
  await Promise.all(SERVERS.map((name) => cluster().server(name).crash()))
  await Promise.all(SERVERS.map((name) => cluster().startServer(name)))
  for (const name of SERVERS) {
    const server = cluster().server(name)
    assert.equal((await server.get('/pause')).json.paused, true)
    const refused = await server.post('/jobs', byHand('refused'))
    assert.equal(refused.status, 503)
    assert.match(refused.text, /paused/)
  }
  const {first: north} = turns(cluster(), 0)
  await north.run('kept')
  await north.post('/unpause')
  assert.equal((await cluster().server('west').post('/jobs', byHand('taken'))).status, 201)
})
