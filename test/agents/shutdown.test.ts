/** Shutdown time of an agent process: bounded by its work, not by absent servers. */
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
/** Generous: a second or two on an idle machine. */
const PROMPTLY_MS = 12_000

/** An agent with one running execution that ignores TERM. */
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

describe('agent shutdown', {concurrency: 2}, () => {
  test('without work and without a server ends at once', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url])
    await server.crash()
    agent.program.signal('SIGTERM')
    await ends(agent, 0)
  })

  test('without work and with a frozen server waits no longer than for a heartbeat', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url])
    server.program.signal('SIGSTOP')
    agent.program.signal('SIGTERM')
    await ends(agent, 0)
  })

  test('with --grace 0 and no server kills its work and keeps the result on disk', async (t) => {
    const {server, agent} = await busy(t, '--grace', '0')
    await server.crash()
    agent.program.signal('SIGTERM')
    await ends(agent, 0)
    assert.ok(statSync(join(agent.data, 'results')).size > 0, 'the next start delivers it')
    assert.match(agent.program.stderr(), /no server took these/)
  })

  test('on a second signal does not wait for its work', async (t) => {
    const {server, agent} = await busy(t, '--grace', 'infinite')
    agent.program.signal('SIGTERM')
    await until('it is leaving', async () => {
      const {json} = await server.get('/members')
      return json.some(({Name, Status}: {Name: string; Status: number}) => {
        return Name === 'agent-a' && Status === 2
      })
    })
    // Signals within half a second count as one.
    await until('the second one counts', () => {
      agent.program.signal('SIGTERM')
      return markedProcesses(agent.data).length === 0
    })
    await within(agent.program.exit, 'the agent ends', PROMPTLY_MS)
    const {status} = await server.execution('far', isOver)
    assert.equal(status, 'lost')
  })

  test('replaced while it was frozen, kills its work and exits with code 1', async (t) => {
    const {server, agent} = await busy(t, '--grace', 'infinite')
    const data = join(temporaryDirectory(t), 'copy')
    mkdirSync(data)
    for (const file of ['node-id', 'cluster-id'])
      copyFileSync(join(agent.data, file), join(data, file))
    // A node that sends heartbeats is not replaced.
    agent.program.signal('SIGSTOP')
    const next = await replacement(() =>
      anAgent(t, [server.url], {data, flags: ['--tag', 'place=far']}),
    )
    agent.program.signal('SIGCONT')
    const exit = await within(agent.program.exit, 'the replaced incarnation ends', PROMPTLY_MS)
    assert.equal(exit.code, 1)
    assert.match(agent.program.stderr(), /Another process has joined as agent-a/)
    assert.deepEqual(markedProcesses(agent.data), [])
    const {status, output} = await server.execution('far', isOver)
    assert.equal(status, 'lost', output)
    assert.equal(next.program.isGone(), false)
  })
})

/** Starts agents until one is accepted: the silent one must have failed first. */
async function replacement<Agent>(start: () => Promise<Agent>): Promise<Agent> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await start()
    } catch (error) {
      if (tries === 40 || !String(error).includes('is alive')) throw error
    }
  }
}
