/** Remote store of an agent: a reply that covers too little is no success. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {RpcClient} from '../../src/agents/client/rpc.ts'
import {LocalClaims, RemoteNodeStore} from '../../src/agents/client/store.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {OutcomeUnknown} from '../../src/ports/store-errors.ts'

function aFinish(group: number): FinishItem {
  return {
    key: {group, node: 'far', attempt: 1},
    token: 'token',
    status: 'succeeded',
    durationMs: 1,
    exitCode: 0,
    reason: '',
    outputHead: '',
    outputFoot: '',
    output: {offset: 0, bytes: new Uint8Array(0), totalBytes: 0},
    dropOutput: false,
    jitter: 0,
  }
}

test('a finish that the reply of the server does not cover is not delivered', async () => {
  const {key} = aFinish(1)
  const outcomes = [{kind: 'already', key, status: 'succeeded'}]
  const link = {
    request: () => Promise.resolve({kind: 'finish', id: 1, outcomes}),
  } as unknown as RpcClient
  const store = new RemoteNodeStore(link, new LocalClaims(), () => undefined)
  await assert.rejects(store.finish([aFinish(1), aFinish(2)]), OutcomeUnknown)
  assert.deepEqual(await store.finish([aFinish(1)]), outcomes)
})

test('a heartbeat brings the clock of the server, that of an older server none', async () => {
  const replies = [
    {answer: 'ok', end: [], now: 7_000},
    {answer: 'ok', end: []},
  ]
  const link = {request: async () => replies.shift()} as unknown as RpcClient
  const seen: number[] = []
  const onServerTime = (now: number) => void seen.push(now)
  const store = new RemoteNodeStore(link, new LocalClaims(), () => undefined, onServerTime)
  const beat = {nodeId: 'far', incarnation: 'life', status: 'alive'} as const
  for (const _ of replies.slice()) await store.beat([beat])
  assert.deepEqual(seen, [7_000])
})

test('a claim asks for secrets, and the reply of an older server has none', async () => {
  const asked: unknown[] = []
  const reply = {claimed: [], waiting: 0, nextDueInMs: null}
  const replies = [{...reply, secrets: {db: 'hunter2'}}, reply]
  const link = {
    request: async (_kind: string, body: unknown) => {
      asked.push(body)
      return replies.shift()
    },
  } as unknown as RpcClient
  const store = new RemoteNodeStore(link, new LocalClaims(), () => undefined)
  const request = {nodeId: 'n', incarnation: 'i', token: 't', room: 1}
  assert.deepEqual((await store.claim([request]))[0]!.secrets, {db: 'hunter2'})
  assert.deepEqual((await store.claim([request]))[0]!.secrets, {})
  assert.equal((asked[0] as {secrets: unknown}).secrets, true)
})
