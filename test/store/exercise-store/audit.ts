/** The audit log: a row for each change, in its transaction; none without a change. */
import assert from 'node:assert/strict'
import type {Actor} from '../../../src/core/audit.ts'
import type {AuditEntry, AuditQuery, PruneAuditRequest} from '../../../src/ports/audit-store.ts'
import type {Case} from './case.ts'
import {ALL_ROWS, aSpec, MINUTE, type Scene} from './scene.ts'

const ANN: Actor = {name: 'ann', accessor: 'a1', kind: 'client', address: '10.0.0.1'}
const BOB: Actor = {name: 'bob', accessor: 'b1', kind: 'management', address: '10.0.0.2'}

export const ALL_AUDIT: AuditQuery = {
  ...ALL_ROWS,
  actor: '',
  action: '',
  targetType: null,
  target: '',
  result: null,
  from: null,
  to: null,
  names: null,
}

const SUBMIT = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
const KEEP = {keepMs: 1e12, keepEntries: 1_000, keepBytes: 1e9, keepRefused: 1_000}
const COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

/** Entries of a query, oldest first, as `actor action target before->after detail`. */
async function recorded(scene: Scene, query: Partial<AuditQuery> = {}): Promise<string[]> {
  const {rows, total} = await scene.store.audit({...ALL_AUDIT, ...query})
  if (query.start === undefined) assert.equal(rows.length, total)
  return rows.map(textOf).toReversed()
}

function textOf({actor, action, target, detail, revisionBefore, revisionAfter}: AuditEntry) {
  const isJob = revisionBefore !== null || revisionAfter !== null
  const change = isJob ? `${revisionBefore ?? ''}->${revisionAfter ?? ''}` : ''
  const parts = [actor.name, action, target, change, detail.replace(/launch \d+/, 'launch N')]
  return parts.filter((text) => text !== '').join(' ')
}

export function auditCases(when: Case): void {
  when('each change of a job is recorded with its actor and its revisions', async (scene) => {
    const {store} = scene
    const submit = (schedule: string, actor: Actor, runOnCreate = false) =>
      store.submit({...SUBMIT, runOnCreate, spec: aSpec('a', {schedule}), actor})
    await submit('@every 1h', ANN)
    await submit('@every 2h', BOB)
    await store.toggle('a', null, ANN)
    await store.requestRun({name: 'a', forced: true, idempotency: null, actor: BOB})
    await submit('@every 3h', BOB, true)
    const entries = [
      {spec: aSpec('a'), counters: COUNTERS},
      {spec: aSpec('b'), counters: COUNTERS},
    ]
    await store.restore(entries, {disabled: false, actor: ANN})
    await store.resetHistory('a', BOB)
    await store.deleteJob('a', null, ANN)
    assert.deepEqual(await recorded(scene), [
      'ann job.create a ->1',
      'bob job.update a 1->2',
      'ann job.toggle a 2->3 disabled',
      'bob job.run a launch N, forced',
      'bob job.update a 3->4 launch N',
      'ann job.restore b ->1',
      'ann job.restore a 4->5',
      'bob job.reset a',
      'ann job.delete a 5->',
    ])
    const {rows} = await store.audit({...ALL_AUDIT, end: 1})
    assert.deepEqual(rows[0]!.actor, ANN)
    assert.equal(rows[0]!.at, scene.now)
  })

  when('an entry records the replaced and the stored definition', async (scene) => {
    const {store} = scene
    const long = aSpec('a', {metadata: {text: 'x'.repeat(20_000)}})
    const schedules = ['@every 1h', '@every 2h', '@every 3h'].map((schedule) => {
      return aSpec('a', {schedule})
    })
    for (const spec of [...schedules, long]) await store.submit({...SUBMIT, spec})
    await store.deleteJob('a')
    await store.submit({...SUBMIT, spec: aSpec('a', {schedule: '@every 4h'})})
    for (const rules of ['one', 'two']) await store.putPolicy({name: 'p', rules})
    await store.deletePolicy('p')
    await store.putPolicy({name: 'p', rules: 'three'})
    const {rows} = await store.audit(ALL_AUDIT)
    const shown = (text: string | null) =>
      text?.startsWith('{') ? JSON.parse(text).schedule : text
    assert.deepEqual(rows.map(({before, after}) => [shown(before), shown(after)]).toReversed(), [
      [null, '@every 1h'],
      ['@every 1h', '@every 2h'],
      ['@every 2h', '@every 3h'],
      // The long definition is left out.
      ['@every 3h', null],
      [null, null],
      [null, '@every 4h'],
      [null, 'one'],
      ['one', 'two'],
      ['two', null],
      [null, 'three'],
    ])
  })

  when('every revision of a job is kept, with who made it', async (scene) => {
    const {store} = scene
    const schedules = ['@every 1h', '@every 2h', '@every 3h']
    for (const schedule of schedules)
      await store.submit({...SUBMIT, spec: aSpec('a', {schedule}), actor: ANN})
    await store.toggle('a', null, BOB)
    const page = await store.revisions('a', {start: 1, end: 3})
    assert.equal(page!.total, 4)
    assert.deepEqual(
      page!.rows.map(({revision, change}) => [revision, change?.action, change?.actor]),
      [
        [3, 'job.update', ANN],
        [2, 'job.update', ANN],
      ],
    )
    for (const [index, schedule] of [...schedules, '@every 3h'].entries()) {
      const found = await store.revision('a', index + 1)
      assert.equal(found!.revision.revision, index + 1)
      assert.deepEqual(found!.spec, aSpec('a', {schedule, disabled: index === 3}))
    }
    assert.equal(await store.revision('a', 5), null)
    assert.equal(await store.revisions('b', ALL_ROWS), null)
    await store.deleteJob('a')
    assert.equal(await store.revisions('a', ALL_ROWS), null)
    assert.equal(await store.revision('a', 1), null)
    // A job of the same name has a history of its own.
    await store.submit({...SUBMIT, spec: aSpec('a', {schedule: '@every 9h'})})
    assert.equal((await store.revisions('a', ALL_ROWS))!.total, 1)
    assert.equal(await store.revision('a', 4), null)
    assert.equal((await store.revision('a', 5))!.spec.schedule, '@every 9h')
  })

  when('a submit of an earlier revision says so', async (scene) => {
    const {store} = scene
    for (const retries of [1, 2]) await store.submit({...SUBMIT, spec: aSpec('a', {retries})})
    await store.submit({...SUBMIT, spec: aSpec('a', {retries: 1}), actor: ANN, revertsTo: 1})
    assert.deepEqual(await recorded(scene, {action: 'job.revert'}), [
      'ann job.revert a 2->3 to revision 1',
    ])
  })

  when('old entries are deleted in batches, but not the last revisions of a job', async (scene) => {
    const {store} = scene
    const keep = {...KEEP, keepMs: 10 * MINUTE, keepRefused: 2, keepRevisions: 2}
    const prune = async (over: Partial<PruneAuditRequest> = {}) => {
      let deleted = 0
      for (let after = 0, isOver = false; !isOver;) {
        const batch = {term: scene.term, ...keep, after, limit: 3, ...over}
        const result = await store.pruneAudit(batch)
        assert(result.rowsDeleted <= 6)
        deleted += result.rowsDeleted
        isOver = result.isRoundOver
        after = result.next
      }
      return deleted
    }
    for (let retries = 0; retries < 6; retries += 1)
      await store.submit({...SUBMIT, spec: aSpec('a', {retries})})
    await store.submit({...SUBMIT, spec: aSpec('gone')})
    await store.deleteJob('gone')
    for (let run = 0; run < 7; run += 1)
      await store.requestRun({name: 'a', forced: true, idempotency: null})
    assert.equal(await prune(), 0)
    scene.advance(11 * MINUTE)
    await store.putPolicy({name: 'p', rules: ''})
    assert.equal(await prune(), 13)
    const kept = ['belfry job.update a 4->5', 'belfry job.update a 5->6', 'belfry policy.set p']
    assert.deepEqual(await recorded(scene), kept)
    const revisions = (await store.revisions('a', ALL_ROWS))!.rows
    assert.deepEqual(
      revisions.map(({revision, change}) => [revision, change !== null]),
      [
        [6, true],
        [5, true],
        [4, false],
      ],
    )
    assert.equal((await store.revision('a', 4))!.spec.retries, 3)
    assert.equal(await store.revision('a', 3), null)
    // Limit by number; entries that a job needs count.
    for (const rules of ['1', '2', '3']) await store.putPolicy({name: 'p', rules})
    assert.equal(await prune({keepEntries: 2}), 2)
    assert.equal((await recorded(scene)).length, 4)
    const refused = {
      action: 'access.refused',
      targetType: 'path',
      target: '/',
      result: 'refused',
    } as const
    await store.recordAudit(Array.from({length: 9}, () => refused))
    assert.equal(await prune(), 7)
    assert.equal((await recorded(scene, {result: 'refused'})).length, 2)
    assert.equal((await recorded(scene)).length, 6)
    await assert.rejects(prune({term: scene.term - 1}), {name: 'TermOver'})
  })

  when(
    'beyond their size, the oldest definitions are dropped, and their entries stay',
    async (scene) => {
      const {store} = scene
      const command = 'x'.repeat(10_000)
      for (const name of ['a', 'b'])
        for (let retries = 0; retries < 7; retries += 1)
          await store.submit({...SUBMIT, spec: aSpec(name, {retries, executorConfig: {command}})})
      const {term} = scene
      const request = {...KEEP, term, keepRevisions: 2, after: 0, limit: 2}
      const prune = async (keepBytes: number) => {
        let batches = 1
        while (!(await store.pruneAudit({...request, keepBytes})).isRoundOver) batches += 1
        return batches
      }
      const kept = async () => {
        const {rows} = await store.audit(ALL_AUDIT)
        const shown = rows.map(({target, before}) => (before === null ? '-' : target))
        return shown.toReversed().join('')
      }
      assert.equal(await prune(1_000_000), 1)
      assert.equal(await kept(), '-aaaaaa-bbbbbb')
      // The last two of each job stay.
      assert.equal(await prune(75_000), 3)
      assert.equal(await kept(), '-----aa--bbbbb')
      assert.equal(await prune(0), 2)
      assert.equal(await kept(), '-----aa-----bb')
      assert.equal(await store.revision('a', 4), null)
      assert.equal((await store.revision('a', 5))!.spec.retries, 4)
    },
  )

  when('of concurrent changes of a job, each has one entry', async (scene) => {
    const {store} = scene
    await store.submit({...SUBMIT, spec: aSpec('a')})
    await Promise.all(
      Array.from({length: 20}, (_, index) => {
        const spec = aSpec('a', {retries: index + 1})
        if (index % 4 === 3) return store.toggle('a', null, ANN)
        return store.submit({...SUBMIT, spec, actor: BOB})
      }),
    )
    const {revision} = await scene.job('a')
    const {rows} = await store.audit(ALL_AUDIT)
    assert.deepEqual(
      rows.map(({revisionAfter}) => revisionAfter).toSorted((one, other) => one! - other!),
      Array.from({length: revision}, (_, index) => index + 1),
    )
    for (const {revisionBefore, revisionAfter} of rows)
      assert.equal(revisionBefore ?? 0, revisionAfter! - 1)
  })

  when('what changes nothing is not recorded', async (scene) => {
    const {store} = scene
    const request = {...SUBMIT, spec: aSpec('a'), actor: ANN}
    await store.submit(request)
    const before = await recorded(scene)
    await store.submit(request)
    await store.restore([{spec: aSpec('a'), counters: COUNTERS}], {disabled: false, actor: ANN})
    await store.submit({...request, spec: aSpec('a', {retries: 3}), ifMatch: [7]})
    await store.submit({...request, spec: aSpec('b', {parentJob: 'none'})})
    await store.toggle('a', [7], ANN)
    await store.toggle('none', null, ANN)
    await store.deleteJob('a', [7], ANN)
    await store.resetHistory('none', ANN)
    await store.requestRun({name: 'none', forced: false, idempotency: null, actor: ANN})
    await store.deletePolicy('none', ANN)
    await store.deleteToken('none', ANN)
    await store.setPaused(false, ANN)
    await store.resumeFiring({after: 0, limit: 10, actor: ANN})
    assert.deepEqual(await recorded(scene), before)
  })

  when('a request that is repeated with its idempotency key is recorded once', async (scene) => {
    const {store} = scene
    const idempotency = {key: 'k', scope: 's', fingerprint: 'f'}
    for (let time = 0; time < 2; time += 1) {
      await store.submit({...SUBMIT, spec: aSpec('a'), idempotency, actor: ANN})
      const key = {...idempotency, scope: 'run'}
      await store.requestRun({name: 'a', forced: false, idempotency: key, actor: ANN})
    }
    assert.deepEqual(await recorded(scene), ['ann job.create a ->1', 'ann job.run a launch N'])
  })

  when('a cancellation is recorded once, with the execution', async (scene) => {
    const {store} = scene
    await scene.submit('a')
    await scene.run('a')
    const {execution} = await scene.claimOne()
    for (let time = 0; time < 2; time += 1) await store.cancelExecution('a', execution, ANN)
    assert.deepEqual(await recorded(scene, {action: 'execution.cancel'}), [
      `ann execution.cancel a execution ${execution.group}-node-1-1`,
    ])
  })

  when('changes of tokens, policies, members and switches are recorded', async (scene) => {
    const {store} = scene
    await store.putPolicy({name: 'p', rules: '{}'}, ANN)
    await store.putPolicy({name: 'p', rules: '{}'}, ANN)
    await store.putPolicy({name: 'p', rules: '{"path":{}}'}, BOB)
    await store.deletePolicy('p', ANN)
    const token = {name: 'ci', kind: 'client', policies: ['p'], expiresAt: null} as const
    await store.createToken({...token, accessor: 't1', digest: 'a digest', isFirst: false}, ANN)
    await store.deleteToken('t1', BOB)
    await store.setPaused(true, ANN)
    await store.setPaused(false, BOB)
    await store.recordAudit([
      {actor: ANN, action: 'member.leave', targetType: 'member', target: 'node-1'},
    ])
    assert.deepEqual(await recorded(scene), [
      'ann policy.set p',
      'bob policy.set p',
      'ann policy.delete p',
      'ann token.create ci accessor t1, client p',
      'bob token.revoke ci accessor t1, client',
      'ann submissions.pause',
      'bob submissions.resume',
      'ann member.leave node-1',
    ])
  })

  when('entries are paged and filtered, newest first', async (scene) => {
    const {store} = scene
    for (const [name, actor] of [
      ['team-a-x', ANN],
      ['team-b-x', BOB],
    ] as const) {
      await store.submit({...SUBMIT, spec: aSpec(name), actor})
      scene.advance(MINUTE)
    }
    await store.putPolicy({name: 'team-a-x', rules: ''}, ANN)
    const refused = {
      action: 'access.refused',
      targetType: 'path',
      target: '/v1/jobs',
      result: 'refused',
    } as const
    await store.recordAudit([{actor: BOB, ...refused}])
    const [first, second] = ['ann job.create team-a-x ->1', 'bob job.create team-b-x ->1']
    const [third, last] = ['ann policy.set team-a-x', 'bob access.refused /v1/jobs']
    const cases: readonly [Partial<AuditQuery>, readonly (string | undefined)[]][] = [
      [{}, [first, second, third, last]],
      [{start: 1, end: 3}, [second, third]],
      [{actor: 'ann'}, [first, third]],
      [{actor: 'b1'}, [second, last]],
      [{action: 'job'}, [first, second]],
      [{action: 'job.create'}, [first, second]],
      [{action: 'job.c'}, []],
      [{targetType: 'job', target: 'team-a-x'}, [first]],
      [{target: 'team-a-x'}, [first, third]],
      [{result: 'refused'}, [last]],
      [{from: scene.now - MINUTE}, [second, third, last]],
      [{to: scene.now - MINUTE}, [first]],
      [{names: [{pattern: 'team-a-*', shown: true}]}, [first]],
      [{names: []}, []],
    ]
    for (const [query, expected] of cases) assert.deepEqual(await recorded(scene, query), expected)
    assert.equal((await store.audit({...ALL_AUDIT, start: 1, end: 2})).total, 4)
  })
}
