/** Connections of agents: who may open another one, and who has to wait. */
import assert from 'node:assert/strict'
import {EventEmitter} from 'node:events'
import {test} from 'node:test'
import type {WebSocket} from 'ws'
import type {Principal, TokenKind} from '../../src/core/access/authorization.ts'
import {checkedLimits} from '../../src/config/limits.ts'
import {AgentConnectionLimits} from '../../src/http/agent-links.ts'
import {LOCAL} from '../../src/identity/token-cache.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function theLinks() {
  const clock = new VirtualClock()
  const links = new AgentConnectionLimits(checkedLimits(), clock)
  const open = (principal: Principal): EventEmitter | null => {
    if (links.refusal(principal) !== null) return null
    const socket = new EventEmitter()
    links.add(principal, socket as unknown as WebSocket)
    return socket
  }
  /** Opens and ends connections for so long, one after the other; how many were opened. */
  const reconnect = async (principals: readonly Principal[], seconds: number) => {
    let opened = 0
    for (let at = 0; at < seconds * 10; at += 1) {
      for (const principal of principals) {
        const socket = open(principal)
        socket?.emit('close')
        opened += socket === null ? 0 : 1
      }
      await clock.advance(100)
    }
    return opened
  }
  return {clock, links, open, reconnect}
}

const aToken = (accessor: string, kind: TokenKind = 'agent'): Principal => ({
  ...LOCAL,
  kind,
  accessor,
})
const tokens = (count: number, name: string) =>
  Array.from({length: count}, (_, index) => aToken(`${name} ${index}`))

test('a token that reconnects all the time has to wait', async () => {
  const {clock, links, open, reconnect} = theLinks()
  const hostile = aToken('hostile')
  assert.equal(await reconnect([hostile], 19), 8 + 3)
  const refused = links.refusal(hostile)
  assert.equal(refused?.why, 'its token connects too often')
  assert.ok(refused.retryAfterMs > 0 && refused.retryAfterMs <= 5_000, `${refused.retryAfterMs} ms`)
  await clock.advance(refused.retryAfterMs)
  assert.notEqual(open(hostile), null)
})

test('tokens of one join token together connect again at most as often as all agents may', async () => {
  const {reconnect, open} = theLinks()
  const opened = await reconnect(tokens(200, 'hostile'), 10)
  assert.ok(opened <= 200 * 2 + 40 + 20 * 10, `${opened} in 10 s`)
  // Agents that lost their server meanwhile are not among those that reconnect again and again.
  for (const agent of tokens(500, 'honest')) assert.notEqual(open(agent), null, agent.accessor)
})

test('500 agents that lose their server again and again connect at once', async () => {
  const {clock, open} = theLinks()
  const agents = tokens(500, 'agent')
  const connect = () => {
    const sockets = agents.map(open)
    assert.ok(sockets.every((socket) => socket !== null))
    for (const socket of sockets) socket.emit('close')
  }
  connect()
  connect()
  for (let life = 0; life < 5; life += 1) {
    await clock.advance(30_000)
    connect()
  }
})

test('a join token gives 200 agents their tokens at once, and then 20 a second', async () => {
  const {reconnect, open} = theLinks()
  const fleet = aToken('fleet', 'join')
  for (let agent = 0; agent < 200; agent += 1) open(fleet)?.emit('close')
  const opened = await reconnect(
    Array.from({length: 10}, () => fleet),
    10,
  )
  assert.ok(opened >= 180 && opened <= 201, `${opened} in 10 s`)
})

test('a management token connects any number of agents', async () => {
  const {reconnect} = theLinks()
  assert.equal(
    await reconnect(
      Array.from({length: 50}, () => LOCAL),
      1,
    ),
    500,
  )
})
