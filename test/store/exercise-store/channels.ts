/** Channels of notices in the store: revisions, authors, their own secrets, outcomes, and their number. */
import assert from 'node:assert/strict'
import {CHANNELS_MAX, type ChannelDefinition} from '../../../src/core/notice-channel.ts'
import type {NewChannel} from '../../../src/ports/notice-store.ts'
import {TermOver} from '../../../src/ports/store-errors.ts'
import {ALL_AUDIT} from './audit.ts'
import type {Case} from './case.ts'
import {aSecret} from './secrets.ts'
import type {Scene} from './scene.ts'

const AUTHOR = {name: 'ann', kind: 'client', policies: ['team-a']} as const
const BOB = {name: 'bob', accessor: 'b', kind: 'management', address: '192.0.2.1'}

function aChannel(name: string, over: Partial<ChannelDefinition> = {}): NewChannel {
  const channel = {name, kind: 'webhook', config: {url: 'https://example.org'}, enabled: true}
  return {channel: {...channel, ...over}, author: AUTHOR, secret: null}
}

/** A channel that names its own secret. */
function withSecret(name: string, ciphertext: string, keyId = 'key-1'): NewChannel {
  const config = {url: `\${secret:notice-${name}}`}
  const {may: _may, ...secret} = aSecret(`notice-${name}`, {ciphertext, keyId})
  return {...aChannel(name, {kind: 'slack', config}), secret}
}

async function auditOf({store}: Scene): Promise<readonly string[]> {
  const {rows} = await store.audit(ALL_AUDIT)
  return rows.map(({actor, action, target, detail}) =>
    `${actor.name} ${action} ${target} ${detail}`.trim(),
  )
}

export function channelsCases(when: Case): void {
  when('pings are recorded by the leader alone, with their channels', async (scene) => {
    const {store, term} = scene
    await store.putChannel(aChannel('a'), BOB)
    await store.recordPings({term, uses: [{name: 'a', error: 'no answer'}]})
    const failing = await store.channel('a')
    assert.deepEqual([failing!.failingSince, failing!.lastError], [scene.now, 'no answer'])
    const uses = [{name: 'a', error: null}]
    await assert.rejects(store.recordPings({term: term - 1, uses}), TermOver)
    await assert.rejects(store.recordPings({term: term - 1, uses: []}), TermOver)
    assert.deepEqual(await store.channel('a'), failing)
    await store.recordPings({term, uses})
    const works = await store.channel('a')
    assert.deepEqual([works!.lastOkAt, works!.lastError], [scene.now, ''])
  })

  when(
    'a channel is stored with its author, and replaced with the next revision',
    async (scene) => {
      const {store} = scene
      assert.equal(await store.channel('mail'), null)
      const stored = await store.putChannel(aChannel('mail'), BOB)
      assert.deepEqual(stored, {
        kind: 'stored',
        channel: {
          ...aChannel('mail').channel,
          revision: 1,
          author: AUTHOR,
          updatedAt: scene.now,
          lastOkAt: null,
          failingSince: null,
          lastError: '',
        },
      })
      await store.putChannel(aChannel('a'), BOB)
      const again = await store.putChannel(aChannel('mail', {kind: 'ntfy', enabled: false}), BOB)
      assert(again.kind === 'stored')
      assert.deepEqual(
        [again.channel.revision, again.channel.kind, again.channel.enabled],
        [2, 'ntfy', false],
      )
      assert.deepEqual(await store.channel('mail'), again.channel)
      assert.deepEqual(
        (await store.channels()).map(({name}) => name),
        ['a', 'mail'],
      )
      assert.deepEqual(await store.deleteChannel('mail', BOB), {
        kind: 'deleted',
        channel: again.channel,
      })
      assert.deepEqual(await store.deleteChannel('mail', BOB), {kind: 'unknown'})
      assert.deepEqual(await auditOf(scene), [
        'bob channel.delete mail',
        'bob channel.set mail replaced: ntfy',
        'bob channel.set a new: webhook',
        'bob channel.set mail new: webhook',
      ])
    },
  )

  when('the secret of a channel is stored and deleted with it', async (scene) => {
    const {store} = scene
    const names = async () => (await store.secrets()).map(({name}) => name)
    await store.putSecret(aSecret('other'))
    await store.putChannel(withSecret('chat', 'first'), BOB)
    await store.putChannel(withSecret('chat', 'second'), BOB)
    assert.deepEqual(await store.sealedSecrets(['notice-chat']), [
      {name: 'notice-chat', ciphertext: 'second'},
    ])
    assert.deepEqual(await names(), ['notice-chat', 'other'])
    await store.putChannel(aChannel('chat'), BOB)
    assert.deepEqual(await names(), ['other'], 'the channel does not name it any more')
    await store.putChannel(withSecret('chat', 'third'), BOB)
    await store.deleteChannel('chat', BOB)
    assert.deepEqual(await names(), ['other'])
    assert.deepEqual((await auditOf(scene)).slice(0, 2), [
      'bob channel.delete chat',
      'bob secret.delete notice-chat',
    ])
  })

  when('a channel whose secret cannot be stored is not stored either', async ({store}) => {
    await store.putSecret(aSecret('a', {keyId: 'key-1'}))
    const refused = await store.putChannel(withSecret('chat', 'value', 'key-2'))
    assert.deepEqual(refused, {kind: 'secret', refusal: {kind: 'other_key'}})
    assert.deepEqual(await store.channels(), [])
  })

  when('a channel shows since when it fails, until it delivers or is replaced', async (scene) => {
    const {store} = scene
    const state = async () => {
      const {lastOkAt, failingSince, lastError} = (await store.channel('a'))!
      return [lastOkAt, failingSince, lastError]
    }
    await store.putChannel(aChannel('a'))
    const began = scene.now
    await store.recordChannelTest({name: 'a', error: '503: the receiver failed'}, BOB)
    scene.advance(1_000)
    await store.recordChannelTest({name: 'a', error: 'no connection'}, BOB)
    assert.deepEqual(await state(), [null, began, 'no connection'])
    await store.recordChannelTest({name: 'a', error: null}, BOB)
    assert.deepEqual(await state(), [scene.now, null, ''])
    await store.recordChannelTest({name: 'a', error: 'no connection'}, BOB)
    await store.putChannel(aChannel('a'))
    assert.deepEqual(await state(), [scene.now, null, ''])
    assert.deepEqual((await auditOf(scene)).slice(1, 3), [
      'bob channel.test a no connection',
      'bob channel.test a delivered',
    ])
  })

  when('channels are limited in number', async ({store}) => {
    for (let index = 0; index < CHANNELS_MAX; index += 1)
      await store.putChannel(aChannel(`c${index}`))
    assert.deepEqual(await store.putChannel(withSecret('more', 'value')), {kind: 'full'})
    assert.deepEqual(await store.secrets(), [])
    assert.equal((await store.putChannel(aChannel('c1'))).kind, 'stored')
  })
}
