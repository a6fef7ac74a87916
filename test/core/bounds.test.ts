/** The bound of tables whose rows people create, and what a first token needs. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {refuseToken, TOKENS_MAX} from '../../src/core/access/authorization.ts'
import {isFull} from '../../src/core/bounds.ts'

test('a full table takes no new row, and a stored row is still replaced', () => {
  assert.equal(isFull(9, 10), false)
  assert.equal(isFull(10, 10), true)
  assert.equal(isFull(10, 10, true), true)
  assert.equal(isFull(11, 10, false), false)
})

test('a first token is refused once a management token is in force', () => {
  assert.equal(refuseToken(true, {total: 1, managing: 1}), 'not_first')
  assert.equal(refuseToken(true, {total: TOKENS_MAX, managing: 1}), 'not_first')
  assert.equal(refuseToken(true, {total: 1, managing: 0}), null)
  assert.equal(refuseToken(false, {total: 1, managing: 1}), null)
  assert.equal(refuseToken(true, {total: TOKENS_MAX, managing: 0}), 'full')
  assert.equal(refuseToken(false, {total: TOKENS_MAX - 1, managing: 0}), null)
})
