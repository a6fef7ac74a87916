/** Storing definitions: submit and toggle. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {ALL_ROWS, aSpec, DAY, HOUR, MINUTE} from './scene.ts'

export function submitCases(when: Case): void {
  when('a new job is stored with every field and planned', async (scene) => {
    const spec = aSpec('backup', {
      displayname: 'Nightly "ÄÖ" backup',
      tags: {role: 'db:1'},
      metadata: {team: 'ops', __k: "it's"},
      processors: {log: {forward: 'true'}, files: {log_dir: '/x'}},
      retries: 3,
    })
    const result = await scene.trySubmit(spec)
    assert(result.kind === 'stored')
    assert.deepEqual([result.created, result.changed, result.group], [true, true, null])
    assert.deepEqual(result.job.spec, spec)
    assert.deepEqual(Object.keys(result.job.spec.processors), ['log', 'files'])
    assert.equal(result.job.revision, 1)
    assert.equal(result.job.nextAt, scene.now + MINUTE)
    assert.equal(result.job.createdAt, scene.now)
    assert.equal(result.job.status, '')
    const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
    assert.deepEqual(result.job.counters, counters)
    assert.deepEqual(await scene.store.job('backup'), result.job)
  })

  when('a preview returns the effect of a submit and stores nothing', async (scene) => {
    const request = (name: string, changes = {}) => {
      const fixed = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
      return {...fixed, spec: aSpec(name, changes)}
    }
    const preview = (name: string, changes = {}) =>
      scene.store.previewSubmit(request(name, changes))
    const {created, changed, nextAt, refusal} = await preview('new')
    assert.deepEqual([created, changed, nextAt, refusal], [true, true, scene.now + MINUTE, null])
    assert.equal(await scene.store.job('new'), null)
    const stored = await scene.submit('a')
    const same = await preview('a')
    assert.deepEqual([same.created, same.changed, same.nextAt], [false, false, stored.nextAt])
    assert.equal((await preview('a', {retries: 9})).changed, true)
    assert.deepEqual((await preview('b', {parentJob: 'nobody'})).refusal, {
      kind: 'parent_unknown',
      parent: 'nobody',
    })
    await scene.submit('child', {parentJob: 'a'})
    assert.equal((await preview('a', {parentJob: 'child'})).refusal?.kind, 'cycle')
    const conditional = {...request('a'), ifMatch: [7]}
    const unmet = await scene.store.previewSubmit(conditional)
    assert.deepEqual(unmet.refusal, {kind: 'precondition', revision: 1})
    await scene.store.setPaused(true)
    assert.equal((await preview('a')).paused, true)
  })

  when('submitting the same definition again changes nothing', async (scene) => {
    const first = await scene.submit('a', {processors: {x: {}, y: {}}})
    await scene.complete('a', 'failed')
    const before = await scene.job('a')
    scene.advance(10 * MINUTE)
    const again = await scene.trySubmit(aSpec('a', {processors: {x: {}, y: {}}}))
    assert(again.kind === 'stored')
    assert.deepEqual([again.created, again.changed], [false, false])
    assert.deepEqual(again.job, before)
    assert.equal(again.job.nextAt, first.nextAt)
    const reordered = await scene.trySubmit(aSpec('a', {processors: {y: {}, x: {}}}))
    assert(reordered.kind === 'stored' && reordered.changed)
  })

  when(
    'a change besides the schedule keeps next, counters and id, and increments the revision',
    async (scene) => {
      const first = await scene.submit('a')
      await scene.complete('a', 'succeeded')
      scene.advance(HOUR)
      const changed = await scene.submit('a', {owner: 'me', metadata: {k: 'v'}})
      assert.equal(changed.id, first.id)
      assert.equal(changed.revision, 2)
      assert.equal(changed.nextAt, first.nextAt)
      assert.equal(changed.counters.successCount, 1)
      assert.equal(changed.createdAt, first.createdAt)
      assert.equal(changed.updatedAt, scene.now)
    },
  )

  when('a changed schedule that moves next past a due time records it as missed', async (scene) => {
    const first = await scene.submit('a')
    scene.advance(3 * MINUTE + 1)
    const changed = await scene.submit('a', {schedule: '@every 1h'})
    assert(changed.nextAt! > scene.now)
    const history = await scene.store.launches('a', {...ALL_ROWS, decision: null})
    assert.equal(history!.total, 1)
    const row = history!.rows[0]!
    assert.deepEqual([row.decision, row.reason, row.cause], ['missed', 'edited', 'schedule'])
    assert.deepEqual([row.scheduledAt, row.count], [first.nextAt, 3])
    assert.equal(row.scheduledUntil, first.nextAt! + 2 * MINUTE)
    assert.deepEqual([row.open, row.term, row.decidedAt], [false, null, scene.now])
    assert.equal(changed.decidedUntil, row.scheduledUntil)
  })

  when('toggle switches disabled both ways and records skipped times', async (scene) => {
    await scene.submit('a')
    scene.advance(MINUTE)
    const off = await scene.store.toggle('a')
    assert(off.kind === 'toggled')
    assert.deepEqual([off.job.spec.disabled, off.job.nextAt, off.job.revision], [true, null, 2])
    const history = await scene.store.launches('a', {...ALL_ROWS, decision: 'missed'})
    assert.deepEqual(
      history!.rows.map(({reason, count}) => [reason, count]),
      [['disabled', 1]],
    )
    const on = await scene.store.toggle('a')
    assert(on.kind === 'toggled')
    assert.deepEqual([on.job.spec.disabled, on.job.revision], [false, 3])
    assert(on.job.nextAt! > scene.now)
    assert.deepEqual(await scene.store.toggle('b'), {kind: 'unknown'})
    const same = await scene.store.toggle('a', null, undefined, false)
    assert(same.kind === 'unchanged')
    assert.equal(same.job.revision, 3)
    const disabled = await scene.store.toggle('a', null, undefined, true)
    assert(disabled.kind === 'toggled')
    assert.deepEqual([disabled.job.spec.disabled, disabled.job.revision], [true, 4])
  })

  when('run on create stores a request, even if the definition is unchanged', async (scene) => {
    const created = await scene.trySubmit(aSpec('a', {disabled: true}), {runOnCreate: true})
    const again = await scene.trySubmit(aSpec('a', {disabled: true}), {runOnCreate: true})
    assert(created.kind === 'stored' && again.kind === 'stored')
    assert(again.group! > created.group!)
    const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 10})
    assert.deepEqual(
      requests.map(({launch}) => [launch.group, launch.cause, launch.decision, launch.open]),
      [
        [created.group, 'create', 'pending', true],
        [again.group, 'create', 'pending', true],
      ],
    )
  })

  when('a paused store refuses submits until it is unpaused', async (scene) => {
    await scene.store.setPaused(true)
    assert.equal(await scene.store.submissionsPaused(), true)
    assert.deepEqual(await scene.trySubmit(aSpec('a')), {kind: 'paused'})
    assert.equal(await scene.store.job('a'), null)
    await scene.store.setPaused(false)
    await scene.submit('a')
  })

  when('a submit with another revision in its precondition is refused', async (scene) => {
    const missing = await scene.trySubmit(aSpec('a'), {ifMatch: '*'})
    assert.deepEqual(missing, {kind: 'precondition', revision: null})
    assert.equal((await scene.trySubmit(aSpec('a'), {createOnly: true})).kind, 'stored')
    const exists = await scene.trySubmit(aSpec('a'), {createOnly: true})
    assert.deepEqual(exists, {kind: 'precondition', revision: 1})
    const stale = await scene.trySubmit(aSpec('a', {owner: 'x'}), {ifMatch: [7]})
    assert.deepEqual(stale, {kind: 'precondition', revision: 1})
    assert.equal((await scene.trySubmit(aSpec('a', {owner: 'x'}), {ifMatch: [1]})).kind, 'stored')
    assert.equal((await scene.trySubmit(aSpec('a', {owner: 'y'}), {ifMatch: '*'})).kind, 'stored')
    assert.equal((await scene.job('a')).revision, 3)
  })

  when('a toggle or delete with another revision in its precondition is refused', async (scene) => {
    const before = await scene.submit('a')
    const stale = {kind: 'precondition', revision: 1}
    assert.deepEqual(await scene.store.toggle('a', [7, 8]), stale)
    assert.deepEqual(await scene.store.deleteJob('a', []), stale)
    assert.deepEqual(await scene.job('a'), before)
    for (const match of [[7, 1], [2], '*'] as const)
      assert.equal((await scene.store.toggle('a', match)).kind, 'toggled')
    assert.deepEqual(await scene.store.toggle('b', '*'), {kind: 'unknown'})
    assert.deepEqual(await scene.store.deleteJob('b', [1]), {kind: 'unknown'})
    const both = ['a', 'a'].map((name) => scene.store.toggle(name, [4]))
    const kinds = (await Promise.all(both)).map(({kind}) => kind)
    assert.deepEqual(kinds.toSorted(), ['precondition', 'toggled'])
    assert.equal((await scene.store.deleteJob('a', [5])).kind, 'deleted')
  })

  when('of two writes with the same expected revision one is refused', async (scene) => {
    await scene.submit('a')
    const results = await Promise.all(
      ['x', 'y'].map((owner) => scene.trySubmit(aSpec('a', {owner}), {ifMatch: [1]})),
    )
    assert.deepEqual(results.map(({kind}) => kind).toSorted(), ['precondition', 'stored'])
  })

  when('an unknown parent or a cycle of parents is refused', async (scene) => {
    const child = {schedule: '', parentJob: 'a'}
    const orphan = await scene.trySubmit(aSpec('b', child))
    assert.deepEqual(orphan, {kind: 'parent_unknown', parent: 'a'})
    await scene.submit('a')
    await scene.submit('b', child)
    await scene.submit('c', {schedule: '', parentJob: 'b'})
    assert.deepEqual((await scene.job('a')).dependentJobs, ['b'])
    const circle = await scene.trySubmit(aSpec('a', {parentJob: 'c'}))
    assert.deepEqual(circle, {kind: 'cycle', path: ['a', 'c', 'b', 'a']})
    const itself = await scene.trySubmit(aSpec('a', {parentJob: 'a'}))
    assert.deepEqual(itself, {kind: 'cycle', path: ['a', 'a']})
    await scene.submit('b', {parentJob: ''})
    assert.deepEqual((await scene.job('a')).dependentJobs, [])
  })

  when('an ephemeral job with dependents is refused', async (scene) => {
    await scene.submit('a')
    await scene.submit('b', {schedule: '', parentJob: 'a'})
    const parent = await scene.trySubmit(aSpec('a', {ephemeral: true}))
    assert.deepEqual(parent, {kind: 'ephemeral_parent', parent: 'a', dependents: ['b']})
    await scene.submit('once', {ephemeral: true})
    const child = await scene.trySubmit(aSpec('c', {schedule: '', parentJob: 'once'}))
    assert.deepEqual(child, {kind: 'ephemeral_parent', parent: 'once', dependents: ['c']})
  })

  when('an idempotency key returns the first reply for 24 h', async (scene) => {
    const key = (fingerprint: string, scope = 'token-a') => {
      return {idempotency: {key: 'k', scope, fingerprint}, runOnCreate: true}
    }
    const first = await scene.trySubmit(aSpec('a'), key('one'))
    await scene.submit('a', {owner: 'someone else meanwhile'})
    assert.deepEqual(await scene.trySubmit(aSpec('a'), key('one')), first)
    const other = await scene.trySubmit(aSpec('b'), key('two'))
    assert.deepEqual(other, {kind: 'idempotency_mismatch'})
    const stranger = await scene.trySubmit(aSpec('b'), key('two', 'token-b'))
    assert.equal(stranger.kind, 'stored')
    assert.equal((await scene.job('a')).spec.owner, 'someone else meanwhile')
    const earlier = (fingerprint: string, scope?: string) =>
      scene.store.earlierSubmit(key(fingerprint, scope).idempotency)
    assert.deepEqual(await earlier('one'), first)
    assert.deepEqual(await earlier('two'), {kind: 'idempotency_mismatch'})
    assert.equal(await earlier('one', 'token-c'), null)
    scene.advance(DAY)
    assert.equal(await earlier('one'), null)
    const later = await scene.trySubmit(aSpec('a'), key('two'))
    assert(later.kind === 'stored' && later.changed)
  })

  when('submits at once have the results of submits one after another', async (scene) => {
    await scene.submit('once', {ephemeral: true})
    const keyed = {idempotency: {key: 'k', scope: 's', fingerprint: 'f'}, runOnCreate: true}
    const results = await Promise.all([
      scene.trySubmit(aSpec('a')),
      scene.trySubmit(aSpec('other'), {runOnCreate: true}),
      scene.trySubmit(aSpec('child', {schedule: '', parentJob: 'a'})),
      scene.trySubmit(aSpec('a', {schedule: '', parentJob: 'child'})),
      scene.trySubmit(aSpec('orphan', {schedule: '', parentJob: 'nothing'})),
      scene.trySubmit(aSpec('own', {schedule: '', parentJob: 'own'})),
      scene.trySubmit(aSpec('of-once', {schedule: '', parentJob: 'once'})),
      scene.trySubmit(aSpec('a', {displayname: 'A'})),
      scene.trySubmit(aSpec('a', {displayname: 'B'}), {ifMatch: [1]}),
      scene.trySubmit(aSpec('keyed'), keyed),
      scene.trySubmit(aSpec('keyed'), keyed),
    ])
    assert.deepEqual(
      results.map((result) => (result.kind === 'stored' ? result.job.revision : result)),
      [
        1,
        1,
        1,
        {kind: 'cycle', path: ['a', 'child', 'a']},
        {kind: 'parent_unknown', parent: 'nothing'},
        {kind: 'cycle', path: ['own', 'own']},
        {kind: 'ephemeral_parent', parent: 'once', dependents: ['of-once']},
        2,
        {kind: 'precondition', revision: 2},
        1,
        1,
      ],
    )
    assert.deepEqual(results.at(-1), results.at(-2))
    const {displayname} = (await scene.job('a')).spec
    assert.deepEqual([displayname, (await scene.job('a')).dependentJobs], ['A', ['child']])
    const pending = await scene.store.loadRequests({afterGroup: 0, limit: 9})
    assert.deepEqual(pending.requests.map(({launch}) => launch.jobName).toSorted(), [
      'keyed',
      'other',
    ])
  })

  when('a job that was deleted and created again is not the one that was read', async (scene) => {
    const {store} = scene
    const request = {ifMatch: [1, 2], createOnly: false, runOnCreate: false, idempotency: null}
    const {id: onlyJob} = await scene.submit('a')
    await store.deleteJob('a')
    const spec = aSpec('a', {retries: 1})
    const gone = await store.submit({...request, spec, onlyJob})
    assert.deepEqual(gone, {kind: 'precondition', revision: null})
    const {id} = await scene.submit('a')
    const other = await store.submit({...request, spec, onlyJob})
    assert.deepEqual(other, {kind: 'precondition', revision: 2})
    assert.equal((await store.submit({...request, spec, onlyJob: id})).kind, 'stored')
  })

  when('a past @at is due for a new job and not planned for an existing one', async (scene) => {
    const schedule = `@at ${new Date(scene.now - HOUR).toISOString()}`
    assert.equal((await scene.submit('a', {schedule})).nextAt, scene.now - HOUR)
    await scene.submit('b', {schedule: '@manually'})
    assert.equal((await scene.submit('b', {schedule})).nextAt, null)
  })
}
