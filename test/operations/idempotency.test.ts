/** What makes two requests the same one. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {DomainError} from '../../src/core/errors.ts'
import {Idempotent} from '../../src/operations/submit.ts'
import type {Idempotency} from '../../src/ports/job-store.ts'

const CALLER = {id: 'one', name: ''}

const identity = (parts: readonly (string | Uint8Array)[], caller = CALLER, what = 'submit') =>
  new Idempotent().run(caller, 'key', what, parts, async (given) => given as Idempotency)

test('without a key a request has no identity', async () => {
  const given = await new Idempotent().run(CALLER, null, 'submit', ['x'], async (it) => it)
  assert.equal(given, null)
})

test('the same parts are the same request, and parts do not run into each other', async () => {
  const first = await identity(['a', 'bc'])
  assert.deepEqual(await identity(['a', 'bc']), first)
  assert.deepEqual(await identity(['a', new TextEncoder().encode('bc')]), first)
  for (const parts of [['ab', 'c'], ['abc'], ['a', 'bc', ''], ['a', 'bd']])
    assert.notEqual((await identity(parts)).fingerprint, first.fingerprint, parts.join('|'))
})

test('another caller or another kind of request has its own keys', async () => {
  const {scope} = await identity(['a'])
  assert.notEqual((await identity(['a'], {id: 'two', name: ''})).scope, scope)
  assert.notEqual((await identity(['a'], CALLER, 'run')).scope, scope)
})

test('while one is at work its key is taken, and free again however it ends', async () => {
  const idempotent = new Idempotent()
  const held = Promise.withResolvers<void>()
  const first = idempotent.run(CALLER, 'k', 'submit', [], () => held.promise)
  const again = () => idempotent.run(CALLER, 'k', 'submit', [], async () => 'done')
  await assert.rejects(
    again(),
    (error) => (error as DomainError).code === 'idempotency_in_progress',
  )
  assert.equal(await idempotent.run(CALLER, 'other', 'submit', [], async () => 'done'), 'done')
  held.reject(new Error('failed'))
  await assert.rejects(first)
  assert.equal(await again(), 'done')
})

test('a key has a sensible length', async () => {
  for (const key of ['', 'x'.repeat(256)]) {
    const run = new Idempotent().run(CALLER, key, 'submit', [], async () => 'done')
    await assert.rejects(run, (error) => (error as DomainError).code === 'request_malformed')
  }
})
