/** Shutdown with an undelivered result: the agent stays `leaving`, and its next start delivers the result. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import type {AddressInfo} from 'node:net'
import {test} from 'node:test'
import {WebSocket, WebSocketServer} from 'ws'
import {aServer, isOver, type Owner, type ServerProcess} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {anAgent} from './agent-process.ts'

interface Relay {
  readonly url: string
  /** Number of finishes that it refused. */
  refused: number
}

/** Relay to a server that refuses every finish as if the store were unavailable. */
async function aRelay(t: Owner, {url}: ServerProcess): Promise<Relay> {
  const listener = new WebSocketServer({host: '127.0.0.1', port: 0})
  const sockets = new Set<WebSocket>()
  t.after(() => {
    for (const socket of sockets) socket.terminate()
    listener.close()
  })
  await once(listener, 'listening')
  const {port} = listener.address() as AddressInfo
  const relay = {url: `http://127.0.0.1:${port}`, refused: 0}
  listener.on('connection', (agent) => {
    const server = new WebSocket(`${url.replace('http', 'ws')}/v1/agent`)
    const opened = once(server, 'open')
    for (const [from, to] of [
      [agent, server],
      [server, agent],
    ] as const) {
      sockets.add(from)
      from.on('close', () => to.terminate())
      // Every error ends the connection, which is handled above.
      from.on('error', () => undefined)
    }
    server.on('message', (data: Buffer) => agent.send(data.toString()))
    agent.on('message', (data: Buffer) => {
      const {kind, id} = JSON.parse(data.toString()) as {kind: string; id: number}
      if (kind !== 'finish') return void opened.then(() => server.send(data.toString()))
      relay.refused += 1
      const failed = {kind: 'failed', id, failure: 'unavailable', message: 'the store is down'}
      agent.send(JSON.stringify(failed))
    })
  })
  return relay
}

test('an agent that exits with an undelivered result stays leaving and delivers it next time', async (t) => {
  const server = await aServer(t)
  const relay = await aRelay(t, server)
  const flags = ['--tag', 'place=far']
  const agent = await anAgent(t, [relay.url], {flags})
  const job = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}, retries: 1}
  await server.store({name: 'far', ...job, executor_config: {command: 'true'}})
  await server.run('far')
  await until('the result is sent', () => relay.refused > 0)
  agent.program.signal('SIGTERM')
  const statusOfAgent = async () => {
    const {json} = await server.get('/members')
    return json.find(({Name}: {Name: string}) => Name === 'agent-a').statusText
  }
  await until('it is leaving', async () => (await statusOfAgent()) === 'leaving')
  // Signals within half a second count as one. The second one does not wait for the store for long.
  const {refused} = relay
  await until('the result is sent again and again', () => relay.refused > refused + 2)
  agent.program.signal('SIGTERM')
  const exit = await within(agent.program.exit, 'the agent ends', 20_000)
  assert.equal(exit.code, 0, agent.program.stderr())
  assert.match(agent.program.stderr(), /no server took these/)
  assert.equal(await statusOfAgent(), 'leaving')
  await anAgent(t, [server.url], {data: agent.data, flags})
  const {status, attempt} = await server.execution('far', isOver)
  assert.deepEqual([status, attempt], ['succeeded', 1])
})
