/** Secrets over HTTP: set without ever being read, listed by name, deleted, and what policies allow. */
import assert from 'node:assert/strict'
import {randomBytes} from 'node:crypto'
import {test} from 'node:test'
import {SecretVault} from '../../src/platform/secret-vault.ts'
import {startApi} from './harness.ts'
import {startLockedApi} from './tokens.ts'

const VALUE = 'hunter2-hunter2'

test('no reply has the value of a secret, which is stored encrypted', async (t) => {
  const api = await startApi(t)
  const put = await api.call('PUT', '/v1/secrets/db.password', {body: {value: VALUE}})
  assert.equal(put.status, 200)
  assert.deepEqual(put.json, {
    name: 'db.password',
    set_at: new Date(api.clock.now()).toISOString(),
    set_by: 'local',
  })
  assert.deepEqual((await api.get('/v1/secrets')).json, [put.json])
  assert.equal((await api.get('/v1/secrets/db.password')).status, 405)
  const [sealed] = await api.store.sealedSecrets(['db.password'])
  assert.match(sealed!.ciphertext, /^v1\.[\w-]{50,}$/)
  const deleted = await api.delete('/v1/secrets/db.password')
  assert.deepEqual([deleted.status, deleted.json.name], [200, 'db.password'])
  assert.equal((await api.delete('/v1/secrets/db.password')).json.code, 'secret_unknown')
  assert.deepEqual((await api.get('/v1/secrets')).json, [])
})

test('a value that cannot be a secret is refused, without repeating it', async (t) => {
  const api = await startApi(t)
  const rows: readonly (readonly [body: unknown, detail: RegExp])[] = [
    [{value: 'abcde'}, /value: must have at least 6 characters/],
    [{value: '   abcde   '}, /value: must have at least 6 characters/],
    [{value: 'x'.repeat(8 * 1024 + 1)}, /value: must have at most 8192 bytes/],
    [{value: 'ö'.repeat(5_000)}, /value: must have at most 8192 bytes/],
    [{value: 'abc\u001bdefgh'}, /value: cannot contain control characters/],
    [{value: 12345678}, /value: is required/],
    [{}, /value: is required/],
    [['hunter2-hunter2'], /value: is required/],
    ['{"value": hunter2-hunter2}', /The body must be JSON/],
    ['hunter2-hunter2', /The body must be JSON/],
  ]
  for (const [body, detail] of rows) {
    const {status, json, text} = await api.call('PUT', '/v1/secrets/x', {body})
    assert.equal(status, 400)
    assert.match(json.detail, detail)
    assert.ok(!text.includes('hunter2') && !text.includes('abcde'), text)
  }
  for (const name of ['a%20b', 'a%2Fb', '%C3%BC', 'x'.repeat(129)]) {
    const put = await api.call('PUT', `/v1/secrets/${name}`, {body: {value: VALUE}})
    assert.equal(put.json.code, 'secret_invalid', name)
  }
  assert.deepEqual(await api.store.secrets(), [])
})

test('without a key, and with another one, setting a secret is refused with the fix', async (t) => {
  const api = await startApi(t, {dependencies: {vault: new SecretVault(null, null)}})
  const put = await api.call('PUT', '/v1/secrets/x', {body: {value: VALUE}})
  assert.deepEqual([put.status, put.json.code], [409, 'secret_key_unusable'])
  assert.match(put.json.detail, /\/dev\/urandom[^]*--secret-key-file/)
  const may = {create: true, update: true}
  const other = await new SecretVault(randomBytes(32), null).seal('y', VALUE)
  await api.store.putSecret({name: 'y', ...other!, may})
  const locked = await startApi(t, {
    wrapStore: (store) => ({...store, putSecret: async () => ({kind: 'other_key'})}),
  })
  const differs = await locked.call('PUT', '/v1/secrets/x', {body: {value: VALUE}})
  assert.match(differs.json.detail, /another key than that of this server/)
})

test('a token sets what it may create or update, and sees what it may use', async (t) => {
  const locked = await startLockedApi(t)
  const {admin} = locked
  const team = await locked.client('team', {
    path: {
      '/v1/secrets': {capabilities: ['list']},
      '/v1/secrets/team-*': {capabilities: ['create', 'read']},
      '/v1/secrets/shared': {capabilities: ['update']},
    },
  })
  const put = async (caller: typeof team, name: string) =>
    (await caller.call('PUT', `/v1/secrets/${name}`, {value: VALUE})).status
  assert.equal(await put(admin, 'shared'), 200)
  assert.equal(await put(admin, 'foreign'), 200)
  assert.deepEqual(
    [
      await put(team, 'team-db'),
      await put(team, 'team-db'), // it may not update it
      await put(team, 'shared'),
      await put(team, 'foreign'),
      await put(team, 'other'),
    ],
    [200, 403, 200, 403, 403],
  )
  const names = async (caller: typeof team) =>
    (await caller.call('GET', '/v1/secrets')).json.map(({name}: {name: string}) => name)
  assert.deepEqual(await names(team), ['team-db'])
  assert.deepEqual(await names(admin), ['foreign', 'shared', 'team-db'])
  assert.equal((await team.call('DELETE', '/v1/secrets/team-db')).status, 403)
  const {json} = await admin.call('GET', '/v1/secrets')
  assert.deepEqual(json.at(-1).set_by, 'team')
})
