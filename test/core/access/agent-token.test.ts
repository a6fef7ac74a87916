/** Tokens for agents: which node may use one, and when a join token gives an agent a token of its own. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {decideIssue, decideUse, holderRefusal} from '../../../src/core/access/agent-token.ts'

const NODE = {id: 'id-a', name: 'a'}
const tokenOf = (holder: string, id: string, name: string) =>
  ({kind: 'token', holder, node: {id, name}}) as const
const member = (id: string, name: string) =>
  ({kind: 'member', holder: id, node: {id, name}}) as const

test('a token works only for the node that it is bound to', () => {
  assert.equal(decideUse(null, NODE), 'unbound')
  assert.equal(decideUse({...NODE}, NODE), 'bound')
  for (const bound of [
    {id: 'id-b', name: 'a'},
    {id: 'id-a', name: 'b'},
  ])
    assert.deepEqual(decideUse(bound, NODE), {why: 'other_node', node: bound})
})

test('a token is refused to a node whose id or name another token or member has', () => {
  const check = (
    holders: Parameters<typeof holderRefusal>[1],
    refused: string | null,
    refusedIfReplacing: string | null,
  ) => {
    for (const mayReplace of [false, true]) {
      const refusal = holderRefusal({node: NODE, mayReplace}, holders, 'old')
      const by =
        refusal === null ? null : refusal.why === 'held' ? refusal.by : Object.values(refusal)[1]
      assert.equal(by, mayReplace ? refusedIfReplacing : refused)
    }
  }
  check([], null, null)
  check([tokenOf('other', 'id-a', 'a')], 'other', 'other')
  check([tokenOf('other', 'id-a', 'b')], 'other', 'other')
  check([tokenOf('other', 'id-b', 'a')], 'other', null)
  check([tokenOf('old', 'id-a', 'a')], null, null)
  check([member('id-a', 'a')], null, null)
  check([member('id-b', 'a')], 'id-b', null)
  check([member('id-b', 'a'), tokenOf('other', 'id-b', 'a')], 'other', null)
})

test('a join token issues one token for each node and digest while it has uses', () => {
  const check = (
    usesLeft: number | null,
    same: readonly [issuedBy: string | null, nodeId: string | null] | null,
    expected: string,
  ) => {
    const sameDigest = same && {issuedBy: same[0], nodeId: same[1]}
    const decision = decideIssue({accessor: 'join', usesLeft}, sameDigest, 'id-a')
    assert.equal(typeof decision === 'string' ? decision : decision.why, expected)
  }
  check(1, null, 'open')
  check(0, null, 'used_up')
  check(null, null, 'used_up')
  // A repetition gets its answer also after the last use.
  check(0, ['join', 'id-a'], 'issued')
  check(1, ['join', 'id-b'], 'not_new')
  check(1, ['another', 'id-a'], 'not_new')
  check(1, [null, null], 'not_new')
})
