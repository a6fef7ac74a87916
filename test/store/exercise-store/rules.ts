/** Rules of notices and mutes in the store: revisions, authors, channels in use, and their numbers. */
import assert from 'node:assert/strict'
import {MUTE_MAX_MS, MUTES_MAX} from '../../../src/core/notice-mute.ts'
import {RULE_DEFAULTS, type RuleDefinition, RULES_MAX} from '../../../src/core/notice-rule.ts'
import type {MuteRequest, NewRule} from '../../../src/ports/notice-store.ts'
import {ALL_AUDIT} from './audit.ts'
import type {Case} from './case.ts'
import {HOUR, type Scene} from './scene.ts'

const AUTHOR = {name: 'ann', kind: 'client', policies: ['team-a']} as const
const BOB = {name: 'bob', accessor: 'b', kind: 'management', address: '192.0.2.1'}

export function aRule(name: string, over: Partial<RuleDefinition> = {}): NewRule {
  const definition = {...RULE_DEFAULTS, name, to: ['mail'], when: {failed: {}}, ...over}
  return {definition, author: AUTHOR}
}

async function withChannel({store}: Scene, name = 'mail'): Promise<void> {
  const channel = {name, kind: 'webhook', config: {}, enabled: true}
  await store.putChannel({channel, author: AUTHOR, secret: null}, BOB)
}

const muteFor = (afterMs: number, over: Partial<MuteRequest> = {}): MuteRequest => {
  return {rule: '', jobs: '*', reason: '', until: {afterMs}, ...over}
}

export function rulesCases(when: Case): void {
  when(
    'a rule is stored with its author, replaced with the next revision, deleted',
    async (scene) => {
      const {store} = scene
      await withChannel(scene)
      const stored = await store.putRule(aRule('all'), BOB)
      assert.deepEqual(stored, {
        kind: 'stored',
        rule: {...aRule('all'), revision: 1, updatedAt: scene.now},
      })
      await store.putRule(aRule('a'), BOB)
      const again = await store.putRule(aRule('all', {jobs: 'etl-*'}), BOB)
      assert(again.kind === 'stored')
      assert.deepEqual([again.rule.revision, again.rule.definition.jobs], [2, 'etl-*'])
      assert.deepEqual(await store.rule('all'), again.rule)
      assert.deepEqual(
        (await store.rules()).map(({definition: {name}}) => name),
        ['a', 'all'],
      )
      assert.deepEqual(await store.deleteRule('all', BOB), again.rule)
      assert.equal(await store.deleteRule('all', BOB), null)
      const {rows} = await store.audit({...ALL_AUDIT, action: 'rule'})
      assert.deepEqual(
        rows.map(
          ({actor, action, target, detail}) => `${actor.name} ${action} ${target} ${detail}`,
        ),
        [
          'bob rule.delete all ',
          'bob rule.set all replaced',
          'bob rule.set a new',
          'bob rule.set all new',
        ],
      )
    },
  )

  when('a rule names channels that exist, and keeps them from being deleted', async (scene) => {
    const {store} = scene
    await withChannel(scene)
    const unknown = await store.putRule(aRule('all', {to: ['chat', 'mail', 'page']}))
    assert.deepEqual(unknown, {kind: 'channel_unknown', names: ['chat', 'page']})
    assert.deepEqual(await store.rules(), [])
    await store.putRule(aRule('b'))
    await store.putRule(aRule('a'))
    assert.deepEqual(await store.deleteChannel('mail'), {kind: 'in_use', rules: ['a', 'b']})
    await store.deleteRule('a')
    await store.deleteRule('b')
    assert.equal((await store.deleteChannel('mail')).kind, 'deleted')
  })

  when.withManyRows('rules are limited in number', async (scene) => {
    const {store} = scene
    await withChannel(scene)
    for (let index = 0; index < RULES_MAX; index += 1) await store.putRule(aRule(`r${index}`))
    assert.deepEqual(await store.putRule(aRule('more')), {kind: 'full'})
    assert.equal((await store.putRule(aRule('r1'))).kind, 'stored')
  })

  when('a mute ends at its time or by a request, and is listed until then', async (scene) => {
    const {store} = scene
    const muted = await store.muteNotices(muteFor(HOUR, {jobs: 'etl-*', reason: 'move'}), BOB)
    assert(muted.kind === 'muted')
    const {id} = muted.mute
    assert.deepEqual(muted.mute, {
      id,
      rule: '',
      jobs: 'etl-*',
      reason: 'move',
      mutedAt: scene.now,
      mutedBy: 'bob',
      until: scene.now + HOUR,
    })
    const other = await store.muteNotices(muteFor(0, {until: {at: scene.now + 2 * HOUR}}))
    assert(other.kind === 'muted')
    assert.deepEqual(await store.mutes(), [muted.mute, other.mute])
    scene.advance(HOUR)
    assert.deepEqual(await store.mutes(), [other.mute])
    assert.equal(await store.endMute(id), null)
    assert.deepEqual(await store.endMute(other.mute.id, BOB), {...other.mute, until: scene.now})
    assert.deepEqual(await store.mutes(), [])
    const {rows} = await store.audit({...ALL_AUDIT, action: 'mute'})
    assert.deepEqual(
      rows.map(({actor, action, target}) => `${actor.name} ${action} ${target}`),
      [`bob mute.end ${other.mute.id}`, `belfry mute.set ${other.mute.id}`, `bob mute.set ${id}`],
    )
  })

  when('mutes are bounded in time and number', async (scene) => {
    const {store} = scene
    const outOfRange = {kind: 'out_of_range', now: scene.now}
    assert.deepEqual(await store.muteNotices(muteFor(0)), outOfRange)
    assert.deepEqual(await store.muteNotices(muteFor(MUTE_MAX_MS + 1)), outOfRange)
    for (let index = 0; index < MUTES_MAX; index += 1) await store.muteNotices(muteFor(HOUR))
    assert.deepEqual(await store.muteNotices(muteFor(HOUR)), {kind: 'full'})
    scene.advance(HOUR)
    assert.equal((await store.muteNotices(muteFor(MUTE_MAX_MS))).kind, 'muted')
  })
}
