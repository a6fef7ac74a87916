/** Reassignment of pending executions: where they move, and when the wait for a node is over. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {
  decideReassignment,
  type ReassignContext,
  type StuckExecution,
} from '../../src/core/reassign.ts'
import {aJob, aNode, anExecution, NOON} from '../support/fixtures.ts'

const MINUTE = 60_000
const web = {role: 'web'}

/** Targeted at noon to node `one`, which failed ten minutes later. No other node has the tag. */
function decide(changes: Partial<StuckExecution>, context: Partial<ReassignContext> = {}) {
  const stuck: StuckExecution = {
    execution: anExecution().record,
    nodeId: 'id-of-one',
    member: {...FAILED, heartbeatAt: NOON + 10 * MINUTE},
    job: aJob().tagged(web).record,
    cause: 'schedule',
    scheduledAt: NOON,
    usedNodes: ['one'],
    ...changes,
  }
  const fixed = {defaultTarget: 'one', targetWaitMs: 10 * MINUTE, random: () => 0.5} as const
  const atTwenty = {now: NOON + 20 * MINUTE, lookedSince: NOON, candidates: [], loads: new Map()}
  return decideReassignment(stuck, {...fixed, ...atTwenty, ...context})
}

const FAILED = {status: 'failed', runs: true, cordonedAt: null} as const
const one = aNode('one').with({id: 'id-of-one', tags: web}).candidate
const two = aNode('two').with({tags: web}).candidate

describe('an execution whose node is gone and that no other node can run', () => {
  const rows: readonly [
    string,
    'end' | 'stay',
    Partial<StuckExecution>,
    Partial<ReassignContext>?,
  ][] = [
    ['ends lost when the wait has timed out', 'end', {}],
    ['waits until the timeout', 'stay', {}, {now: NOON + 20 * MINUTE - 1}],
    [
      'waits from its due time when that is later than the last heartbeat',
      'stay',
      {execution: {...anExecution().record, notBefore: NOON + 15 * MINUTE}},
    ],
    ['waits anew after a change of leader', 'stay', {}, {lookedSince: NOON + 15 * MINUTE}],
    [
      'ends at once when the node was removed and the launch uses all other nodes',
      'end',
      {member: null, usedNodes: ['one', 'two']},
      {now: NOON + 1, candidates: [two]},
    ],
    [
      'waits for a new node with the tags when the only one was removed',
      'stay',
      {member: null},
      {now: NOON + 1},
    ],
    [
      'ends when no new node with the tags has joined',
      'end',
      {member: null},
      {now: NOON + 10 * MINUTE},
    ],
    [
      'waits while the node is leaving',
      'stay',
      {member: {...FAILED, status: 'leaving', heartbeatAt: 0}},
    ],
    [
      'ends when the node left before the timeout',
      'end',
      {member: {...FAILED, status: 'left', heartbeatAt: 0}},
    ],
    [
      'stays on an alive node however late it is',
      'stay',
      {},
      {candidates: [one], now: NOON + 600 * MINUTE},
    ],
    [
      'ends when the node was restarted with --no-run',
      'end',
      {member: {status: 'alive', runs: false, cordonedAt: null, heartbeatAt: NOON + 20 * MINUTE}},
    ],
    [
      'stays when the node sent a heartbeat a minute ago',
      'stay',
      {member: {status: 'alive', runs: true, cordonedAt: null, heartbeatAt: NOON + 19 * MINUTE}},
    ],
  ]
  for (const [what, kind, changes, context] of rows)
    it(what, () => assert.deepEqual(decide(changes, context), {kind}))

  it('waits no longer than max_lateness for the first attempt of a planned time', () => {
    const job = aJob().tagged(web).catchingUp('latest', '12m').record
    const after = (ms: number, changes: Partial<StuckExecution> = {}) =>
      decide({job, ...changes}, {now: NOON + ms}).kind
    assert.deepEqual([after(12 * MINUTE), after(12 * MINUTE + 1)], ['stay', 'end'])
    assert.equal(after(12 * MINUTE + 1, {cause: 'manual'}), 'stay')
    const execution = anExecution().attempt(2).record
    assert.equal(after(12 * MINUTE + 1, {execution}), 'stay')
  })
})

describe('the reassignment to another node', () => {
  const to = {nodeId: two.id, nodeName: two.name}
  const full = {...two, load: two.slots}
  const rows: readonly [
    string,
    'move' | 'stay',
    Partial<StuckExecution>,
    Partial<ReassignContext>,
  ][] = [
    ['is immediate when the own node is gone', 'move', {}, {candidates: [two], now: NOON}],
    ['may fill a full node when the own node is gone', 'move', {}, {candidates: [full], now: NOON}],
    ['needs a free slot while the own node is alive', 'stay', {}, {candidates: [one, full]}],
    [
      'skips a node that the launch already uses',
      'stay',
      {usedNodes: ['two']},
      {candidates: [two], now: NOON},
    ],
    ['skips a node without the tags', 'stay', {}, {candidates: [{...two, tags: {}}], now: NOON}],
  ]
  for (const [what, kind, changes, context] of rows)
    it(what, () => {
      assert.deepEqual(decide(changes, context), kind === 'move' ? {kind, to} : {kind})
    })

  it('may use a new identity with the name of the old node', () => {
    const successor = aNode('one').with({id: 'another-disk', tags: web}).candidate
    const decision = decide(
      {execution: anExecution().with({node: 'one'}).record},
      {candidates: [successor]},
    )
    assert.deepEqual(decision, {kind: 'move', to: {nodeId: 'another-disk', nodeName: 'one'}})
  })
})
