/** Two servers on one PostgreSQL and an agent that knows both: whichever dies, its work does not. */
import assert from 'node:assert/strict'
import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, test} from 'node:test'
import {TestPostgres} from '../support/postgres.ts'
import {aServer, isOver, temporaryDirectory, type Answer} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {anAgent} from './agent-process.ts'

let postgres: TestPostgres

before(async () => {
  postgres = await TestPostgres.start()
})
after(() => postgres.close())

test('a frozen server is left for the other; work goes on and ends once', async (t) => {
  const start = (name: string) =>
    aServer(t, {flags: ['--store', postgres.url(), '--name', name, '--no-run']})
  const servers = [await start('one'), await start('two')]
  const urls = servers.map(({url}) => url)
  const agent = await anAgent(t, urls, {flags: ['--tag', 'place=far']})
  const near = servers.find(({url}) => url === agent.joined)!
  const other = servers.find((server) => server !== near)!
  const job = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
  const go = join(temporaryDirectory(t), 'go')
  const command = `echo begun; while [ ! -e ${go} ]; do sleep 0.05; done; echo done`
  await other.store({name: 'far', ...job, executor_config: {shell: 'true', command}})
  await other.run('far')
  await other.execution('far', ({output}: Answer['json']) => output.includes('begun'))
  near.program.signal('SIGSTOP')
  await until('it has gone to the other', () => agent.program.stderr().includes(other.url))
  writeFileSync(go, '')
  const end = await other.execution('far', isOver)
  assert.deepEqual([end.status, end.output], ['succeeded', 'begun\ndone\n'])
  assert.equal((await other.get('/jobs/far')).json.success_count, 1)
  // The leader may have been the frozen one; the other leads soon, and its work reaches the agent.
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
