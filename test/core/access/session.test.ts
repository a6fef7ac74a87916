/** Sessions: their end by age, by idle time and by the token that opened them. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {sessionEnd, sessionExpiry} from '../../../src/core/access/session.ts'

test('a session ends by its greatest age, and before that with its token', () => {
  assert.equal(sessionEnd(1_000, 500, null), 1_500)
  assert.equal(sessionEnd(1_000, 500, 1_400), 1_400)
  assert.equal(sessionEnd(1_000, 500, 1_600), 1_500)
})

test('a use keeps a session for its idle time, never beyond its end', () => {
  assert.equal(sessionExpiry(1_000, {idleMs: 100, endsAt: 1_500}), 1_100)
  assert.equal(sessionExpiry(1_450, {idleMs: 100, endsAt: 1_500}), 1_500)
})
