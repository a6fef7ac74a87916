/** What becomes of pending work that its node does not take: where it goes, and when nobody is waited for. */
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

/** Chosen at noon for `one`, which failed ten minutes after it; nobody else has the tag. */
function decide(changes: Partial<StuckExecution>, context: Partial<ReassignContext> = {}) {
  const stray: StuckExecution = {
    execution: anExecution().record,
    nodeId: 'id-of-one',
    member: {status: 'failed', runs: true, heartbeatAt: NOON + 10 * MINUTE},
    job: aJob().tagged(web).record,
    cause: 'schedule',
    scheduledAt: NOON,
    usedNodes: ['one'],
    ...changes,
  }
  const fixed = {defaultTarget: 'one', targetWaitMs: 10 * MINUTE, random: () => 0.5} as const
  const asked = {now: NOON + 20 * MINUTE, lookedSince: NOON, candidates: [], loads: new Map()}
  return decideReassignment(stray, {...fixed, ...asked, ...context})
}

const FAILED = {status: 'failed', runs: true} as const
const one = aNode('one').with({id: 'id-of-one', tags: web}).candidate
const two = aNode('two').with({tags: web}).candidate

describe('work of a node that is gone, and that no other may take', () => {
  const rows: readonly [
    string,
    'end' | 'stay',
    Partial<StuckExecution>,
    Partial<ReassignContext>?,
  ][] = [
    ['ends when it was waited for long enough', 'end', {}],
    ['stays until then', 'stay', {}, {now: NOON + 20 * MINUTE - 1}],
    [
      'was due after its node was heard of',
      'stay',
      {execution: {...anExecution().record, notBefore: NOON + 15 * MINUTE}},
    ],
    [
      'is waited for anew by who has just begun to look',
      'stay',
      {},
      {lookedSince: NOON + 15 * MINUTE},
    ],
    [
      'ends at once when the node was removed and the launch runs on all others',
      'end',
      {member: null, usedNodes: ['one', 'two']},
      {now: NOON + 1, candidates: [two]},
    ],
    [
      'waits for another with the tags when the only one was removed',
      'stay',
      {member: null},
      {now: NOON + 1},
    ],
    ['and ends when none has come', 'end', {member: null}, {now: NOON + 10 * MINUTE}],
    [
      'waits while the node is leaving',
      'stay',
      {member: {...FAILED, status: 'leaving', heartbeatAt: 0}},
    ],
    [
      'ends when the node left long ago',
      'end',
      {member: {...FAILED, status: 'left', heartbeatAt: 0}},
    ],
    ['stays with a node that is there', 'stay', {}, {candidates: [one], now: NOON + 600 * MINUTE}],
    [
      'ends when the node is there and runs no jobs',
      'end',
      {member: {status: 'alive', runs: false, heartbeatAt: NOON + 20 * MINUTE}},
    ],
    [
      'stays when the node has this moment fallen silent',
      'stay',
      {member: {status: 'alive', runs: true, heartbeatAt: NOON + 19 * MINUTE}},
    ],
  ]
  for (const [what, kind, changes, context] of rows)
    it(what, () => assert.deepEqual(decide(changes, context), {kind}))

  it('is not waited for past max_lateness, if it is the first try of a planned time', () => {
    const job = aJob().tagged(web).catchingUp('latest', '12m').record
    const after = (ms: number, changes: Partial<StuckExecution> = {}) =>
      decide({job, ...changes}, {now: NOON + ms}).kind
    assert.deepEqual([after(12 * MINUTE), after(12 * MINUTE + 1)], ['stay', 'end'])
    assert.equal(after(12 * MINUTE + 1, {cause: 'manual'}), 'stay')
    const execution = anExecution().attempt(2).record
    assert.equal(after(12 * MINUTE + 1, {execution}), 'stay')
  })
})

describe('a node that may have the work of another', () => {
  const to = {nodeId: two.id, nodeName: two.name}
  const full = {...two, load: two.slots}
  const rows: readonly [
    string,
    'move' | 'stay',
    Partial<StuckExecution>,
    Partial<ReassignContext>,
  ][] = [
    ['has it at once', 'move', {}, {candidates: [two], now: NOON}],
    [
      'has it though it is full, when the other is gone',
      'move',
      {},
      {candidates: [full], now: NOON},
    ],
    ['has it only with room, when the other is there', 'stay', {}, {candidates: [one, full]}],
    [
      'does not when the launch uses it',
      'stay',
      {usedNodes: ['two']},
      {candidates: [two], now: NOON},
    ],
    ['does not without the tags', 'stay', {}, {candidates: [{...two, tags: {}}], now: NOON}],
  ]
  for (const [what, kind, changes, context] of rows)
    it(what, () => {
      assert.deepEqual(decide(changes, context), kind === 'move' ? {kind, to} : {kind})
    })

  it('takes the place of one whose name it has taken over', () => {
    const heir = aNode('one').with({id: 'another-disk', tags: web}).candidate
    const decision = decide(
      {execution: anExecution().with({node: 'one'}).record},
      {candidates: [heir]},
    )
    assert.deepEqual(decision, {kind: 'move', to: {nodeId: 'another-disk', nodeName: 'one'}})
  })
})
