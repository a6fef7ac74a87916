/** Two servers on one PostgreSQL and an agent of both: its work survives the loss of either. */
import assert from 'node:assert/strict'
import {statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, test} from 'node:test'
import {CutProxy} from '../support/cut-proxy.ts'
import {isAlive, markedProcesses} from '../support/living-processes.ts'
import {TestPostgres} from '../support/postgres.ts'
import {aServer, isOver, temporaryDirectory, type Answer} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {anAgent} from './agent-process.ts'

const manual = {schedule: '@manually', executor: 'shell'}
const jobsOf = (data: string) => new Set(markedProcesses(data).map(({job}) => job))

let postgres: TestPostgres

before(async () => {
  postgres = await TestPostgres.start()
})
after(() => postgres.close())

test('an agent leaves a frozen server, and its run continues and finishes once', async (t) => {
  const start = (name: string) =>
    aServer(t, {flags: ['--store', postgres.url(), '--name', name, '--no-run']})
  const servers = [await start('one'), await start('two')]
  const urls = servers.map(({url}) => url)
  const agent = await anAgent(t, urls, {flags: ['--tag', 'place=far']})
  const near = servers.find(({url}) => url === agent.joined)!
  const other = servers.find((server) => server !== near)!
  const job = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
  const go = join(temporaryDirectory(t), 'go')
  const command = `echo started; while [ ! -e ${go} ]; do sleep 0.05; done; echo done`
  await other.store({name: 'far', ...job, executor_config: {shell: 'true', command}})
  await other.run('far')
  await other.execution('far', ({output}: Answer['json']) => output.includes('started'))
  near.program.signal('SIGSTOP')
  await until('the agent has moved to the other server', () =>
    agent.program.stderr().includes(other.url),
  )
  writeFileSync(go, '')
  const end = await other.execution('far', isOver)
  assert.deepEqual([end.status, end.output], ['succeeded', 'started\ndone\n'])
  assert.equal((await other.get('/jobs/far')).json.success_count, 1)
  // If the frozen server was the leader, the other one takes over, and its launches reach the agent.
  await other.store({name: 'next', ...job, executor_config: {command: 'true'}})
  await other.run('next')
  assert.equal((await other.execution('next', isOver)).status, 'succeeded')
  near.program.signal('SIGCONT')
  const members = await until('all are alive', async () => {
    const {json} = await other.get('/members')
    return json.every(({Status}: Answer['json']) => Status === 1) && json
  })
  assert.equal(members.length, 3)
  assert.equal((await other.executions('far')).length, 1)
})

test('a server without its store ends on_disconnect: stop runs, and its agents move', async (t) => {
  const url = await postgres.database()
  const names = ['one', 'two'] as const
  const servers = await Promise.all(
    names.map(async (name) => {
      const proxy = await CutProxy.open(postgres.port)
      t.after(() => proxy.close())
      const store = url.replace(`:${postgres.port}/`, `:${proxy.port}/`)
      const flags = ['--store', store, '--name', name, '--tag', `place=${name}`]
      return {name, proxy, server: await aServer(t, {flags})}
    }),
  )
  const urls = servers.map(({server}) => server.url)
  const agent = await anAgent(t, urls, {flags: ['--tag', 'place=far']})
  const near = servers.find(({server}) => server.url === agent.joined)!
  const other = servers.find((each) => each !== near)!
  const start = async (name: string, place: string, on_disconnect: string) => {
    const job = {name, ...manual, tags: {place}, on_disconnect}
    await other.server.store({...job, executor_config: {command: 'sleep 600'}})
    await other.server.run(name)
    await other.server.execution(name, ({status}: Answer['json']) => status === 'running')
  }
  await start('stops', near.name, 'stop')
  await start('keeps', near.name, 'keep')
  await start('far', 'far', 'stop')
  await until('all run', () => jobsOf(near.server.data).size === 2 && jobsOf(agent.data).size === 1)
  near.proxy.isSilent = true
  await until('the run is ended', () => !jobsOf(near.server.data).has('stops'), 40_000)
  near.proxy.isSilent = false
  assert.ok(jobsOf(near.server.data).has('keeps'), 'on_disconnect: keep continues')
  assert.match(agent.program.stderr(), /joined again/)
  assert.ok(jobsOf(agent.data).has('far'), 'the agent was never disconnected')
  const [lost] = await until('the store has the end', async () => {
    const all = await other.server.executions('stops')
    return isOver(all[0]) && all
  })
  assert.equal(lost.status, 'lost')
  assert.match(lost.output, /lost: the node was cut off from the cluster, and ended it/)
  for (const name of ['keeps', 'far'])
    assert.equal((await other.server.executions(name))[0].status, 'running')
})

test('results are delivered after a restart of all servers and of the agent', async (t) => {
  const store = await postgres.database()
  const start = (name: string) =>
    aServer(t, {flags: ['--store', store, '--name', name, '--no-run']})
  const first = await start('one')
  const agent = await anAgent(t, [first.url], {flags: ['--tag', 'place=far']})
  const go = join(temporaryDirectory(t), 'go')
  const command = `echo started; while [ ! -e ${go} ]; do sleep 0.05; done; echo done`
  const job = {...manual, tags: {place: 'far'}, retries: 1}
  await first.store({name: 'ends', ...job, executor_config: {shell: 'true', command}})
  const alone = `[ $BELFRY_ATTEMPT = 1 ] && exec sleep 600; echo alone`
  await first.store({name: 'stays', ...job, executor_config: {shell: 'true', command: alone}})
  for (const name of ['ends', 'stays']) {
    await first.run(name)
    await first.execution(name, ({status}: Answer['json']) => status === 'running')
  }
  await until('both run', () => jobsOf(agent.data).size === 2)
  const left = markedProcesses(agent.data).map(({pid}) => pid)
  await first.crash()
  writeFileSync(go, '')
  await until('one has ended', () => !jobsOf(agent.data).has('ends'))
  await until('its result is on disk', () => statSync(join(agent.data, 'results')).size > 0)
  agent.program.signal('SIGKILL')
  await agent.program.gone
  const second = await start('two')
  await anAgent(t, [second.url], {data: agent.data, flags: ['--tag', 'place=far']})
  assert.equal(left.some(isAlive), false, 'orphans are ended before the agent takes work')
  const end = await second.execution('ends', isOver)
  assert.deepEqual([end.status, end.output], ['succeeded', 'started\ndone\n'])
  assert.equal((await second.executions('ends')).length, 1)
  const retried = await second.execution('stays', ({attempt, status}: Answer['json']) => {
    return attempt === 2 && status === 'succeeded'
  })
  assert.equal(retried.output, 'alone\n')
  const lost = (await second.executions('stays')).find(({attempt}: Answer['json']) => attempt === 1)
  assert.equal(lost.status, 'lost')
})
