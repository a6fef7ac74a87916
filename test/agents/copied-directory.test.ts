/** Two agents on copies of one data directory: the living agent stays, the newcomer is refused. */
import assert from 'node:assert/strict'
import {cpSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {markedProcesses} from '../support/living-processes.ts'
import {aServer, isOver, temporaryDirectory} from '../support/server-process.ts'
import {SOON_MS, until, within} from '../support/waiting.ts'
import {anAgent, startedAgent} from './agent-process.ts'

test('a copy of the data directory of an agent that runs is refused, and disturbs nothing', async (t) => {
  const server = await aServer(t, {flags: ['--no-run']})
  const flags = ['--tag', 'at=press']
  const original = await anAgent(t, [server.url], {name: 'press', flags})
  const shell = {executor: 'shell', executor_config: {shell: 'true', command: 'sleep 600'}}
  await server.store({name: 'long', schedule: '@manually', tags: {at: 'press'}, ...shell})
  await server.run('long')
  await until('it runs', () => markedProcesses(original.data).length > 0)

  const copied = join(temporaryDirectory(t), 'copy')
  cpSync(original.data, copied, {recursive: true, filter: (path) => !path.includes('pipes-')})
  for (let round = 1; round <= 2; round += 1) {
    const {program} = startedAgent(t, [server.url], {name: 'press', flags, data: copied})
    const {code} = await within(program.exit, 'the copy ends', SOON_MS)
    assert.deepEqual([code, program.stdout()], [1, ''])
    assert.match(program.stderr(), /another process has it and is alive, as press at 127\.0\.0\.1/)
    assert.match(program.stderr(), /If the directory is a copy, remove the file node-id in it/)
  }
  assert.equal(original.program.isGone(), false)
  const [execution] = await server.executions('long')
  assert.equal(execution.status, 'running')
  assert.equal(markedProcesses(original.data).length > 0, true)

  // The original is back at once after a crash; the copy follows the advice.
  original.program.signal('SIGKILL')
  await original.program.gone
  await anAgent(t, [server.url], {name: 'press', flags, data: original.data})
  assert.equal((await server.execution('long', isOver)).status, 'lost')
  rmSync(join(copied, 'node-id'))
  await anAgent(t, [server.url], {name: 'press-2', flags, data: copied})
  const {json} = await server.get('/members')
  const agents = json.filter(({Name}: {Name: string}) => Name.startsWith('press'))
  assert.deepEqual(
    agents.map(({Name, statusText}: {Name: string; statusText: string}) => [Name, statusText]),
    [
      ['press', 'alive'],
      ['press-2', 'alive'],
    ],
  )
})
