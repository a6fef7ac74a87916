/** Secrets in the store: ciphertexts under one key, who may set which, and their number. */
import assert from 'node:assert/strict'
import {SECRETS_MAX} from '../../../src/core/secret.ts'
import type {NewSecret} from '../../../src/ports/secret-store.ts'
import {ALL_AUDIT} from './audit.ts'
import type {Case} from './case.ts'

export function aSecret(name: string, over: Partial<NewSecret> = {}): NewSecret {
  const may = {create: true, update: true}
  return {name, ciphertext: `of ${name}`, keyId: 'key-1', may, ...over}
}

const BOB = {name: 'bob', accessor: 'b', kind: 'management', address: '192.0.2.1'}

export function secretsCases(when: Case): void {
  when('secrets are listed without their ciphertext, which is read by name', async (scene) => {
    const {store} = scene
    const first = {name: 'b', setAt: scene.now, setBy: 'belfry'}
    const stored = await store.putSecret(aSecret('b'))
    assert.deepEqual(stored, {kind: 'stored', secret: first, created: true})
    await store.putSecret(aSecret('a'))
    const again = await store.putSecret(aSecret('b', {ciphertext: 'new'}), BOB)
    assert(again.kind === 'stored')
    assert.deepEqual([again.created, again.secret.setBy], [false, 'bob'])
    assert.deepEqual(
      (await store.secrets()).map(({name, setBy}) => `${name} by ${setBy}`),
      ['a by belfry', 'b by bob'],
    )
    assert.deepEqual(await store.sealedSecrets(['b', 'none', 'a']), [
      {name: 'b', ciphertext: 'new'},
      {name: 'a', ciphertext: 'of a'},
    ])
    assert.equal((await store.deleteSecret('b', BOB))?.setBy, 'bob')
    assert.equal(await store.deleteSecret('b'), null)
    assert.deepEqual(await store.sealedSecrets(['b']), [])
    const {rows} = await store.audit({...ALL_AUDIT, action: 'secret'})
    assert.deepEqual(
      rows.map(({actor, action, target, detail}) => `${actor.name} ${action} ${target} ${detail}`),
      [
        'bob secret.delete b ',
        'bob secret.set b replaced',
        'belfry secret.set a new',
        'belfry secret.set b new',
      ],
    )
  })

  when('who may only create cannot replace, and the other way round', async ({store}) => {
    const create = {may: {create: true, update: false}}
    const update = {may: {create: false, update: true}}
    const refused = (capability: 'create' | 'update') => ({kind: 'not_allowed', capability})
    assert.deepEqual(await store.putSecret(aSecret('a', update)), refused('create'))
    assert.equal((await store.putSecret(aSecret('a', create))).kind, 'stored')
    assert.deepEqual(await store.putSecret(aSecret('a', create)), refused('update'))
    assert.equal((await store.putSecret(aSecret('a', update))).kind, 'stored')
  })

  when('all stored secrets have one key; without secrets it may be replaced', async ({store}) => {
    const other = {keyId: 'key-2'}
    assert.equal(await store.checkSecretKey(null), 'ok')
    await store.putSecret(aSecret('a'))
    assert.equal(await store.checkSecretKey('key-1'), 'ok')
    assert.equal(await store.checkSecretKey('key-2'), 'other_key')
    assert.equal(await store.checkSecretKey(null), 'missing')
    assert.deepEqual(await store.putSecret(aSecret('b', other)), {kind: 'other_key'})
    await store.deleteSecret('a')
    assert.equal(await store.checkSecretKey('key-2'), 'ok')
    assert.equal((await store.putSecret(aSecret('b', other))).kind, 'stored')
    assert.equal(await store.checkSecretKey('key-1'), 'other_key')
  })

  when('secrets whose key was lost are discarded, and each is recorded', async ({store}) => {
    await store.putSecret(aSecret('b'))
    await store.putSecret(aSecret('a'))
    assert.deepEqual(await store.discardSecrets(), ['a', 'b'])
    assert.deepEqual([await store.secrets(), await store.discardSecrets()], [[], []])
    const {rows} = await store.audit({...ALL_AUDIT, action: 'secret.delete'})
    assert.deepEqual(
      rows.map(({target, detail}) => `${target}: ${detail}`),
      ['b: the key was lost', 'a: the key was lost'],
    )
  })

  when.withManyRows('the number of secrets is limited', async ({store}) => {
    const names = Array.from({length: SECRETS_MAX}, (_, index) => `s${index}`)
    await Promise.all(names.map((name) => store.putSecret(aSecret(name))))
    assert.deepEqual(await store.putSecret(aSecret('one more')), {kind: 'full'})
    assert.equal((await store.putSecret(aSecret('s0'))).kind, 'stored')
  })
}
