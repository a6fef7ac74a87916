/** Agent and server processes: join, run, crash on either side, leave. */
import assert from 'node:assert/strict'
import {cpSync, mkdirSync, statSync, writeFileSync} from 'node:fs'
import {connect, createServer, type AddressInfo} from 'node:net'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'
import {isAlive, markedProcesses, peakResidentBytes} from '../support/living-processes.ts'
import {
  aServer,
  isOver,
  runProgram,
  sharedServer,
  temporaryDirectory,
  type Answer,
  type Owner,
  type Program,
  type ServerProcess,
} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {anAgent, startedAgent} from './agent-process.ts'

const TOKEN = 'a-token-of-the-tests'
const onAgent = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
const far = {flags: ['--tag', 'place=far']}
const shell = (command: string) => ({shell: 'true', command})
const hold = (file: string) =>
  `echo started; while [ ! -e ${file} ]; do sleep 0.05; done; echo done`
const isRunning = ({status}: Answer['json']) => status === 'running'

async function member(server: ServerProcess, name: string): Promise<Answer['json']> {
  const {json} = await server.get('/members')
  return json.find((each: Answer['json']) => each.Name === name)
}

/** URL of a proxy to `server` that moves the clock in its heartbeat replies by `byMs`. */
async function withOtherClock(t: Owner, server: ServerProcess, byMs: number): Promise<string> {
  const {hostname, port} = new URL(server.url)
  const proxy = createServer((caller) => {
    const target = connect(Number(port), hostname)
    const end = () => {
      caller.destroy()
      target.destroy()
    }
    for (const socket of [caller, target]) socket.on('error', end).on('close', end)
    caller.pipe(target)
    target.on('data', (bytes) => {
      const text = bytes.toString('latin1')
      const moved = text.replace(/(?<="now":)\d{13}/g, (now) => String(Number(now) + byMs))
      caller.write(moved, 'latin1')
    })
    t.after(end)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  t.after(() => proxy.close())
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
}

describe('agent process', {concurrency: 2}, () => {
  const shared = sharedServer()

  test('warns of a clock that differs from that of its server', async (t) => {
    const url = await withOtherClock(t, shared(), 3_600_000)
    const agent = await anAgent(t, [url], {name: 'agent-b'})
    const warns = /the clock of this machine is (1h|59m\S*) behind that of the store/
    await until('it warns', () => warns.test(agent.program.stderr()), 60_000)
  })

  test('joins, runs a job by tag, streams output, reports the end, and leaves', async (t) => {
    const server = shared()
    const agent = await anAgent(t, [server.url], far)
    assert.equal(agent.joined, server.url)
    const known = await member(server, 'agent-a')
    const {Addr, Port, Status, Tags} = known
    assert.deepEqual([Addr, Status, Tags.server, Tags.place], ['127.0.0.1', 1, 'false', 'far'])
    assert.equal(Tags.rpc_addr, `127.0.0.1:${Port}`)
    const go = join(temporaryDirectory(t), 'go')
    await server.store({name: 'far', ...onAgent, executor_config: shell(`${hold(go)}; exit 3`)})
    await server.run('far')
    const live = await server.execution('far', ({output}) => output.includes('started'))
    assert.deepEqual([live.node_name, live.status], ['agent-a', 'running'])
    writeFileSync(go, '')
    const end = await server.execution('far', isOver)
    assert.equal(end.output, 'exit status 3\nstarted\ndone\n')
    assert.equal(end.status, 'failed')

    const slow = join(temporaryDirectory(t), 'go')
    await server.store({name: 'slow', ...onAgent, executor_config: shell(hold(slow))})
    await server.run('slow')
    // Claimed and not started, it would be released for another node.
    await server.execution('slow', ({output}) => output.includes('started'))
    agent.program.signal('SIGTERM')
    await until('it is leaving', async () => (await member(server, 'agent-a')).Status === 2)
    writeFileSync(slow, '')
    const {code} = await within(agent.program.exit, 'the agent ends', 20_000)
    assert.equal(code, 0, agent.program.stderr())
    assert.equal((await server.executions('slow'))[0].status, 'succeeded')
    assert.equal((await member(server, 'agent-a')).Status, 3)
  })

  test('ends the whole process tree of a cancelled execution', async (t) => {
    const server = shared()
    const agent = await anAgent(t, [server.url], {name: 'agent-c', flags: ['--tag', 'place=tree']})
    const job = {...onAgent, tags: {place: 'tree'}, executor_config: shell('sleep 600 & wait')}
    await server.store({name: 'tree', ...job})
    await server.run('tree')
    const {id} = await server.execution('tree', isRunning)
    await until('it runs', () => markedProcesses(agent.data).length > 0)
    assert.equal((await server.post(`/jobs/tree/executions/${id}/cancel`)).status, 202)
    assert.equal((await server.execution('tree', isOver)).status, 'cancelled')
    await until('no process is left', () => markedProcesses(agent.data).length === 0)
  })

  test('keeps running while its server is down, and delivers to the restarted server', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url], far)
    const go = join(temporaryDirectory(t), 'go')
    await server.store({name: 'far', ...onAgent, executor_config: shell(hold(go))})
    await server.run('far')
    await server.execution('far', ({output}) => output.includes('started'))
    await server.crash()
    writeFileSync(go, '')
    await until('it has ended', () => markedProcesses(agent.data).length === 0)
    const {host} = new URL(server.url)
    const next = await aServer(t, {data: server.data, flags: ['--http', host]})
    const end = await next.execution('far', isOver)
    assert.deepEqual([end.status, end.output], ['succeeded', 'started\ndone\n'])
    assert.equal((await next.executions('far')).length, 1)
    assert.equal(isAlive(agent.program.pid), true)
  })

  test('after SIGKILL delivers stored results and ends orphans at its next start', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url], far)
    const go = join(temporaryDirectory(t), 'go')
    await server.store({name: 'ends', ...onAgent, executor_config: shell(hold(go))})
    await server.store({name: 'stays', ...onAgent, executor_config: shell('sleep 600 & wait')})
    await server.run('ends')
    await server.run('stays')
    await server.execution('ends', isRunning)
    await server.execution('stays', isRunning)
    await until('both run', () => jobsOf(agent.data).size === 2)
    await server.crash()
    writeFileSync(go, '')
    await until('one has ended', () => !jobsOf(agent.data).has('ends'))
    await until('its result is on disk', () => statSync(join(agent.data, 'results')).size > 0)
    agent.program.signal('SIGKILL')
    await agent.program.gone

    const {host} = new URL(server.url)
    const next = await aServer(t, {data: server.data, flags: ['--http', host]})
    await anAgent(t, [server.url], {...far, data: agent.data})
    assert.deepEqual([...jobsOf(agent.data)], [], 'orphans are ended')
    assert.equal((await next.execution('ends', isOver)).status, 'succeeded')
    const lost = await next.execution('stays', isOver)
    assert.equal(lost.status, 'lost')
    assert.match(lost.output, /the node went down while it ran, and has started again/)
  })

  test('300 MB of output while its server is frozen does not grow the memory of either', async (t) => {
    const server = await aServer(t)
    const agent = await anAgent(t, [server.url], far)
    const go = join(temporaryDirectory(t), 'go')
    const flood = 'head -c 300000000 /dev/zero | tr "\\0" x; echo; echo the end'
    const command = `echo started; while [ ! -e ${go} ]; do sleep 0.05; done; ${flood}`
    await server.store({name: 'far', ...onAgent, executor_config: shell(command)})
    await server.run('far')
    await server.execution('far', ({output}) => output.includes('started'))
    const before = [agent.program.pid, server.pid].map(peakResidentBytes)
    server.program.signal('SIGSTOP')
    writeFileSync(go, '')
    await until('it has ended', () => markedProcesses(agent.data).length === 0, 60_000)
    server.program.signal('SIGCONT')
    const end = await server.execution('far', isOver)
    assert.deepEqual([end.status, end.output_truncated], ['succeeded', true])
    assert.ok(end.output.endsWith('xxx\nthe end\n'))
    const grown = [agent.program.pid, server.pid].map((pid, index) => {
      return peakResidentBytes(pid) - before[index]!
    })
    for (const bytes of grown) assert.ok(bytes < 150 * 2 ** 20, `${grown.join(' and ')} bytes more`)
  })

  test('refuses to start on a name in use, a wrong token or another cluster, in one line', async (t) => {
    const flags = ['--token', TOKEN]
    const server = await aServer(t, {flags})
    const withToken = {flags: [...far.flags, ...flags]}
    const agent = await anAgent(t, [server.url], withToken)
    const refused = async (
      urls: readonly string[],
      options: object,
      sentence: RegExp,
      expected = 1,
    ) => {
      const {program} = startedAgent(t, urls, options)
      const {code} = await within(program.exit, 'it is refused', 15_000)
      assert.equal(code, expected)
      assert.match(program.stderr().trimEnd(), sentence)
      assert.equal(program.stdout(), '')
    }
    await refused(
      [server.url],
      withToken,
      /^belfry: The node name agent-a cannot be used: .*--name\.$/,
    )
    await refused(
      [server.url],
      {name: 'b'},
      /^belfry: The server \S+ cannot be joined: it needs a token\. Create one/,
    )
    await refused(
      [server.url],
      {name: 'b', data: agent.data},
      /^belfry: .* is held by another Belfry process/,
    )
    agent.program.signal('SIGTERM')
    await agent.program.exit
    const other = await aServer(t)
    await refused(
      [other.url],
      {data: agent.data},
      /^belfry: The server \S+ cannot be joined: it belongs to another cluster/,
      2,
    )
    const data = join(temporaryDirectory(t), 'copy')
    mkdirSync(data)
    cpSync(join(other.data, 'node-id'), join(data, 'node-id'))
    await refused(
      [other.url],
      {name: 'b', data},
      /^belfry: The agent b cannot join: a server of the cluster has its node id\. Set its own --data\.$/,
      2,
    )
  })

  test('verifies the TLS certificate of its server against --tls-ca', async (t) => {
    const directory = temporaryDirectory(t)
    const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')]
    writeFileSync(cert, CERTIFICATE)
    writeFileSync(key, PRIVATE_KEY)
    const server = startedServer(t, ['--tls-cert', cert, '--tls-key', key])
    const url = await until('the server is ready', () => /https:\S+/.exec(server.stdout())?.[0])
    const trusting = await anAgent(t, [url], {flags: ['--tls-ca', cert]})
    assert.equal(trusting.joined, url)
    const {program} = startedAgent(t, [url], {name: 'b'})
    await until('the reason is logged', () => program.stderr().includes('certificate'))
    assert.equal(program.stdout(), '')
  })
})

function jobsOf(data: string): ReadonlySet<string> {
  return new Set(markedProcesses(data).map(({job}) => job))
}

function startedServer(t: Owner, flags: readonly string[]): Program {
  const data = join(temporaryDirectory(t), 'data')
  return runProgram(t, ['server', '--http', '127.0.0.1:0', '--data', data, ...flags])
}
