/** Admission of a launch: overlap first, then a node, and the state that a pass keeps of both. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {admit} from '../../../src/core/launch.ts'
import {aJob, aNode} from '../../support/fixtures.ts'
import {aPass} from '../../support/pass-context.ts'

const GO = {kind: 'go', targets: [{nodeId: 'id-of-node-a', nodeName: 'node-a'}]}

describe('admission', () => {
  const allow = aJob().spec
  const forbid = aJob().forbidding().spec

  it('launches on a node when no launch is open', () => {
    assert.deepEqual(admit(allow, null, false, 'one', aPass()), GO)
    assert.deepEqual(admit(forbid, null, false, 'one', aPass()), GO)
  })

  it('launches beside an open launch if overlap is allowed or forced', () => {
    assert.deepEqual(admit(allow, 7, false, 'one', aPass()), GO)
    assert.deepEqual(admit(forbid, 7, true, 'one', aPass()), GO)
  })

  it('is blocked by an open launch of a forbid job and names it', () => {
    const blocked = {kind: 'overlap', by: 'launch 7'}
    assert.deepEqual(admit(forbid, 7, false, 'one', aPass()), blocked)
    assert.deepEqual(
      admit(forbid, 7, false, 'one', aPass({nodes: []})),
      blocked,
      'also without a node',
    )
  })

  it('is blocked by a launch of the same pass, forced or not', () => {
    for (const forced of [false, true]) {
      const pass = aPass()
      admit(forbid, null, forced, 'the first', pass)
      const blocked = {kind: 'overlap', by: 'the first'}
      assert.deepEqual(admit(forbid, null, false, 'the second', pass), blocked)
      assert.deepEqual(admit(forbid, null, true, 'by force', pass), GO)
      assert.deepEqual(admit(aJob('other').forbidding().spec, null, false, 'x', pass), GO)
    }
  })

  it('reports that no node matches', () => {
    const spec = aJob().tagged({role: 'web'}).spec
    assert.deepEqual(admit(spec, null, false, 'one', aPass()), {kind: 'no_node'})
    assert.deepEqual(admit(allow, null, false, 'one', aPass({nodes: []})), {kind: 'no_node'})
  })

  it('spreads the launches of a pass over its nodes', () => {
    const pass = aPass({nodes: [aNode('a'), aNode('b')]})
    for (let launch = 0; launch < 10; launch += 1) admit(allow, null, false, 'one', pass)
    assert.deepEqual([...pass.loads.values()], [5, 5])
  })
})
