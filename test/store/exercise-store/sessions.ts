/** Sessions of browsers in the store: their expiry, their limits, and their end with their token. */
import assert from 'node:assert/strict'
import type {NewSession} from '../../../src/ports/token-store.ts'
import {SESSIONS_MAX, SESSIONS_OF_OWNER_MAX} from '../../../src/store/sql/access/sessions.ts'
import {ALL_AUDIT} from './audit.ts'
import type {Case} from './case.ts'
import {DAY, type Scene} from './scene.ts'

const MINUTE = 60_000
const ADMINS = {
  kind: 'other',
  name: 'configured abc',
  token: {name: '', kind: 'management', policies: []},
} as const

const ofToken = (accessor: string) => ({kind: 'token', accessor}) as const

function aSession(accessor: string, over: Partial<NewSession> = {}): NewSession {
  return {
    accessor,
    digest: `digest of ${accessor}`,
    owner: ADMINS,
    idleMs: 10 * MINUTE,
    maxMs: 60 * MINUTE,
    ...over,
  }
}

async function aToken({store}: Scene, accessor: string, expiresAt: number | null = null) {
  const policies = ['p']
  await store.createToken({
    accessor,
    digest: `digest of ${accessor}`,
    name: `name of ${accessor}`,
    kind: 'client',
    policies,
    expiresAt,
    isFirst: false,
  })
}

async function names({store}: Scene): Promise<string> {
  return (await store.sessions()).map(({accessor}) => accessor).join(' ')
}

export function sessionsCases(when: Case): void {
  when('a session has the rights of its token, and is not listed as a token', async (scene) => {
    const {store} = scene
    await aToken(scene, 'mine')
    const revision = await store.accessRevision()
    const session = await store.createSession(aSession('s', {owner: ofToken('mine')}))
    const record = {
      accessor: 's',
      name: 'name of mine',
      kind: 'client',
      policies: ['p'],
      createdAt: scene.now,
      expiresAt: scene.now + 10 * MINUTE,
      lastUsedAt: null,
      agent: null,
    }
    assert.deepEqual(session, record)
    assert.deepEqual(await store.createSession(aSession('s')), record, 'repeated')
    assert.deepEqual(await store.sessions(), [record])
    assert.deepEqual(await store.token('s'), record)
    assert.deepEqual(
      (await store.tokens()).map(({accessor}) => accessor),
      ['mine'],
    )
    assert.ok((await store.accessRevision()) > revision)
    const {tokens} = await store.access()
    assert.deepEqual(
      tokens.find(({accessor}) => accessor === 's'),
      {
        ...record,
        digest: 'digest of s',
        session: {owner: 'mine', idleMs: 10 * MINUTE, endsAt: scene.now + 60 * MINUTE},
      },
    )
    assert.equal(tokens.find(({accessor}) => accessor === 'mine')!.session, null)
  })

  when('a session does not outlive its token, and none opens another one', async (scene) => {
    const {store} = scene
    await aToken(scene, 'short', scene.now + 5 * MINUTE)
    const session = await store.createSession(aSession('s', {owner: ofToken('short')}))
    assert.equal(session?.expiresAt, scene.now + 5 * MINUTE)
    for (const accessor of ['s', 'unknown'])
      assert.equal(await store.createSession(aSession('t', {owner: ofToken(accessor)})), null)
    scene.advance(5 * MINUTE)
    assert.equal(await store.createSession(aSession('t', {owner: ofToken('short')})), null)
  })

  when(
    'a use moves the expiry of a session to its end at most, of a token never',
    async (scene) => {
      const {store} = scene
      const start = scene.now
      await aToken(scene, 'mine', start + DAY)
      await store.createSession(aSession('s'))
      const expiry = async () => ((await store.token('s'))!.expiresAt! - start) / MINUTE
      assert.equal(await expiry(), 10)
      for (const expected of [19, 28, 37, 46, 55, 60]) {
        scene.advance(9 * MINUTE)
        await store.recordTokenUse([
          {accessor: 'mine', agoMs: 0},
          {accessor: 's', agoMs: 0},
        ])
        assert.equal(await expiry(), expected)
      }
      assert.equal((await store.token('mine'))!.expiresAt, start + DAY)
      scene.advance(6 * MINUTE)
      assert.equal(await names(scene), '')
    },
  )

  when(
    'a use that is recorded late counts from its time, and never before a later one',
    async (scene) => {
      const {store} = scene
      await aToken(scene, 'mine')
      await store.createSession(aSession('s'))
      const start = scene.now
      const expiry = async () => ((await store.token('s'))!.expiresAt! - start) / MINUTE
      scene.advance(5 * MINUTE)
      await store.recordTokenUse([{accessor: 's', agoMs: MINUTE}])
      assert.equal(await expiry(), 14)
      assert.equal((await store.token('s'))!.lastUsedAt, start + 4 * MINUTE)
      await store.recordTokenUse([{accessor: 's', agoMs: 3 * MINUTE}])
      assert.equal(await expiry(), 14)
    },
  )

  when('the sessions of a token end with it, those of others stay', async (scene) => {
    const {store} = scene
    await aToken(scene, 'mine')
    await aToken(scene, 'other')
    await store.createSession(aSession('a', {owner: ofToken('mine')}))
    await store.createSession(aSession('b', {owner: ofToken('mine')}))
    await store.createSession(aSession('c', {owner: ofToken('other')}))
    await store.createSession(aSession('d'))
    await store.deleteToken('b')
    assert.equal(await names(scene), 'a c d')
    await store.deleteToken('mine')
    assert.equal(await names(scene), 'c d')
  })

  when('a sign-in and the end of a session are recorded', async (scene) => {
    const {store} = scene
    await aToken(scene, 'mine')
    const actor = {name: 'ann', accessor: 'mine', kind: 'client', address: '10.0.0.7'}
    await store.createSession(aSession('a', {owner: ofToken('mine')}), actor)
    await store.createSession(aSession('b'), actor)
    await store.deleteToken('a', actor)
    await store.deleteToken('b', actor)
    const {rows} = await store.audit({...ALL_AUDIT, action: 'session'})
    const lines = rows.map(
      (row) => `${row.actor.name} ${row.action} ${row.targetType} ${row.target}: ${row.detail}`,
    )
    assert.deepEqual(lines.toReversed(), [
      'ann session.open session name of mine: accessor a, client',
      'ann session.open session configured: accessor b, management',
      'ann session.end session name of mine: accessor a, client',
      'ann session.end session configured: accessor b, management',
    ])
  })

  when('a session of a management token does not count as the first one', async (scene) => {
    const {store} = scene
    await store.createSession(aSession('s'))
    const first = {accessor: 'a', digest: 'd', name: 'n', policies: [], expiresAt: null}
    const created = await store.createToken({...first, kind: 'management', isFirst: true})
    assert.equal(created.kind, 'created')
  })

  when.withManyRows('of many sessions the least recently used end', async (scene) => {
    const {store} = scene
    await aToken(scene, 'mine')
    await store.createSession(aSession('other'))
    const owner = ofToken('mine')
    for (let at = 0; at < SESSIONS_OF_OWNER_MAX; at += 1) {
      await store.createSession(aSession(`s-${at}`, {owner}))
      scene.advance(1)
    }
    await store.recordTokenUse([{accessor: 's-0', agoMs: 0}])
    await store.createSession(aSession('last', {owner}))
    const left = await names(scene)
    assert.equal(left.split(' ').length, SESSIONS_OF_OWNER_MAX + 1)
    assert.match(left, /^other s-0 s-2 .* last$/)
    assert.ok(SESSIONS_OF_OWNER_MAX * 2 < SESSIONS_MAX, 'one token cannot end those of others')
  })
}
