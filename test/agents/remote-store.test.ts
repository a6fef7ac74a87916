/** Remote store of an agent: a reply that covers too little is no success. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {RpcClient} from '../../src/agents/client/rpc.ts'
import {LocalClaims, RemoteNodeStore} from '../../src/agents/client/store.ts'
import {encodeFinish} from '../../src/agents/codec.ts'
import {OutcomeUnknown} from '../../src/ports/store-errors.ts'

function aFinish(group: number) {
  return encodeFinish({
    key: {group, node: 'far', attempt: 1},
    token: 'token',
    status: 'succeeded',
    durationMs: 1,
    startedAfterMs: 0,
    exitCode: 0,
    reason: '',
    outputHead: '',
    outputFoot: '',
    output: {offset: 0, bytes: new Uint8Array(0), totalBytes: 0},
    dropOutput: false,
    jitter: 0,
  })
}

test('a finish that the reply of the server does not cover is not delivered', async () => {
  const outcomes = [{kind: 'already'}]
  const link = {
    request: () => Promise.resolve({kind: 'finish', id: 1, outcomes}),
  } as unknown as RpcClient
  const store = new RemoteNodeStore(link, new LocalClaims(), () => undefined)
  await assert.rejects(store.finish([aFinish(1), aFinish(2)]), OutcomeUnknown)
  assert.deepEqual(await store.finish([aFinish(1)]), outcomes)
})

test('a heartbeat brings the clock of the server', async () => {
  const link = {
    request: async () => ({result: 'ok', revoked: [], now: 7_000}),
  } as unknown as RpcClient
  const seen: number[] = []
  const onServerTime = (now: number) => void seen.push(now)
  const store = new RemoteNodeStore(link, new LocalClaims(), () => undefined, onServerTime)
  await store.beat([{nodeId: 'far', incarnation: 'life', status: 'alive'}])
  assert.deepEqual(seen, [7_000])
})
