/** Facts of an explanation: the launch of a time, what is around it, and who changed the job. */
import assert from 'node:assert/strict'
import type {ExplainFacts, ExplainSubject} from '../../../src/core/explain/facts.ts'
import type {Case} from './case.ts'
import {aRow, type Scene} from './scene.ts'

const MINUTE = 60_000

const at = (time: number): ExplainSubject => ({kind: 'at', text: new Date(time).toISOString()})

async function factsOf(scene: Scene, subject: ExplainSubject, name = 'a'): Promise<ExplainFacts> {
  const facts = await scene.store.explainFacts(name, subject)
  assert(facts !== null, `${name} has facts`)
  return facts
}

/** A job of every minute with a launch, two skipped times, and a launch that runs; the first planned time. */
async function aNight(scene: Scene): Promise<{first: number; groups: readonly number[]}> {
  const actor = {name: 'alice', accessor: 'x', kind: 'management', address: '10.0.0.7'}
  const stored = await scene.store.submit({
    spec: {...(await scene.submit('a', {schedule: '@every 1m'})).spec, schedule: '@every 60s'},
    ifMatch: null,
    createOnly: false,
    runOnCreate: false,
    idempotency: null,
    actor,
  })
  assert(stored.kind === 'stored', 'a is stored')
  const first = stored.job.nextAt!
  scene.advance(5 * MINUTE)
  const applied = await scene.decide(
    stored.job,
    [
      aRow(first, 'launched'),
      aRow(first + MINUTE, 'skipped', {
        scheduledUntil: first + 2 * MINUTE,
        count: 2,
        reason: 'forbid: launch 1 is still open',
      }),
      aRow(first + 3 * MINUTE, 'launched'),
    ],
    first + 4 * MINUTE,
  )
  return {first, groups: applied.decided.map(({launch}) => launch.group)}
}

export function explainCases(when: Case): void {
  when(
    'a time of a merged row is found by its span, with the launches beside it',
    async (scene) => {
      const {first, groups} = await aNight(scene)
      const facts = await factsOf(scene, at(first + 2 * MINUTE))
      assert.deepEqual(
        [facts.before, facts.chosen, facts.after, facts.oldest].map((each) => each!.launch.group),
        [groups[0], groups[1], groups[2], groups[0]],
      )
      assert.equal(facts.now, scene.now)
      assert.deepEqual(
        facts.open.map(({launch, executions}) => [launch.group, executions.length]),
        [
          [groups[0], 1],
          [groups[2], 1],
        ],
      )
    },
  )

  when('a time between rows has none, and a job that is not stored has no facts', async (scene) => {
    const {first} = await aNight(scene)
    const facts = await factsOf(scene, at(first + 30_000))
    assert.deepEqual([facts.chosen, facts.rowsTotal], [null, 0])
    assert.equal(facts.before!.launch.scheduledAt, first)
    assert.equal(facts.after!.launch.scheduledAt, first + MINUTE)
    assert.equal(await scene.store.explainFacts('nobody', {kind: 'now'}), null)
  })

  when(
    'without a time the newest launch is chosen, and a number finds only the own one',
    async (scene) => {
      const {groups} = await aNight(scene)
      await scene.submit('b')
      const other = await scene.run('b')
      const newest = await factsOf(scene, {kind: 'now'})
      assert.equal(newest.chosen!.launch.group, groups[2])
      const own = await factsOf(scene, {kind: 'launch', group: groups[1]!})
      assert.equal(own.chosen!.launch.group, groups[1])
      assert.equal((await factsOf(scene, {kind: 'launch', group: other})).chosen, null)
    },
  )

  when('a day has all its rows, and the newest that did not run is chosen', async (scene) => {
    const {first, groups} = await aNight(scene)
    const day = new Date(first).toISOString().slice(0, 10)
    const facts = await factsOf(scene, {kind: 'at', text: day})
    assert.equal(facts.chosen!.launch.group, groups[1])
    assert.equal(facts.rowsTotal, 3)
  })

  when('the launch that a reason names comes with its executions and its end', async (scene) => {
    await scene.submit('a', {concurrency: 'forbid', schedule: '@every 1m'})
    const job = await scene.job('a')
    const group = await scene.run('a')
    await scene.end(await scene.claimOne(), 'failed', {exitCode: 3})
    scene.advance(2 * MINUTE)
    const reason = `forbid: launch ${group} is still open`
    await scene.decide(job, [aRow(job.nextAt!, 'skipped', {reason})], job.nextAt! + MINUTE)
    const {related} = await factsOf(scene, at(job.nextAt!))
    assert.deepEqual(
      [related!.launch.group, related!.status, related!.executions[0]!.exitCode],
      [group, 'failed', 3],
    )
  })

  when('a child comes with the launch of its parent', async (scene) => {
    await scene.submit('parent')
    await scene.submit('a', {parentJob: 'parent', schedule: ''})
    const group = await scene.complete('parent', 'succeeded')
    const {chosen, related} = await factsOf(scene, {kind: 'now'})
    assert.equal(chosen!.launch.parentGroup, group)
    assert.deepEqual([related!.launch.jobName, related!.status], ['parent', 'success'])
  })

  when('changes name who made them, newest first, with the creation and cancels', async (scene) => {
    await aNight(scene)
    const actor = {name: 'bob', accessor: 'y', kind: 'management', address: ''}
    await scene.claim()
    const [run] = (await factsOf(scene, {kind: 'now'})).open
    await scene.store.cancelExecution('a', run!.executions[0]!, actor)
    await scene.store.toggle('a', null, actor, true)
    const {changes} = await factsOf(scene, {kind: 'now'})
    assert.deepEqual(
      changes.map(({action, actor: name}) => `${action} ${name}`),
      ['job.toggle bob', 'execution.cancel bob', 'job.update alice', 'job.create belfry'],
    )
    assert.equal(changes[0]!.detail, 'disabled')
    assert.equal(changes[2]!.address, '10.0.0.7')
  })

  when('the lease, the members and the pauses are those of now', async (scene) => {
    await scene.submit('a')
    await scene.store.pauseFiring({jobs: 'a*', reason: 'disk', until: null})
    const facts = await factsOf(scene, {kind: 'now'})
    assert.deepEqual(
      [facts.members.map(({name}) => name), facts.settings.pauses.map(({jobs}) => jobs)],
      [['node-1'], ['a*']],
    )
    assert.equal(facts.leaseUntil, scene.now + 6_000)
    assert.deepEqual([facts.isPutBack, facts.typicalMs, facts.spans], [false, null, []])
    await scene.store.resignLease({term: scene.term, holder: 'holder-1'})
    assert.equal((await factsOf(scene, {kind: 'now'})).leaseUntil, null)
  })
}
