/** Wire names of the agent protocol: a change of these needs another protocol number. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {LocalClaims} from '../../src/agents/client/store.ts'
import {
  decodeAgentMessage,
  decodeFinish,
  decodeIncarnations,
  decodeServerMessage,
  encodeFinish,
  encodeIncarnations,
} from '../../src/agents/codec.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'

const KEY = {group: 7, node: 'press', attempt: 2}
const FINISH: FinishItem = {
  key: KEY,
  token: 'token-7',
  status: 'failed',
  durationMs: 12,
  startedAfterMs: 4,
  exitCode: 3,
  reason: 'r',
  outputHead: 'head',
  outputFoot: 'foot',
  output: {offset: 5, bytes: Uint8Array.from([0, 255]), totalBytes: 7},
  dropOutput: false,
  jitter: 0.25,
}

test('a finish keeps its wire names, and decoding restores it', () => {
  const json = encodeFinish(FINISH)
  assert.deepEqual(json, {
    key: KEY,
    token: 'token-7',
    status: 'failed',
    durationMs: 12,
    startedAfterMs: 4,
    exitCode: 3,
    reason: 'r',
    outputHead: 'head',
    outputFoot: 'foot',
    output: {offset: 5, bytes: 'AP8=', totalBytes: 7},
    dropOutput: false,
    jitter: 0.25,
  })
  assert.deepEqual(decodeFinish(json), FINISH)
})

test('a finish with too long texts is cut: the start of the head, the end of the foot', () => {
  const long = `start${'x'.repeat(70_000)}end`
  const json = encodeFinish({...FINISH, reason: long, outputHead: long, outputFoot: long})
  assert.deepEqual([json.reason.length, json.outputHead.length], [1_024, 65_536])
  assert.ok(json.outputHead.startsWith('start') && json.outputFoot.endsWith('end'))
  assert.equal(decodeAgentMessage(JSON.stringify({kind: 'finish', id: 1, items: [json]})).ok, true)
})

test('previous incarnations keep their wire names, and decoding restores them', () => {
  const previous = [{incarnation: 'first', upTo: 3, started: new Set(['7-press-2'])}]
  const json = encodeIncarnations(previous)
  assert.deepEqual(json, {previous: [{incarnation: 'first', upTo: 3, started: ['7-press-2']}]})
  assert.deepEqual(decodeIncarnations(json), previous)
  assert.deepEqual(decodeIncarnations({previous: []}), [])
})

test('claims and notifications keep their wire names', () => {
  const claims = new LocalClaims()
  claims.pendingToken = 'token-8'
  assert.deepEqual(claims.encoded(), {activeClaims: [], pendingToken: 'token-8'})
  const notification = {kind: 'notify', topic: 'cancel'}
  assert.deepEqual(decodeServerMessage(JSON.stringify(notification)), {
    ok: true,
    message: notification,
  })
})

test('the version in a greeting is read even if its other fields are unknown', () => {
  const other = {ok: false, why: 'protocol', protocol: 1}
  assert.deepEqual(decodeAgentMessage('{"kind":"hello","protocol":1,"held":[]}'), other)
  assert.deepEqual(decodeServerMessage('{"kind":"welcome","protocol":1,"cluster":{}}'), other)
  const malformed = {ok: false, why: 'malformed'}
  for (const protocol of ['0.5', '"1"', 'null'])
    assert.deepEqual(decodeAgentMessage(`{"kind":"hello","protocol":${protocol}}`), malformed)
})
