/** Whether a launch may go ahead: overlap first, then a node, and what a pass remembers of both. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {admit} from '../../src/core/launch.ts'
import {aJob, aNode} from '../support/fixtures.ts'
import {aPass} from '../support/pass-context.ts'

const GO = {kind: 'go', targets: [{nodeId: 'id-of-node-a', nodeName: 'node-a'}]}

describe('admission', () => {
  const allow = aJob().spec
  const forbid = aJob().forbidding().spec

  it('goes ahead on a node when nothing is in the way', () => {
    assert.deepEqual(admit(allow, null, false, 'one', aPass()), GO)
    assert.deepEqual(admit(forbid, null, false, 'one', aPass()), GO)
  })

  it('goes ahead over an open launch where overlap is allowed, or forced', () => {
    assert.deepEqual(admit(allow, 7, false, 'one', aPass()), GO)
    assert.deepEqual(admit(forbid, 7, true, 'one', aPass()), GO)
  })

  it('is kept off by an open launch, and names it', () => {
    const kept = {kind: 'overlap', by: 'launch 7'}
    assert.deepEqual(admit(forbid, 7, false, 'one', aPass()), kept)
    assert.deepEqual(
      admit(forbid, 7, false, 'one', aPass({nodes: []})),
      kept,
      'also without a node',
    )
  })

  it('is kept off by what the same pass opened, forced or not', () => {
    for (const forced of [false, true]) {
      const pass = aPass()
      admit(forbid, null, forced, 'the first', pass)
      const kept = {kind: 'overlap', by: 'the first'}
      assert.deepEqual(admit(forbid, null, false, 'the second', pass), kept)
      assert.deepEqual(admit(forbid, null, true, 'by force', pass), GO)
      assert.deepEqual(admit(aJob('other').forbidding().spec, null, false, 'x', pass), GO)
    }
  })

  it('says so when no node matches', () => {
    const spec = aJob().tagged({role: 'web'}).spec
    assert.deepEqual(admit(spec, null, false, 'one', aPass()), {kind: 'no_node'})
    assert.deepEqual(admit(allow, null, false, 'one', aPass({nodes: []})), {kind: 'no_node'})
  })

  it('spreads what it admits over the nodes of a pass', () => {
    const pass = aPass({nodes: [aNode('a'), aNode('b')]})
    for (let launch = 0; launch < 10; launch += 1) admit(allow, null, false, 'one', pass)
    assert.deepEqual([...pass.loads.values()], [5, 5])
  })
})
