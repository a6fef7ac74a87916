/**
 * Agent process killed between its claim and the start, on both stores: unstarted executions still run once,
 * started ones become lost, finished ones are delivered.
 */
import assert from 'node:assert/strict'
import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, describe, test} from 'node:test'
import {CutProxy} from '../support/cut-proxy.ts'
import {TestPostgres} from '../support/postgres.ts'
import {aServer, atEnd, temporaryDirectory, type Answer} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {anAgent} from './agent-process.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const onAgent = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
const isRunning = ({status}: Answer['json']) => status === 'running'

describe('an agent killed between a claim and the start', {concurrency: 2}, () => {
  for (const engine of ['SQLite', 'PostgreSQL'] as const)
    test(`on ${engine} releases its claims that never started`, async (t) => {
      const store = engine === 'SQLite' ? [] : ['--store', await postgres.database()]
      const server = await aServer(t, {flags: ['--no-run', ...store]})
      const proxy = await CutProxy.open(Number(new URL(server.url).port))
      atEnd(t, () => proxy.close())
      const url = `http://127.0.0.1:${proxy.port}`
      const flags = ['--tag', 'place=far', '--slots', '2']
      const agent = await anAgent(t, [url], {flags})
      const directory = temporaryDirectory(t)
      const [go, runs] = [join(directory, 'go'), join(directory, 'runs')]
      const commands = {
        ending: `while [ ! -e ${go} ]; do sleep 0.05; done`,
        working: `echo working >> ${runs}; sleep 600`,
        waiting: `echo waiting >> ${runs}`,
      }
      for (const [name, command] of Object.entries(commands))
        await server.store({name, ...onAgent, executor_config: {shell: 'true', command}})
      for (const name of ['ending', 'working']) {
        await server.run(name)
        await server.execution(name, isRunning)
      }
      await until('it runs', () => existsSync(runs))
      await server.run('waiting')
      await server.execution('waiting', ({status}) => status === 'pending')

      // A slot becomes free and the agent claims; it never receives the reply.
      proxy.losesAnswers = true
      writeFileSync(go, '')
      await server.execution('waiting', isRunning)
      // The agent claims as soon as a command ends; the result is safe only when it is on disk, and sent
      // after that.
      await server.execution('ending')
      agent.program.signal('SIGKILL')
      await agent.program.gone
      proxy.losesAnswers = false

      const next = await anAgent(t, [url], {data: agent.data, flags})
      assert.equal((await server.execution('ending')).status, 'succeeded')
      assert.equal((await server.execution('working')).status, 'lost')
      await server.execution('waiting')
      const waited = await server.executions('waiting')
      assert.deepEqual(
        waited.map(({status, attempt}) => [status, attempt]),
        [['succeeded', 1]],
      )
      assert.equal(readFileSync(runs, 'utf8'), 'working\nwaiting\n')
      const said = `"executions":1,"msg":"released claims that a previous incarnation never started`
      await until('the release is logged', () => next.program.stderr().includes(said))
    })
})
