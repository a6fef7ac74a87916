/** Running count of a session: it decides whether the agent is notified of new work. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AgentSession, type SessionStore} from '../../src/agents/server/session.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const KEY = {group: 1, node: 'press', attempt: 1}
const CLAIMS = [{key: KEY, token: 't1'}]

test('an execution that ends while a heartbeat is being stored does not count as running', async () => {
  const stored = Promise.withResolvers<'ok'>()
  const store: Partial<SessionStore> = {
    finish: async () => [{kind: 'unknown', key: KEY}],
    activeClaims: async () => [],
  }
  const session = new AgentSession(
    {
      store: store as SessionStore,
      clock: new VirtualClock(),
      random: new SeededRandom(1),
      events: new RecordedEvents(),
      node: {id: 'press-id', incarnation: 'life', name: 'press'},
      send: () => undefined,
      beat: () => stored.promise,
      rejoin: async () => 'ok',
      endPreviousIncarnations: async () => 0,
      announce: () => undefined,
    },
    [],
  )
  const beat = {kind: 'beat', id: 1, status: 'alive', held: CLAIMS, claiming: null} as const
  const replied = session.handle(beat)
  assert.equal(session.runningCount, 1)
  await session.handle({
    kind: 'finish',
    id: 2,
    items: [
      {
        ...CLAIMS[0]!,
        status: 'succeeded',
        durationMs: 1,
        exitCode: 0,
        reason: '',
        outputHead: '',
        outputFoot: '',
        output: {offset: 0, bytes: '', totalBytes: 0},
        dropOutput: false,
        dice: 0,
      },
    ],
  })
  assert.equal(session.runningCount, 0)
  stored.resolve('ok')
  await replied
  assert.equal(session.runningCount, 0)
})

/** The request of the store for a claim of an agent. */
async function askedBy(claim: {readonly room: number; readonly most?: number}) {
  const asked: unknown[] = []
  const store: Partial<SessionStore> = {
    claim: async (requests) => {
      asked.push(...requests.map(({room}) => room))
      return [{claimed: [], waiting: 0, nextDueInMs: null}]
    },
  }
  const session = new AgentSession(
    {
      store: store as SessionStore,
      clock: new VirtualClock(),
      random: new SeededRandom(1),
      events: new RecordedEvents(),
      node: {id: 'press-id', incarnation: 'life', name: 'press'},
      send: () => undefined,
      beat: async () => 'ok',
      rejoin: async () => 'ok',
      endPreviousIncarnations: async () => 0,
      announce: () => undefined,
    },
    [],
  )
  await session.handle({kind: 'claim', id: 1, token: 't1', ...claim})
  return asked
}

test('a claim takes as many executions as the agent accepts in one reply', async () => {
  assert.deepEqual(await askedBy({room: 200, most: 256}), [200])
  assert.deepEqual(await askedBy({room: 10_000, most: 10_000}), [256])
  assert.deepEqual(await askedBy({room: 200}), [16], 'an agent of the previous release')
})
