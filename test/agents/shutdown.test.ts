/** How long a real agent takes to end: as long as its work may take, and not as long as nobody answers. */
import assert from 'node:assert/strict'
import {copyFileSync, mkdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {markedProcesses} from '../support/living-processes.ts'
import {aServer, isOver, temporaryDirectory, type Owner} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {anAgent, type AgentProcess} from './agent-process.ts'

const onAgent = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
const STUBBORN = 'trap "" TERM; sleep 600 & while :; do sleep 1; done'
/** Generous: the work of a second or two on a machine that has nothing else to do. */
const PROMPTLY_MS = 12_000

/** An agent with one run in hand that does not obey TERM. */
async function busy(t: Owner, ...flags: readonly string[]) {
  const server = await aServer(t)
  const agent = await anAgent(t, [server.url], {flags: ['--tag', 'place=far', ...flags]})
  const config = {shell: 'true', command: STUBBORN}
  await server.store({name: 'far', ...onAgent, executor_config: config})
  await server.run('far')
  await until('it runs', () => markedProcesses(agent.data).length > 0)
  return {server, agent}
}

async function ends(agent: AgentProcess, code: number): Promise<void> {
  const exit = await within(agent.program.exit, 'the agent ends', PROMPTLY_MS)
  assert.equal(exit.code, code, agent.program.stderr())
  assert.deepEqual(markedProcesses(agent.data), [])
}

describe('an agent that is told to end', {concurrency: 2}, () => {
  test('with no work and no server is gone at once', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url])
    await server.crash()
    agent.program.signal('SIGTERM')
    await ends(agent, 0)
  })

  test('with no work and a frozen server waits no longer than for a heartbeat', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url])
    server.program.signal('SIGSTOP')
    agent.program.signal('SIGTERM')
    await ends(agent, 0)
  })

  test('without any grace kills its work and keeps the result, server or not', async (t) => {
    const {server, agent} = await busy(t, '--grace', '0')
    await server.crash()
    agent.program.signal('SIGTERM')
    await ends(agent, 0)
    assert.ok(statSync(join(agent.data, 'results')).size > 0, 'the next life delivers it')
    assert.match(agent.program.stderr(), /no server took these/)
  })

  test('twice does not wait for its work', async (t) => {
    const {server, agent} = await busy(t, '--grace', 'infinite')
    agent.program.signal('SIGTERM')
    await until('it is leaving', async () => {
      const {json} = await server.get('/members')
      return json.some(({Name, Status}: {Name: string; Status: number}) => {
        return Name === 'agent-a' && Status === 2
      })
    })
    // Signals that come within half a second are one.
    await until('the second one counts', () => {
      agent.program.signal('SIGTERM')
      return markedProcesses(agent.data).length === 0
    })
    await within(agent.program.exit, 'the agent ends', PROMPTLY_MS)
    const {status} = await server.execution('far', isOver)
    assert.equal(status, 'lost')
  })

  test('by another life of itself kills everything and is gone', async (t) => {
    const {server, agent} = await busy(t, '--grace', 'infinite')
    const data = join(temporaryDirectory(t), 'copy')
    mkdirSync(data)
    for (const file of ['node-id', 'cluster-id'])
      copyFileSync(join(agent.data, file), join(data, file))
    const next = await anAgent(t, [server.url], {data, flags: ['--tag', 'place=far']})
    const exit = await within(agent.program.exit, 'the earlier life ends', PROMPTLY_MS)
    assert.equal(exit.code, 1)
    assert.match(agent.program.stderr(), /Another process has joined as agent-a/)
    assert.deepEqual(markedProcesses(agent.data), [])
    const {status, output} = await server.execution('far', isOver)
    assert.equal(status, 'lost', output)
    assert.equal(next.program.isGone(), false)
  })
})
