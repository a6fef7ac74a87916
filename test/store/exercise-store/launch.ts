/** Planned times: due jobs, and the leader's decisions applied by compare-and-set. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {ALL_ROWS, aRow, aSpec, MINUTE, targets} from './scene.ts'

export function launchCases(when: Case): void {
  when(
    'due jobs are returned oldest first, with the store’s time and the next due time',
    async (scene) => {
      const later = await scene.submit('later', {schedule: '@every 2m'})
      await scene.submit('sooner')
      const far = await scene.submit('far', {schedule: '@every 10m'})
      await scene.submit('off', {disabled: true})
      await scene.submit('child', {parentJob: 'far'})
      scene.advance(3 * MINUTE)
      const due = await scene.store.loadDue({limit: 10})
      assert.equal(due.now, scene.now)
      assert.deepEqual(
        due.jobs.map(({job}) => job.spec.name),
        ['sooner', 'later'],
      )
      const {id, spec, revision, nextAt, decidedUntil, anchorAt} = later
      const planned = {id, spec, revision, nextAt, decidedUntil, anchorAt}
      assert.deepEqual(due.jobs[1]!.job, planned)
      assert.equal(due.nextDueAt, far.nextAt)
      const [first] = (await scene.store.loadDue({limit: 1})).jobs
      assert.equal(first?.job.spec.name, 'sooner')
      const after = {nextAt: first.job.nextAt!, id: first.job.id}
      const behind = await scene.store.loadDue({limit: 10, after})
      assert.deepEqual(behind.jobs, [due.jobs[1]])
    },
  )

  when(
    'a launched time stores one row and one execution for each target, and moves next',
    async (scene) => {
      const job = await scene.submit('a')
      const at = job.nextAt!
      scene.advance(2 * MINUTE)
      const row = aRow(at, 'launched', {targets: targets(['n1', 'n2'])})
      const {dues, decided, now} = await scene.decide(job, [row], at + MINUTE)
      assert.deepEqual([dues, now], [['applied'], scene.now])
      const {launch} = decided[0]!
      assert.deepEqual(decided[0]!.targets, ['node-1', 'node-2'])
      assert.deepEqual(
        [launch.cause, launch.decision, launch.scheduledAt, launch.count, launch.open, launch.term],
        ['schedule', 'launched', at, 1, true, scene.term],
      )
      assert.deepEqual([launch.decidedAt, launch.storedAt], [scene.now, scene.now])
      const after = await scene.job('a')
      assert.deepEqual([after.nextAt, after.decidedUntil], [at + MINUTE, at])
      assert.equal(after.revision, job.revision)
      const shown = await scene.store.launch('a', launch.group)
      const {executions, parent, children, ...stored} = shown!
      assert.deepEqual([stored, executions.length, parent, children], [launch, 2, null, []])
    },
  )

  when('a repeated decision is a conflict', async (scene) => {
    const job = await scene.submit('a')
    scene.advance(MINUTE)
    const rows = [aRow(job.nextAt!, 'launched')]
    const both = await Promise.all([
      scene.decide(job, rows, job.nextAt! + MINUTE),
      scene.decide(job, rows, job.nextAt! + MINUTE),
    ])
    assert.deepEqual(both.map(({dues}) => dues[0]).toSorted(alphabetically), [
      'applied',
      'conflict',
    ])
    assert.equal((await scene.claim()).length, 1)
  })

  when('more due jobs than a number are a burst', async (scene) => {
    for (const name of ['a', 'b', 'c']) await scene.submit(name)
    const isBurst = async (burstMin: number | null) =>
      (await scene.store.loadDue({limit: 1, burstMin})).isBurst
    assert.equal(await isBurst(2), false, 'nothing is due yet')
    scene.advance(MINUTE)
    assert.deepEqual(
      [await isBurst(2), await isBurst(3), await isBurst(null)],
      [true, false, false],
    )
    const {next} = await scene.store.loadDue({limit: 1})
    const rest = await scene.store.loadDue({limit: 1, after: next, burstMin: 2})
    assert.equal(rest.isBurst, false)
  })

  when('a decision about an edited, toggled or deleted job is a conflict', async (scene) => {
    const [a, b, c, d] = [
      await scene.submit('a'),
      await scene.submit('b'),
      await scene.submit('c'),
      await scene.submit('d'),
    ]
    scene.advance(MINUTE)
    await scene.submit('a', {owner: 'edited'})
    await scene.store.toggle('b')
    await scene.store.deleteJob('c')
    const dues = [a, b, c, d].map(({id, revision, nextAt}) => ({
      jobId: id,
      revision,
      expectedNextAt: nextAt!,
      nextAt: nextAt! + MINUTE,
      rows: [aRow(nextAt!, 'launched')],
      forbid: false,
    }))
    const applied = await scene.store.applyLaunches({term: scene.term, dues, requests: []})
    assert.deepEqual(applied.dues, ['conflict', 'conflict', 'conflict', 'applied'])
    assert.deepEqual(
      applied.decided.map(({launch}) => launch.jobName),
      ['d'],
    )
    assert.equal((await scene.job('a')).nextAt, a.nextAt)
  })

  when(
    'forbid: a launched row conflicts with an open launch, not with an undecided request',
    async (scene) => {
      const job = await scene.submit('a', {concurrency: 'forbid'})
      const asked = await scene.trySubmit(aSpec('a', {concurrency: 'forbid'}), {runOnCreate: true})
      assert(asked.kind === 'stored')
      scene.advance(MINUTE)
      assert.equal((await scene.store.loadDue({limit: 1})).jobs[0]!.openGroup, null)
      const at = job.nextAt!
      const first = await scene.decide(job, [aRow(at, 'launched')], at + MINUTE, true)
      assert.deepEqual(first.dues, ['applied'])
      scene.advance(MINUTE)
      const {job: again, openGroup} = (await scene.store.loadDue({limit: 1})).jobs[0]!
      assert.equal(openGroup, first.decided[0]!.launch.group)
      const rows = [aRow(at + MINUTE, 'launched')]
      const second = await scene.decide(again, rows, at + 2 * MINUTE, true)
      assert.deepEqual(second.dues, ['conflict'])
      const skip = [aRow(at + MINUTE, 'skipped')]
      assert.deepEqual((await scene.decide(again, skip, at + 2 * MINUTE, true)).dues, ['applied'])
      assert.equal(await scene.launchRequest(asked.group!, ['n1'], true), null)
    },
  )

  when('neighbouring times that did not launch for the same reason are one row', async (scene) => {
    const job = await scene.submit('a')
    const at = (index: number) => job.nextAt! + index * MINUTE
    scene.advance(10 * MINUTE)
    const decide = async (rows: Parameters<typeof scene.decide>[1], next: number) =>
      scene.decide(await scene.job('a'), rows, next)
    await decide([aRow(at(0), 'skipped')], at(1))
    const grown = await decide(
      [aRow(at(1), 'skipped', {scheduledUntil: at(2), count: 2}), aRow(at(3), 'launched')],
      at(4),
    )
    assert.deepEqual(
      grown.decided.map(({launch}) => [launch.decision, launch.count]),
      [
        ['skipped', 3],
        ['launched', 1],
      ],
    )
    await decide([aRow(at(4), 'skipped')], at(5))
    await decide([aRow(at(5), 'skipped', {reason: 'no_target'})], at(6))
    await decide([aRow(at(6), 'missed', {reason: 'no_target'})], at(7))
    await decide([aRow(at(7), 'launched'), aRow(at(8), 'launched')], at(9))
    const history = await scene.store.launches('a', {...ALL_ROWS, decision: null})
    assert.deepEqual(
      history!.rows
        .toReversed()
        .map(({decision, scheduledAt, scheduledUntil, count}) => [
          decision,
          (scheduledAt - at(0)) / MINUTE,
          (scheduledUntil - at(0)) / MINUTE,
          count,
        ]),
      [
        ['skipped', 0, 2, 3],
        ['launched', 3, 3, 1],
        ['skipped', 4, 4, 1],
        ['skipped', 5, 5, 1],
        ['missed', 6, 6, 1],
        ['launched', 7, 7, 1],
        ['launched', 8, 8, 1],
      ],
    )
    assert.equal((await scene.job('a')).decidedUntil, at(8))
  })

  when('a thousand due jobs are launched in one transaction', async (scene) => {
    const names = Array.from({length: 1_000}, (_, index) => `job-${index}`)
    await Promise.all(names.map((name) => scene.submit(name)))
    scene.advance(MINUTE)
    const {jobs} = await scene.store.loadDue({limit: 1_000})
    assert.equal(jobs.length, 1_000)
    const dues = jobs.map(({job: {id, revision, nextAt}}) => ({
      jobId: id,
      revision,
      expectedNextAt: nextAt!,
      nextAt: nextAt! + MINUTE,
      rows: [aRow(nextAt!, 'launched')],
      forbid: false,
    }))
    const applied = await scene.store.applyLaunches({term: scene.term, dues, requests: []})
    assert(applied.dues.every((each) => each === 'applied'))
    const groups = new Set(applied.decided.map(({launch}) => launch.group))
    assert.equal(groups.size, 1_000)
    assert.deepEqual((await scene.store.loadDue({limit: 10})).jobs, [])
    assert.equal((await scene.store.totals()).pending, 1_000)
  })

  when('candidates are alive nodes that run jobs, with their load', async (scene) => {
    await scene.join('n2')
    await scene.join('n3')
    await scene.setStatus('n3', 'n3-incarnation-1', 'leaving')
    await scene.submit('a')
    await scene.run('a', ['n1', 'n2'])
    await scene.run('a', ['n1'])
    await scene.claim('n1', 1)
    assert.deepEqual(await scene.store.candidates(), [
      {id: 'n1', name: 'node-1', tags: {node: 'node-1'}, slots: 8, load: 2},
      {id: 'n2', name: 'node-2', tags: {node: 'node-2'}, slots: 8, load: 1},
    ])
  })
}

function alphabetically(one: string | undefined, other: string | undefined): number {
  return (one ?? '').localeCompare(other ?? '')
}
