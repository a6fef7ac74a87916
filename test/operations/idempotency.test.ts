/** Idempotency keys: the identity of a request, and one request in progress per key. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {DomainError} from '../../src/core/errors.ts'
import {readIdempotency} from '../../src/http/api/request.ts'
import {IdempotencyGuard} from '../../src/operations/submit.ts'
import type {Idempotency} from '../../src/ports/job-store.ts'

const keyOf = (key: string, parts: readonly (string | Uint8Array)[] = []) =>
  readIdempotency({'idempotency-key': key}, parts)
const identityOf = (parts: readonly (string | Uint8Array)[], operation = 'submit', accessor = '') =>
  new IdempotencyGuard().run(
    accessor,
    keyOf('key', parts),
    operation,
    async (identity) => identity as Idempotency,
  )

test('without a key a request has no identity', async () => {
  const identity = await new IdempotencyGuard().run('', null, 'submit', async (it) => it)
  assert.equal(identity, null)
})

test('equal parts have equal fingerprints, and part borders count', async () => {
  const first = await identityOf(['a', 'bc'])
  assert.deepEqual(await identityOf(['a', 'bc']), first)
  assert.deepEqual(await identityOf(['a', new TextEncoder().encode('bc')]), first)
  for (const parts of [['ab', 'c'], ['abc'], ['a', 'bc', ''], ['a', 'bd']])
    assert.notEqual((await identityOf(parts)).fingerprint, first.fingerprint, parts.join('|'))
})

test('each operation has its own keys, in a stable stored scope', async () => {
  const {scope} = await identityOf(['a'])
  // Servers of an earlier release have stored keys under this scope.
  assert.equal(scope, 'server:submit')
  assert.equal((await identityOf(['a'], 'run')).scope, 'server:run')
  assert.equal((await identityOf(['a'], 'run', 'id-of-token')).scope, 'id-of-token:run')
})

test('a key in progress is rejected, and free again after success or failure', async () => {
  const guard = new IdempotencyGuard()
  const held = Promise.withResolvers<void>()
  const first = guard.run('', keyOf('k'), 'submit', () => held.promise)
  const again = () => guard.run('', keyOf('k'), 'submit', async () => 'done')
  await assert.rejects(
    again(),
    (error) => (error as DomainError).code === 'idempotency_in_progress',
  )
  assert.equal(await guard.run('', keyOf('other'), 'submit', async () => 'done'), 'done')
  held.reject(new Error('failed'))
  await assert.rejects(first)
  assert.equal(await again(), 'done')
})

test('an idempotency key must have 1 to 255 characters', async () => {
  for (const key of ['', 'x'.repeat(256)]) {
    const run = new IdempotencyGuard().run('', keyOf(key), 'submit', async () => 'done')
    await assert.rejects(run, (error) => (error as DomainError).code === 'request_malformed')
  }
})
