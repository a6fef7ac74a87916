/** Claims: oldest first, only by the assigned node, never twice, and idempotent by token. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {aSpec} from './scene.ts'
import {claimAs} from '../../support/single-calls.ts'
import {NOTHING_CLAIMED} from '../../support/fixtures.ts'

export function claimCases(when: Case): void {
  when('a claim takes the oldest executions first, up to its free slots', async (scene) => {
    await scene.submit('a')
    const groups: number[] = []
    for (let index = 0; index < 4; index += 1) {
      groups.push(await scene.run('a'))
      scene.advance(10)
    }
    const request = {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 't1', room: 3}
    const {claimed, waiting, nextDueInMs} = await claimAs(scene.store, request)
    assert.deepEqual(
      claimed.map(({execution}) => execution.group),
      groups.slice(0, 3),
    )
    assert.deepEqual([waiting, nextDueInMs], [1, null])
    const {execution, token, spec, cause} = claimed[0]!
    assert.deepEqual([execution.status, execution.startedAt], ['running', scene.now])
    assert.deepEqual([execution.revision, token, cause], [1, 't1', 'manual'])
    assert.deepEqual(spec, aSpec('a'))
    const busy = await scene.store.busy({start: 0, end: null, outputBytes: 0})
    assert.equal(busy.total, 3)
    const full = await claimAs(scene.store, {...request, token: 't2', room: 0})
    assert.deepEqual([full.claimed, full.waiting], [[], 1])
  })

  when(
    'a repeated claim token returns the same executions, another token others',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      const request = {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 't1', room: 5}
      const first = await claimAs(scene.store, request)
      await scene.run('a')
      assert.deepEqual((await claimAs(scene.store, request)).claimed, first.claimed)
      const second = await claimAs(scene.store, {...request, token: 't2'})
      assert.equal(second.claimed.length, 1)
      assert.notEqual(second.claimed[0]!.execution.group, first.claimed[0]!.execution.group)
    },
  )

  when(
    'a repeated claim after an edit returns the new definition with its revision',
    async (scene) => {
      await scene.submit('a')
      const group = await scene.run('a')
      const request = {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 't1', room: 5}
      await claimAs(scene.store, request)
      await scene.submit('a', {owner: 'new'})
      const [repeated] = (await claimAs(scene.store, request)).claimed
      assert.deepEqual([repeated!.execution.revision, repeated!.spec.owner], [2, 'new'])
      const [stored] = (await scene.store.launch('a', group))!.executions
      assert.equal(stored!.revision, 2)
    },
  )

  when('a claim takes definitions up to a length, and at least one', async (scene) => {
    const command = 'x'.repeat(1_000)
    await scene.submit('a', {executorConfig: {command}})
    for (let index = 0; index < 4; index += 1) await scene.run('a')
    const request = {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 't1', room: 4}
    const two = await claimAs(scene.store, {...request, definitionsMax: 3_000})
    assert.deepEqual([two.claimed.length, two.waiting], [2, 1])
    const repeated = await claimAs(scene.store, {...request, definitionsMax: 3_000})
    assert.deepEqual([repeated.claimed, repeated.waiting], [two.claimed, 1])
    const one = await claimAs(scene.store, {...request, token: 't2', definitionsMax: 10})
    assert.deepEqual([one.claimed.length, one.waiting], [1, 1])
    const last = await claimAs(scene.store, {...request, token: 't3', definitionsMax: 3_000})
    assert.deepEqual([last.claimed.length, last.waiting], [1, 0])
  })

  when('concurrent claims never share an execution', async (scene) => {
    await scene.submit('a')
    for (let index = 0; index < 10; index += 1) await scene.run('a')
    const results = await Promise.all(
      Array.from({length: 5}, (_, index) => {
        const token = `together-${index}`
        return claimAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', token, room: 3})
      }),
    )
    const groups = results.flatMap(({claimed}) => claimed.map(({execution}) => execution.group))
    assert.equal(groups.length, 10)
    assert.equal(new Set(groups).size, 10)
  })

  when('active claims are the running executions of one incarnation', async (scene) => {
    await scene.submit('a')
    for (let index = 0; index < 3; index += 1) await scene.run('a')
    const life = {nodeId: 'n1', incarnation: 'n1-incarnation-1'}
    const {claimed} = await claimAs(scene.store, {...life, token: 't1', room: 2})
    scene.advance(500)
    const keys = claimed.map(({execution: {group, node, attempt}}) => ({group, node, attempt}))
    const standing = keys.map((key) => ({key, token: 't1', job: 'a', ageMs: 500}))
    assert.deepEqual(await scene.store.activeClaims(life), standing)
    assert.deepEqual(await scene.store.activeClaims({...life, incarnation: 'other'}), [])
    assert.deepEqual(await scene.store.activeClaims({...life, nodeId: 'n2'}), [])
    const asker = 'n1-incarnation-1'
    assert.deepEqual(await scene.store.activeClaims({...life, asker}), standing)
    // A replaced incarnation must not release what its successor runs.
    assert.deepEqual(await scene.store.activeClaims({...life, asker: 'n1-incarnation-0'}), [])
    await scene.end(claimed[0]!, 'succeeded')
    assert.deepEqual(await scene.store.activeClaims(life), standing.slice(1))
  })

  when('a node claims only its own executions, and none before it is due', async (scene) => {
    await scene.submit('a', {retries: 1})
    await scene.run('a', ['n2'])
    assert.deepEqual(await scene.claim('n1'), [])
    await scene.run('a')
    const outcome = await scene.end(await scene.claimOne(), 'failed')
    assert(outcome.kind === 'finished' && outcome.retry !== null)
    const request = {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 'early', room: 5}
    const early = await claimAs(scene.store, request)
    const waitMs = outcome.retry.notBefore - scene.now
    assert.deepEqual([early.claimed, early.waiting, early.nextDueInMs], [[], 0, waitMs])
    scene.advance(waitMs)
    const retry = await scene.claimOne()
    assert.deepEqual([retry.execution.attempt, retry.execution.slot], [2, 0])
  })

  when('a claim returns the current definition', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    await scene.submit('a', {executorConfig: {command: 'false'}})
    const {spec, execution} = await scene.claimOne()
    assert.deepEqual([spec.executorConfig, execution.revision], [{command: 'false'}, 2])
  })

  when('a previous incarnation of the node claims nothing', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    await scene.join('n1', 'n1-incarnation-2')
    const old = {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 'old', room: 5}
    const answer = await claimAs(scene.store, old)
    assert.deepEqual(answer, NOTHING_CLAIMED)
    const now = await claimAs(scene.store, {...old, incarnation: 'n1-incarnation-2', token: 'new'})
    assert.equal(now.claimed.length, 1)
  })

  when('a stale claim takes nothing and returns the newest token', async (scene) => {
    await scene.submit('a')
    const life = {nodeId: 'n1', incarnation: 'n1-incarnation-1', room: 1}
    for (let index = 0; index < 3; index += 1) await scene.run('a')
    const first = await claimAs(scene.store, {...life, token: 't1'})
    assert.equal(first.newest, 't1')
    const second = await claimAs(scene.store, {...life, token: 't2', after: 't1'})
    assert.deepEqual([second.claimed.length, second.newest], [1, 't2'])
    const late = await claimAs(scene.store, {...life, token: 't3', after: 't1'})
    assert.deepEqual([late.claimed, late.newest], [[], 't2'])
    const repeated = await claimAs(scene.store, {...life, token: 't2', after: 't1'})
    assert.equal(repeated.claimed.length, 1)
    const third = await claimAs(scene.store, {...life, token: 't3', after: 't2'})
    assert.equal(third.claimed.length, 1)
  })

  when('verifying claims returns for each whether it still runs under its token', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const {token} = await scene.claimOne()
    const key = {group, node: 'node-1', attempt: 1}
    const verify = () =>
      scene.store.verifyClaims([
        {key, token},
        {key, token: 'other'},
        {key: {...key, attempt: 2}, token},
      ])
    assert.deepEqual(await verify(), ['active', 'revoked', 'revoked'])
    const lost = {
      nodeId: 'n1',
      exceptIncarnation: null,
      observed: null,
      reason: 'node_lost',
      limit: 9,
    } as const
    await scene.store.markLost({...lost, term: scene.term, jitter: 0})
    assert.deepEqual(await verify(), ['lost_may_continue', 'revoked', 'revoked'])
    await scene.store.deleteJob('a')
    assert.deepEqual(await verify(), ['revoked', 'revoked', 'revoked'])
  })
}
