/** A session: its running count, which decides about notifications, and the bounds of what an agent says. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {ServerMessage} from '../../src/agents/protocol.ts'
import {
  AgentSession,
  type SessionOptions,
  type SessionStore,
} from '../../src/agents/server/session.ts'
import {aJob, anExecution, NOTHING_CLAIMED} from '../support/fixtures.ts'
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
  const {session} = aSession(store, () => stored.promise)
  const beat = {
    kind: 'heartbeat',
    id: 1,
    status: 'alive',
    activeClaims: CLAIMS,
    pendingToken: null,
  } as const
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
        startedAfterMs: 0,
        exitCode: 0,
        reason: '',
        outputHead: '',
        outputFoot: '',
        output: {offset: 0, bytes: '', totalBytes: 0},
        dropOutput: false,
        jitter: 0,
      },
    ],
  })
  assert.equal(session.runningCount, 0)
  stored.resolve('ok')
  await replied
  assert.equal(session.runningCount, 0)
})

test('verifications wait for the budget and end with their connection; heartbeats do not wait', async () => {
  const turns: ((mayHandle: boolean) => void)[] = []
  const asked: (readonly [string, number])[] = []
  let verified = 0
  const store: Partial<SessionStore> = {
    activeClaims: async () => [],
    verifyClaims: async (claims) => {
      verified += claims.length
      return claims.map(() => 'revoked' as const)
    },
  }
  const {session, sent} = aSession(store, undefined, 4, (kind, items) => {
    asked.push([kind, items])
    return new Promise((resolve) => turns.push(resolve))
  })
  const claims = [1, 2].map((group) => ({key: {group, node: 'press', attempt: 1}, token: 't'}))
  const requests = [1, 2, 3].map((id) => session.handle({kind: 'verify', id, claims}))
  await session.handle({
    kind: 'heartbeat',
    id: 4,
    status: 'alive',
    activeClaims: [],
    pendingToken: null,
  })
  assert.deepEqual(
    sent.map(({kind}) => kind),
    ['heartbeat'],
  )
  assert.deepEqual(
    asked,
    [1, 2, 3].map(() => ['verify', 3]),
  )
  turns[0]!(true)
  await requests[0]
  turns[1]!(true)
  turns[2]!(false)
  await Promise.all(requests)
  assert.equal(verified, 2, 'what was revoked is not looked up again')
  assert.deepEqual(sent.slice(1), [
    {kind: 'verify', id: 1, active: [false, false]},
    {kind: 'verify', id: 2, active: [false, false]},
  ])
})

/** A session over these methods of a store. */
function aSession(
  store: Partial<SessionStore>,
  beat: () => Promise<'ok'> = async () => 'ok',
  slots = 4,
  mayHandle: SessionOptions['mayHandle'] = async () => true,
) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const violations: string[] = []
  const sent: ServerMessage[] = []
  const session = new AgentSession(
    {
      store: store as SessionStore,
      clock,
      random: new SeededRandom(1),
      events,
      node: {id: 'press-id', incarnation: 'life', name: 'press', slots},
      violated: (why) => violations.push(why),
      send: (message) => sent.push(message),
      mayHandle,
      beat,
      rejoin: async () => 'ok',
      endPreviousIncarnations: async () => 0,
      announce: () => undefined,
    },
    [],
  )
  return {session, clock, events, violations, sent}
}

/** The request of the store for a claim of an agent. */
async function askedBy(claim: {readonly room: number}, slots = 256) {
  const asked: unknown[] = []
  const store: Partial<SessionStore> = {
    claim: async (requests) => {
      asked.push(...requests.map(({room}) => room))
      return [NOTHING_CLAIMED]
    },
  }
  const {session} = aSession(store, undefined, slots)
  await session.handle({kind: 'claim', id: 1, token: 't1', after: null, ...claim})
  return asked
}

test('a claim takes as many executions as the agent accepts in one reply', async () => {
  assert.deepEqual(await askedBy({room: 200}), [200])
  assert.deepEqual(await askedBy({room: 10_000}), [256])
  assert.deepEqual(await askedBy({room: 10_000}, 4), [24], 'six for each slot')
})

test('an agent cannot claim more executions than its slots allow', async () => {
  const rooms: number[] = []
  const active = Array.from({length: 20}, (_, at) => ({key: {...KEY, group: at + 1}, token: 't'}))
  const {session} = aSession({
    activeClaims: async () => active.map((each) => ({...each, job: 'labels', ageMs: 0})),
    claim: async (requests) => {
      rooms.push(...requests.map(({room}) => room))
      return [NOTHING_CLAIMED]
    },
  })
  await session.loadActiveClaims()
  await session.handle({kind: 'claim', id: 1, token: 't2', room: 100, after: null})
  assert.deepEqual(rooms, [4])
})

test('output is announced under the name of the job that the store has', async () => {
  const {session, events} = aSession({
    activeClaims: async () => [{...CLAIMS[0]!, job: 'labels', ageMs: 0}],
    appendOutput: async (items) => items.map(() => true),
  })
  await session.loadActiveClaims()
  const other = {...KEY, group: 2}
  const items = [KEY, other].map((key) => {
    return {key, token: 't1', offset: 0, bytes: 'b2sK'}
  })
  await session.handle({kind: 'append', id: 1, items})
  const announced = events.all.filter(({name}) => name === 'execution_output')
  assert.deepEqual(
    announced.map(({data}) => data),
    [{job: 'labels', execution: '1-press-1', total_bytes: 3}],
    'none for an execution that is not its own',
  )
})

test('a heartbeat looks up a bounded number of invented claims; a flood of them waits', async () => {
  const looked: number[] = []
  const {session, clock, sent, violations} = aSession({
    activeClaims: async () => [],
    verifyClaims: async (claims) => {
      looked.push(claims.length)
      return claims.map(() => 'revoked')
    },
  })
  const held = Array.from({length: 4 * 6 + 256}, (_, at) => ({
    key: {...KEY, group: at + 1},
    token: 't',
  }))
  const beat = {kind: 'heartbeat', status: 'alive', activeClaims: held, pendingToken: null} as const
  const replied = Array.from({length: 32}, (_, at) => session.handle({...beat, id: at + 1}))
  await clock.advance(1)
  assert.equal(sent.length, 4)
  await clock.advance(1_000)
  assert.equal(sent.length, 6)
  await clock.finish(Promise.all(replied))
  assert.deepEqual([...new Set(looked)], [held.length])
  assert.deepEqual(violations, [])
  await session.handle({...beat, id: 99, activeClaims: [...held, ...CLAIMS]})
  assert.equal(violations.length, 1)
})

test('the reply to a heartbeat has the clock of the server', async () => {
  const {session, sent, clock} = aSession({activeClaims: async () => []})
  const now = clock.now()
  await session.handle({
    kind: 'heartbeat',
    id: 1,
    status: 'alive',
    activeClaims: [],
    pendingToken: null,
  })
  assert.deepEqual(sent, [{kind: 'heartbeat', id: 1, result: 'ok', revoked: [], now}])
})

test('an agent gets secrets with its claim', async () => {
  const {spec} = aJob('job').with({executor: 'shell', executorConfig: {env: 'A=${secret:db}'}})
  const execution = anExecution().with({jobName: 'job'}).running().record
  const claimed = [{execution, token: 't1', spec, cause: 'manual' as const, scheduledAt: 0}]
  const result = {...NOTHING_CLAIMED, claimed, secrets: {db: 'hunter2'}}
  const {session, sent} = aSession({claim: async () => [result]})
  await session.handle({kind: 'claim', id: 1, token: 't1', room: 2, after: null})
  const [reply] = sent
  assert(reply?.kind === 'claim' && 'claimed' in reply)
  assert.deepEqual([reply.secrets, reply.claimed[0]!.spec], [{db: 'hunter2'}, spec])
})
