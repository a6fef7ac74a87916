/** Tokens and policies in the store, and what they decide there: storing a job, and the rows of lists. */
import assert from 'node:assert/strict'
import {BELFRY} from '../../../src/core/audit.ts'
import type {NameFilter} from '../../../src/core/access/authorization.ts'
import type {NewToken} from '../../../src/ports/token-store.ts'
import type {Case} from './case.ts'
import {ALL_JOBS, ALL_ROWS, aSpec, DAY, type Scene} from './scene.ts'

function aToken(accessor: string, over: Partial<NewToken> = {}): NewToken {
  return {
    accessor,
    digest: `digest of ${accessor}`,
    name: accessor,
    kind: 'client',
    policies: ['p', 'q'],
    expiresAt: null,
    isFirst: false,
    ...over,
  }
}

const ADMIN = {kind: 'management', policies: []} as const

async function listed(scene: Scene, names: NameFilter): Promise<string> {
  const {total, rows} = await scene.store.jobs({...ALL_JOBS, names})
  return `${total}: ${rows.map(({spec}) => spec.name).join(' ')}`
}

export function tokensCases(when: Case): void {
  when('tokens are stored with the digest of their secret, and read without it', async (scene) => {
    const {store} = scene
    assert.equal((await store.access()).hasHadTokens, false)
    const created = await store.createToken(aToken('b', {expiresAt: scene.now + DAY}))
    assert(created.kind === 'created')
    const record = {
      accessor: 'b',
      name: 'b',
      kind: 'client',
      policies: ['p', 'q'],
      createdAt: scene.now,
      expiresAt: scene.now + DAY,
      lastUsedAt: null,
      agent: null,
    }
    assert.deepEqual(created.token, record)
    assert.deepEqual(await store.token('b'), record)
    await store.createToken(aToken('a'))
    assert.deepEqual(
      (await store.tokens()).map(({name}) => name),
      ['a', 'b'],
    )
    const {tokens, now} = await store.access()
    assert.deepEqual(
      tokens.find(({accessor}) => accessor === 'b'),
      {
        ...record,
        digest: 'digest of b',
        session: null,
      },
    )
    assert.equal(now, scene.now)
    assert.deepEqual(await store.deleteToken('b'), record)
    assert.equal(await store.deleteToken('b'), null)
    assert.equal(await store.token('b'), null)
    await store.deleteToken('a')
    const left = await store.access()
    assert.deepEqual([left.tokens, left.hasHadTokens], [[], true])
  })

  when('every change of a token or a policy has a new revision, a use has not', async (scene) => {
    const {store} = scene
    const revisions = [await store.accessRevision()]
    const changes = [
      () => store.createToken(aToken('a')),
      () => store.putPolicy({name: 'p', rules: '1'}),
      () => store.putPolicy({name: 'p', rules: '2'}),
      () => store.deletePolicy('p'),
      () => store.deleteToken('a'),
    ]
    for (const change of changes) {
      await change()
      revisions.push(await store.accessRevision())
    }
    assert.deepEqual(
      revisions.map((revision) => revision - revisions[0]!),
      [0, 1, 2, 3, 4, 5],
    )
    await store.createToken(aToken('b'))
    const {revision} = await store.access()
    scene.advance(5_000)
    await store.recordTokenUse([
      {accessor: 'b', agoMs: 0},
      {accessor: 'unknown', agoMs: 0},
    ])
    assert.equal((await store.token('b'))!.lastUsedAt, scene.now)
    assert.equal(await store.accessRevision(), revision)
  })

  when('there is one first management token, also for simultaneous requests', async (scene) => {
    const {store} = scene
    await store.createToken(aToken('client'))
    const first = (accessor: string) =>
      store.createToken(aToken(accessor, {...ADMIN, isFirst: true}))
    const results = await Promise.all(['a', 'b', 'c'].map(first))
    const kinds = results.map(({kind}) => kind).toSorted()
    assert.deepEqual(kinds, ['created', 'not_first', 'not_first'])
    assert.equal((await store.tokens()).length, 2)
  })

  when('an expired management token does not count as the first', async (scene) => {
    const {store} = scene
    await store.createToken(aToken('old', {...ADMIN, expiresAt: scene.now + DAY}))
    const first = aToken('new', {...ADMIN, isFirst: true})
    assert.equal((await store.createToken(first)).kind, 'not_first')
    scene.advance(DAY)
    assert.equal((await store.createToken(first)).kind, 'created')
    assert.equal((await store.createToken(first)).kind, 'created', 'repeated after a lost reply')
    scene.advance(30 * DAY + 1)
    await store.createToken(aToken('later'))
    assert.equal(await store.token('old'), null)
    assert.notEqual(await store.token('new'), null)
  })

  when('a token for agents binds to the first node that joins with it', async (scene) => {
    const {store} = scene
    const limits = {names: ['p*'], tags: [['room', ['printing']]], slots: 2} as const
    await store.createToken(aToken('a', {kind: 'agent', policies: [], limits}))
    const agent = async () => (await store.token('a'))!.agent
    assert.deepEqual(await agent(), {limits, node: null, usesLeft: null})
    const join = (id: string, name: string, accessor = 'a') =>
      scene.join(id, 'life', name, {accessor, actor: BELFRY, mayReplace: false})
    const revision = await store.accessRevision()
    assert.deepEqual(await join('p-id', 'p1'), {kind: 'joined'})
    assert.deepEqual((await agent())!.node, {id: 'p-id', name: 'p1'})
    assert.equal(await store.accessRevision(), revision + 1)
    assert.deepEqual(await join('p-id', 'p1'), {kind: 'joined'}, 'joins again')
    assert.equal(await store.accessRevision(), revision + 1)
    const other = {why: 'other_node', node: {id: 'p-id', name: 'p1'}}
    assert.deepEqual(await join('q-id', 'p2'), {kind: 'token', refusal: other})
    assert.deepEqual(await join('p-id', 'p2'), {kind: 'token', refusal: other})
    const revoked = {kind: 'token', refusal: {why: 'revoked'}}
    assert.deepEqual(await join('q-id', 'p2', 'unknown'), revoked)
    const names = (await store.members()).map(({name}) => name)
    assert.ok(!names.includes('p2'), 'a refused node is no member')
    await store.createToken(aToken('c'))
    assert.deepEqual(await join('q-id', 'p2', 'c'), revoked, 'a token of another type')
  })

  when('a token for agents takes no identity and no name that another has', async (scene) => {
    const {store} = scene
    const agents = {kind: 'agent', policies: []} as const
    for (const [accessor, name] of [
      ['a', 'a'],
      ['b', 'b'],
      ['b2', 'b'],
      ['r', 'r'],
    ] as const)
      await store.createToken(aToken(accessor, {...agents, name}))
    const bind = async (accessor: string, id: string, name: string, mayReplace = false) => {
      const use = {accessor, actor: BELFRY, node: {id, name}, mayReplace}
      const [before, refusal] = [await store.tokenRefusal(use), await store.bindToken(use)]
      assert.deepEqual(before, refusal)
      return refusal
    }
    await scene.join('silent-id', 'life', 'silent')
    assert.equal(await bind('b', 'b-id', 'b1'), null)
    scene.advance(DAY)
    const taken = {why: 'other_token', token: 'b'}
    assert.deepEqual(await bind('a', 'b-id', 'b1'), taken)
    assert.deepEqual(await bind('a', 'b-id', 'mine'), taken)
    assert.deepEqual(await bind('a', 'mine', 'b1'), taken)
    assert.deepEqual(await bind('a', 'mine', 'silent'), {why: 'held', by: 'silent-id'})
    assert.equal(await bind('b2', 'b-id', 'b1'), null, 'a second token of the same name')
    assert.equal(await bind('r', 'r-id', 'silent', true), null, 'a token made for this name')
    assert.equal(await bind('a', 'silent-id', 'silent2'), null, 'an identity without a token')
    const node = {id: 'silent-id', name: 'silent2'}
    assert.deepEqual(await bind('a', 'mine', 'mine'), {why: 'other_node', node})
  })

  when('a join token gives each agent its own token, as often as it may', async (scene) => {
    const {store} = scene
    const limits = {names: ['p*'], tags: null, slots: 2} as const
    await store.createToken(aToken('fleet', {kind: 'join', policies: [], limits, uses: 2}))
    const issue = (id: string, name: string, digest = `digest of ${id}`, accessor = 'fleet') => {
      const issued = {accessor: `${id} ${scene.now} ${digest}`, digest}
      const use = {accessor, actor: BELFRY, node: {id, name}, mayReplace: false}
      return store.issueToken({...use, issued})
    }
    const usesLeft = async () => (await store.token('fleet'))!.agent!.usesLeft
    assert.equal(await issue('p-id', 'p1'), null)
    scene.advance(DAY)
    assert.equal(await issue('p-id', 'p1'), null, 'repeated after a crash of the agent')
    assert.equal(await usesLeft(), 1)
    const [own] = (await store.tokens()).filter(({name}) => name === 'fleet p1')
    assert.deepEqual(
      [own!.kind, own!.agent],
      ['agent', {limits, node: {id: 'p-id', name: 'p1'}, usesLeft: null}],
    )
    // Another holder of the join token gets neither its identity nor its name.
    const taken = {why: 'other_token', token: 'fleet p1'}
    assert.deepEqual(await issue('p-id', 'p1', 'stolen'), taken)
    assert.deepEqual(await issue('q-id', 'p1'), taken)
    assert.deepEqual(await issue('q-id', 'node-1'), {why: 'held', by: 'n1'})
    // Nor does it get a second row for a secret whose digest it knows from a backup.
    await store.createToken(aToken('admin', ADMIN))
    await store.createToken(aToken('old', {expiresAt: scene.now - 1}))
    for (const digest of ['digest of admin', 'digest of old', 'digest of fleet', 'digest of p-id'])
      assert.deepEqual(await issue('q-id', 'p2', digest), {why: 'not_new'}, digest)
    const both = await Promise.all([issue('q-id', 'p2'), issue('r-id', 'p3')])
    assert.deepEqual(both.map((refusal) => refusal?.why ?? 'issued').toSorted(), [
      'issued',
      'used_up',
    ])
    assert.equal(await usesLeft(), 0)
    assert.equal(await issue('p-id', 'p1'), null, 'still repeated')
    assert.deepEqual(
      await issue('s-id', 's', 'd', own!.accessor),
      {why: 'revoked'},
      'no join token',
    )
    await store.deleteToken('fleet')
    assert.deepEqual(await issue('p-id', 'p1'), {why: 'revoked'})
    assert.notEqual(await store.token(own!.accessor), null, 'an agent keeps its token')
    scene.advance(91 * DAY)
    await store.createToken(aToken('later'))
    assert.equal(await store.token(own!.accessor), null, 'unless it stays away')
  })

  when('two nodes that use one token at the same time: it binds to one', async (scene) => {
    await scene.store.createToken(aToken('a', {kind: 'agent', policies: []}))
    const refusals = await Promise.all(
      ['x', 'y', 'z'].map((id) =>
        scene.store.bindToken({
          accessor: 'a',
          actor: BELFRY,
          node: {id, name: id},
          mayReplace: false,
        }),
      ),
    )
    assert.equal(refusals.filter((refusal) => refusal === null).length, 1)
  })

  when('a submit may only create, or only update', async (scene) => {
    const submit = async (name: string, create: boolean, update: boolean) => {
      const result = await scene.trySubmit(aSpec(name), {may: {create, update}})
      return result.kind === 'not_allowed' ? `not ${result.capability}` : result.kind
    }
    assert.equal(await submit('a', false, true), 'not create')
    assert.equal(await submit('a', true, false), 'stored')
    assert.equal(await submit('a', true, false), 'not update')
    assert.equal(await submit('a', false, true), 'stored')
    const may = {create: true, update: false}
    const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
    const entries = ['a', 'b'].map((name) => ({spec: aSpec(name), counters, may}))
    assert.deepEqual(await scene.store.restore(entries, {disabled: false}), {
      kind: 'not_allowed',
      names: [{name: 'a', capability: 'update'}],
    })
    assert.equal(await scene.store.job('b'), null)
  })

  when('a new job without an owner gets the default, another keeps its owner', async (scene) => {
    const owner = async (name: string, defaultOwner: string, own = '') => {
      const result = await scene.trySubmit(aSpec(name, {owner: own}), {defaultOwner})
      assert(result.kind === 'stored')
      return [result.job.spec.owner, result.changed]
    }
    assert.deepEqual(await owner('a', 'ci'), ['ci', true])
    assert.deepEqual(await owner('a', 'other'), ['ci', false])
    assert.deepEqual(await owner('a', 'other', 'me'), ['me', true])
    assert.deepEqual(await owner('a', ''), ['', true])
    const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
    const entries = ['a', 'b'].map((name) => ({spec: aSpec(name), counters}))
    await scene.store.restore(entries, {disabled: false, defaultOwner: 'ci'})
    assert.equal((await scene.job('a')).spec.owner, '')
    assert.equal((await scene.job('b')).spec.owner, 'ci')
  })

  when('a list shows the jobs of its patterns: the first match decides', async (scene) => {
    for (const name of ['team-a-1', 'team-a-2', 'team-b-1', 'team_a-1', 'größe', '100'])
      await scene.submit(name)
    const show = (pattern: string) => ({pattern, shown: true})
    const hide = (pattern: string) => ({pattern, shown: false})
    assert.equal(await listed(scene, null), '6: 100 größe team-a-1 team-a-2 team-b-1 team_a-1')
    assert.equal(await listed(scene, []), '0: ')
    assert.equal(await listed(scene, [show('team-a-*')]), '2: team-a-1 team-a-2')
    assert.equal(await listed(scene, [show('team_*')]), '1: team_a-1')
    assert.equal(await listed(scene, [show('*-1')]), '3: team-a-1 team-b-1 team_a-1')
    assert.equal(await listed(scene, [show('gr*e'), show('100')]), '2: 100 größe')
    const mixed = [show('team-a-2'), hide('team-a-*'), show('team-*'), hide('*')]
    assert.equal(await listed(scene, mixed), '2: team-a-2 team-b-1')
    const page = await scene.store.jobs({...ALL_JOBS, names: mixed, start: 1, end: 2})
    assert.deepEqual([page.total, page.rows.map(({spec}) => spec.name)], [2, ['team-b-1']])
    const many = Array.from({length: 2_000}, (_, at) => hide(`no-${at}-*`))
    assert.equal(await listed(scene, [...many, show('100')]), '1: 100')

    for (const name of ['team-a-1', 'team-b-1']) await scene.run(name, ['n1'])
    await scene.claim('n1')
    const busy = await scene.store.busy({...ALL_ROWS, outputBytes: 0, names: [show('team-b-*')]})
    assert.deepEqual([busy.total, busy.rows.map(({jobName}) => jobName)], [1, ['team-b-1']])
  })
}
