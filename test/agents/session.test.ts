/** What a server believes its agent to run, which decides whether the agent is told of new work. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AgentSession, type SessionStore} from '../../src/agents/server/session.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const KEY = {group: 1, node: 'press', attempt: 1}
const HELD = [{key: KEY, token: 't1'}]

test('what ends while a heartbeat is on its way to the store does not run any more', async () => {
  const beaten = Promise.withResolvers<'ok'>()
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
      beat: () => beaten.promise,
      rejoin: async () => 'ok',
      endEarlierLives: async () => 0,
      announce: () => undefined,
    },
    [],
  )
  const beat = {kind: 'beat', id: 1, status: 'alive', held: HELD, claiming: null} as const
  const answered = session.answer(beat)
  assert.equal(session.runningCount, 1)
  await session.answer({
    kind: 'finish',
    id: 2,
    items: [
      {
        ...HELD[0]!,
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
  beaten.resolve('ok')
  await answered
  assert.equal(session.runningCount, 0)
})
