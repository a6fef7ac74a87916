/** Execution ids: a round trip for every node name, also with dashes; any other text is rejected. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import fc from 'fast-check'
import {executionId, lostLine, parseExecutionId} from '../../src/core/execution.ts'

describe('an execution id', () => {
  it('survives a round trip for every group, node name and attempt', () => {
    const letters = 'abzABZ0129._-'.split('')
    const node = fc
      .array(fc.constantFrom(...letters), {minLength: 1, maxLength: 63})
      .map((name) => name.join(''))
    const group = fc.integer({min: 1, max: 9_007_199_254_740_991})
    const attempt = fc.integer({min: 1, max: 101})
    fc.assert(
      fc.property(group, node, attempt, (group, node, attempt) => {
        assert.deepEqual(parseExecutionId(executionId({group, node, attempt})), {
          group,
          node,
          attempt,
        })
      }),
    )
  })

  const read: readonly [text: string, key: object | null][] = [
    ['12-web.1-a-1', {group: 12, node: 'web.1-a', attempt: 1}],
    ['1-2-3-4', {group: 1, node: '2-3', attempt: 4}],
    ['9007199254740991-a-1', {group: 9_007_199_254_740_991, node: 'a', attempt: 1}],
    ['9007199254740993-a-1', null],
    ['99999999999999999-a-1', null],
    ['0-a-1', null],
    ['01-a-1', null],
    ['1-a-0', null],
    ['1-a-01', null],
    ['1--1', null],
    ['1-a', null],
    ['-1-a-1', null],
    ['1-a b-1', null],
    ['1-ä-1', null],
    [' 1-a-1', null],
    ['1-a-1\n', null],
    [`1-${'a'.repeat(64)}-1`, null],
    ['', null],
  ]
  for (const [text, key] of read) {
    it(`${JSON.stringify(text.slice(0, 30))} → ${key === null ? 'rejected' : JSON.stringify(key)}`, () => {
      assert.deepEqual(parseExecutionId(text), key)
    })
  }
})

it('the output of a lost execution gives the cause in one line', () => {
  for (const reason of ['node_stopped', 'node_restarted', 'node_lost'])
    assert.match(lostLine(reason), /^lost: the node [a-z ,]+\n$/)
  assert.match(lostLine('no_target'), /^lost: it never started; [a-z ,]+\n$/)
  assert.equal(lostLine('else'), 'lost: else\n')
})
