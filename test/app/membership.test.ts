/** Members as real processes on one PostgreSQL: leaving, dying, restarting, and name conflicts. */
import assert from 'node:assert/strict'
import {cpSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, test} from 'node:test'
import {ClusterProcess} from '../../tools/faults/cluster-process.ts'
import {
  aServer,
  refusedStart,
  temporaryDirectory,
  type Answer,
  type Owner,
  type ServerProcess,
} from '../support/server-process.ts'
import {SOON_MS, until, within} from '../support/waiting.ts'

const FAILED_WITHIN_MS = 30_000
const AT_EAST = {flags: ['--tag', 'on=east']}
const AT_WEST = {flags: ['--tag', 'on=west']}
const AT_SOUTH = {flags: ['--tag', 'on=south']}
const ALIVE = 1
const LEAVING = 2
const LEFT = 3
const FAILED = 4

let cluster: ClusterProcess
const cleanups: (() => unknown)[] = []
const owner: Owner = {after: (cleanup) => void cleanups.push(cleanup)}

before(async () => {
  cluster = await ClusterProcess.start(owner, {servers: ['north']})
  await cluster.startServer('east', AT_EAST)
  await cluster.startServer('west', AT_WEST)
})
after(async () => {
  for (const cleanup of cleanups) await cleanup()
})

const becomes = (asked: ServerProcess, name: string, status: number | undefined, ms?: number) =>
  until(
    `${name} becomes ${status}`,
    async () => (await cluster.statuses(asked))[name] === status,
    ms,
  )

async function idOf(name: string): Promise<string> {
  const {json} = await cluster.server('north').get('/members')
  return json.find(({Name}: Answer['json']) => Name === name).id
}

/** A job that runs until the file `go` exists, on nodes with this tag. */
async function waitingJob(name: string, tag: string, go: string, retries = 0): Promise<void> {
  const command = `echo started; while [ ! -e ${go} ]; do sleep 0.05; done`
  const executor = {executor: 'shell', executor_config: {shell: 'true', command}}
  const north = cluster.server('north')
  await north.store({name, schedule: '@manually', tags: {on: tag}, retries, ...executor})
  await north.run(name)
  await north.execution(name, ({output}) => output.includes('started'))
}

test('a server that leaves lets its executions finish, and can restart at once', async () => {
  const north = cluster.server('north')
  const south = await cluster.startServer('south', AT_SOUTH)
  assert.equal((await cluster.statuses(north))['south'], ALIVE)
  const go = join(temporaryDirectory(owner), 'go')
  await waitingJob('long', 'south', go)
  const leave = await south.post('/leave')
  const own = leave.json.find(({Name}: Answer['json']) => Name === 'south')
  assert.deepEqual([leave.status, own.Status], [200, LEAVING])
  await becomes(north, 'south', LEAVING)
  assert.equal(south.program.isGone(), false)
  assert.equal((await north.ask('DELETE', '/members/south')).json.code, 'member_present')
  writeFileSync(go, '')
  assert.equal((await within(south.program.exit, 'south ends', SOON_MS)).code, 0)
  assert.equal((await cluster.statuses(north))['south'], LEFT)
  const [end] = await north.executions('long')
  assert.deepEqual([end.status, end.node_name], ['succeeded', 'south'])
  const again = await cluster.startServer('south')
  assert.equal((await cluster.statuses(north))['south'], ALIVE)
  const idle = await again.post('/leave')
  const status = idle.json.find(({Name}: Answer['json']) => Name === 'south').Status
  assert.equal(status, LEFT)
  assert.equal((await within(again.program.exit, 'south ends', SOON_MS)).code, 0)
})

test('SIGTERM makes the server leave the cluster', async () => {
  const north = cluster.server('north')
  const south = await cluster.startServer('south', AT_SOUTH)
  const go = join(temporaryDirectory(owner), 'go')
  await waitingJob('longer', 'south', go)
  south.program.signal('SIGTERM')
  await becomes(north, 'south', LEAVING)
  writeFileSync(go, '')
  assert.equal((await within(south.program.exit, 'south ends', SOON_MS)).code, 0)
  assert.equal((await cluster.statuses(north))['south'], LEFT)
  const removed = await north.ask('DELETE', '/members/south')
  assert.deepEqual([removed.status, removed.json.Status], [200, LEFT])
  for (const name of ['east', 'west'])
    assert.equal((await cluster.statuses(cluster.server(name)))['south'], undefined)
})

test('a killed server can restart under its name at once', async () => {
  const north = cluster.server('north')
  const id = await idOf('west')
  await cluster.server('west').crash()
  await cluster.startServer('west', AT_WEST)
  assert.equal((await cluster.statuses(north))['west'], ALIVE)
  assert.equal(await idOf('west'), id)
})

test('a copy of the data directory of a server that runs is refused', async (t) => {
  const north = cluster.server('north')
  const east = cluster.server('east')
  const copied = join(temporaryDirectory(t), 'copy')
  cpSync(east.data, copied, {recursive: true, filter: (path) => !path.includes('pipes-')})
  const argv = ['--http', '127.0.0.1:0', '--data', copied, '--store', cluster.store]
  const {code, stdout, stderr} = await refusedStart(t, [...argv, '--name', 'east'])
  assert.deepEqual([code, stdout], [1, ''])
  assert.match(stderr, /another process has it and is alive, as east at 127\.0\.0\.1/)
  assert.equal(east.program.isGone(), false)
  assert.equal((await cluster.statuses(north))['east'], ALIVE)
})

test('another node with a name in use is refused with one sentence', async (t) => {
  const data = join(temporaryDirectory(t), 'data')
  const argv = ['--http', '127.0.0.1:0', '--data', data, '--store', cluster.store]
  const beganAt = performance.now()
  const {code, stdout, stderr} = await refusedStart(t, [...argv, '--name', 'east'])
  // Within 5 s on an idle machine.
  assert.ok(performance.now() - beganAt < SOON_MS)
  assert.deepEqual([code, stdout], [1, ''])
  assert.match(
    stderr,
    /The node name east cannot be used: another node .* is alive\. Set another --name/,
  )
  assert.equal((await cluster.statuses(cluster.server('north')))['east'], ALIVE)
})

test('disconnected: a removed server joins again, one whose name was taken ends', async (t) => {
  const north = cluster.server('north')
  const go = join(temporaryDirectory(t), 'go')
  await waitingJob('moved', 'west', go, 1)
  await waitingJob('ended', 'east', join(temporaryDirectory(t), 'never'))
  cluster.freeze('west')
  cluster.freeze('east')
  await becomes(north, 'west', FAILED, FAILED_WITHIN_MS)
  await becomes(north, 'east', FAILED, FAILED_WITHIN_MS)

  const removed = await north.ask('DELETE', '/members/west')
  assert.deepEqual([removed.status, removed.json.statusText], [200, 'failed'])
  const [retry, lost] = await north.executions('moved')
  assert.deepEqual([lost.status, lost.attempt, retry.status], ['lost', 1, 'pending'])
  const stranger = await aServer(t, {flags: ['--store', cluster.store, '--name', 'east']})
  assert.equal((await stranger.get('/members')).json.filter(isAliveEast).length, 1)

  const east = cluster.server('east')
  cluster.wake('east')
  const {code} = await within(east.program.exit, 'the earlier east ends', SOON_MS)
  assert.equal(code, 1)
  const ended = await north.execution('ended', ({status}) => status === 'lost')
  assert.match(ended.output, /the node was stopped before it ended/)
  assert.match(
    east.program.stderr(),
    /Another node has joined as east while this node sent no heartbeats/,
  )
  assert.equal((await north.get('/members')).json.filter(isAliveEast).length, 1)

  cluster.wake('west')
  await becomes(north, 'west', ALIVE)
  assert.equal(cluster.server('west').program.isGone(), false)
  writeFileSync(go, '')
  const end = await north.execution('moved', ({status}) => status === 'succeeded')
  assert.deepEqual([end.attempt, end.node_name], [2, 'west'])
})

const isAliveEast = ({Name, Status}: Answer['json']) => Name === 'east' && Status === ALIVE
