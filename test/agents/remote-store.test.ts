/** What a server answers too little of is not taken for done. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {Asking} from '../../src/agents/client/rpc.ts'
import {HeldExecutions, RemoteNodeStore} from '../../src/agents/client/store.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {OutcomeUnknown} from '../../src/ports/store-errors.ts'

function anEnd(group: number): FinishItem {
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

test('ends that a server does not answer for are not delivered', async () => {
  const {key} = anEnd(1)
  const outcomes = [{kind: 'already', key, status: 'succeeded'}]
  const link = {ask: () => Promise.resolve({kind: 'finish', id: 1, outcomes})} as unknown as Asking
  const store = new RemoteNodeStore(link, new HeldExecutions(), () => undefined)
  await assert.rejects(store.finish([anEnd(1), anEnd(2)]), OutcomeUnknown)
  assert.deepEqual(await store.finish([anEnd(1)]), outcomes)
})
