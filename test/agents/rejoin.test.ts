/** Names of agents, with real processes: who may have one, and who gets it back after an absence. */
import assert from 'node:assert/strict'
import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {
  aServer,
  temporaryDirectory,
  type Answer,
  type Owner,
  type ServerProcess,
} from '../support/server-process.ts'
import {SOON_MS, until, within} from '../support/waiting.ts'
import {anAgent, startedAgent} from './agent-process.ts'

const FAILED_WITHIN_MS = 30_000

interface Listed {
  readonly id: string
  readonly statusText: string
}

async function membersOf(server: ServerProcess, name: string): Promise<Listed[]> {
  const {json} = await server.get('/members')
  return json
    .filter(({Name}: Answer['json']) => Name === name)
    .map(({id, statusText}: Listed) => ({id, statusText}))
}

const becomes = (server: ServerProcess, name: string, status: string, ms?: number) =>
  until(
    `${name} becomes ${status}`,
    async () => (await membersOf(server, name)).some(({statusText}) => statusText === status),
    ms,
  )

/** A job that runs at the agent until the file `go` exists. */
async function waitingJob(server: ServerProcess, name: string, go: string): Promise<void> {
  const command = `echo started; while [ ! -e ${go} ]; do sleep 0.05; done`
  const executor = {executor: 'shell', executor_config: {shell: 'true', command}}
  await server.store({name, schedule: '@manually', tags: {at: name}, retries: 1, ...executor})
  await server.run(name)
  await server.execution(name, ({output}) => output.includes('started'))
}

/** Starts an agent under a name in use and expects the refusal. */
async function refused(t: Owner, server: ServerProcess, name: string): Promise<void> {
  const {program} = startedAgent(t, [server.url], {name})
  // Within five seconds on an idle machine.
  const {code} = await within(program.exit, `a second ${name} ends`, SOON_MS)
  assert.deepEqual([code, program.stdout()], [1, ''])
  const sentence = `The node name ${name} cannot be used: another node with this name is alive.`
  assert.ok(program.stderr().includes(sentence), program.stderr())
}

test('a node name in use is refused, and its own agent gets it back at once', async (t) => {
  const server = await aServer(t, {flags: ['--name', 'tower']})
  const agent = await anAgent(t, [server.url], {name: 'press'})
  const [before] = await membersOf(server, 'press')
  await refused(t, server, 'tower')
  await refused(t, server, 'press')
  assert.deepEqual(await membersOf(server, 'press'), [before])
  agent.program.signal('SIGKILL')
  await agent.program.gone
  const again = await anAgent(t, [server.url], {name: 'press', data: agent.data})
  assert.deepEqual(await membersOf(server, 'press'), [before])
  again.program.signal('SIGTERM')
  assert.equal((await within(again.program.exit, 'it ends', SOON_MS)).code, 0)
  assert.equal((await membersOf(server, 'press'))[0]!.statusText, 'left')
  await anAgent(t, [server.url], {name: 'press', data: agent.data})
  assert.deepEqual(await membersOf(server, 'press'), [before])
})

test('after an absence a removed agent joins again, and one whose name is taken exits', async (t) => {
  const server = await aServer(t, {flags: ['--name', 'tower', '--no-run']})
  const start = (name: string) =>
    anAgent(t, [server.url], {name, flags: ['--tag', `at=${name}`, '--grace', '0']})
  const kept = await start('kept')
  const lost = await start('lost')
  const gone = await start('gone')
  const go = join(temporaryDirectory(t), 'go')
  await waitingJob(server, 'kept', go)
  const [before] = await membersOf(server, 'kept')
  for (const {program} of [kept, lost, gone]) program.signal('SIGSTOP')
  for (const name of ['kept', 'lost', 'gone'])
    await becomes(server, name, 'failed', FAILED_WITHIN_MS)

  for (const name of ['kept', 'gone'])
    assert.equal((await server.ask('DELETE', `/members/${name}`)).status, 200)
  const [retry, first] = await server.executions('kept')
  assert.deepEqual([first.status, retry.status], ['lost', 'pending'])
  await start('lost')
  await start('gone')

  for (const {program} of [kept, lost, gone]) program.signal('SIGCONT')
  for (const [name, agent] of Object.entries({lost, gone})) {
    const {code} = await within(agent.program.exit, `the replaced ${name} ends`, SOON_MS)
    assert.equal(code, 1)
    const replaced = `Another node has joined as ${name} |The node name ${name} cannot be used`
    assert.match(agent.program.stderr(), new RegExp(replaced))
    const alive = (await membersOf(server, name)).filter(({statusText}) => statusText === 'alive')
    assert.equal(alive.length, 1)
  }
  await becomes(server, 'kept', 'alive')
  assert.deepEqual((await membersOf(server, 'kept'))[0], before)
  writeFileSync(go, '')
  const end = await server.execution('kept', ({status}) => status === 'succeeded')
  assert.deepEqual([end.attempt, end.node_name], [2, 'kept'])
})
