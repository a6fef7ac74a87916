/** Sweeps of notices: what they find in the store, and that two servers find it once. */
import assert from 'node:assert/strict'
import type {SweepKind} from '../../../src/core/notice-sweeps.ts'
import type {RuleDefinition} from '../../../src/core/notice-rule.ts'
import type {Case} from './case.ts'
import {addRule, evaluate, REPORT} from './notices.ts'
import {aRow, DAY, HOUR, MINUTE, type Scene} from './scene.ts'

const EVERY_MS = {cluster: 10_000, executions: 15_000, jobs: 60_000}
const MANUAL = {schedule: '@manually'}

/** Makes a whole sweep, and returns what opened and closed: `+rule/a/late -rule/b/late`. */
async function sweep(scene: Scene, kind: SweepKind, rowsMax = 1_000): Promise<string> {
  const changes: string[] = []
  let after: string | null = ''
  while (after !== null) {
    const step = {kind, after, rowsMax}
    const read = await scene.store.sweepNotices(step)
    after = read.next
    if (!read.changes) continue
    const result = await evaluate(scene, 0, REPORT, step)
    changes.push(...result.opened.map(({key}) => `+${key}`))
    changes.push(...result.closed.map(({key}) => `-${key}`))
    after = result.next
  }
  return changes.toSorted().join(' ')
}

/** Content of the messages that are sent now. */
async function sentences(scene: Scene): Promise<readonly string[]> {
  scene.advance(5_000)
  await evaluate(scene)
  const claimed = await scene.store.claimNotices({sender: 'a', free: {}, otherwise: 10})
  return claimed.flatMap(({message}) => message.incidents.flatMap((each) => each.sentences))
}

async function addSweep(
  scene: Scene,
  when: RuleDefinition['when'],
  fields: Partial<RuleDefinition> = {},
): Promise<void> {
  await addRule(scene, {when, ...fields})
}

export function sweepCases(when: Case): void {
  when('without a rule there is nothing to do, and looks may be rare', async (scene) => {
    await scene.submit('a')
    const due = await scene.store.noticesDue({olderThanMs: 0, sweepEveryMs: EVERY_MS})
    assert.deepEqual([due.isIdle, due.sweeps, due.evaluate, due.deliver], [true, [], false, false])
    await addSweep(scene, {failed: {}})
    const ruled = await scene.store.noticesDue({olderThanMs: 0, sweepEveryMs: EVERY_MS})
    assert.deepEqual([ruled.isIdle, ruled.sweeps, ruled.watchesStore], [false, [], false])
    await addSweep(scene, {late: {by: '1m'}, no_leader: {}, store: {}})
    const swept = await scene.store.noticesDue({olderThanMs: 0, sweepEveryMs: EVERY_MS})
    assert.deepEqual([swept.sweeps, swept.watchesStore], [['cluster', 'executions'], true])
    await scene.store.deleteRule('rule')
    await evaluate(scene)
    const gone = await scene.store.noticesDue({olderThanMs: 0, sweepEveryMs: EVERY_MS})
    assert.deepEqual([gone.isIdle, gone.sweeps], [true, []])
  })

  when('one of two servers makes a sweep, and the other one if it does not', async (scene) => {
    await addSweep(scene, {late: {by: '1m'}})
    const claim = (everyMs = 15_000) => scene.store.claimSweep({kind: 'executions', everyMs})
    const both = await Promise.all([claim(), claim()])
    assert.deepEqual(both.toSorted(), [false, true])
    scene.advance(15_000)
    assert.equal(await claim(30_000), false)
    scene.advance(15_000)
    assert.equal(await claim(30_000), true)
    scene.advance(-HOUR) // the clock was set back
    assert.equal(await claim(), true)
  })

  when('a planned time that stays undecided is late, until it is decided', async (scene) => {
    await addSweep(scene, {late: {by: '5m'}}, {jobs: 'a*'})
    const job = await scene.submit('a', {schedule: '@every 1h'})
    await scene.submit('b', {schedule: '@every 1h'})
    scene.advance(HOUR + 4 * MINUTE)
    assert.equal(await sweep(scene, 'executions'), '')
    scene.advance(2 * MINUTE)
    assert.equal(await sweep(scene, 'executions'), '+rule/a/late')
    assert.equal(await sweep(scene, 'executions'), '')
    assert.match((await sentences(scene)).join(), /planned for 2026-01-15T13:00:00Z is undecided/)
    const row = aRow(job.nextAt!, 'skipped')
    await scene.decide(job, [row], job.nextAt! + HOUR)
    assert.equal(await sweep(scene, 'executions'), '-rule/a/late')
  })

  when('a first attempt that does not start is late, until it starts', async (scene) => {
    await addSweep(scene, {late: {by: '5m'}})
    await scene.submit('a', MANUAL)
    await scene.run('a')
    scene.advance(4 * MINUTE)
    assert.equal(await sweep(scene, 'executions'), '')
    scene.advance(MINUTE)
    assert.equal(await sweep(scene, 'executions'), '+rule/a/late')
    await scene.claimOne()
    assert.equal(await sweep(scene, 'executions'), '-rule/a/late')
  })

  when('of more rows than a sweep reads, it closes nothing', async (scene) => {
    await addSweep(scene, {late: {by: '5m'}})
    for (const name of ['a', 'b', 'c']) {
      await scene.submit(name, MANUAL)
      await scene.run(name)
    }
    scene.advance(10 * MINUTE)
    assert.equal(await sweep(scene, 'executions'), '+rule/a/late +rule/b/late +rule/c/late')
    assert.equal(await sweep(scene, 'executions', 2), '')
    await scene.claim()
    assert.equal(await sweep(scene, 'executions'), '-rule/a/late -rule/b/late -rule/c/late')
  })

  when('an execution runs for too long, until it ends', async (scene) => {
    await addSweep(scene, {running: {for: '30m'}})
    await scene.submit('a', MANUAL)
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    scene.advance(29 * MINUTE)
    assert.equal(await sweep(scene, 'executions'), '')
    scene.advance(MINUTE)
    assert.equal(await sweep(scene, 'executions'), '+rule/a/running')
    await scene.end(claimed, 'succeeded')
    assert.equal(await sweep(scene, 'executions'), '-rule/a/running')
    assert.ok(group > 0)
  })

  when('an execution runs for several times its typical duration', async (scene) => {
    await addSweep(scene, {running: {times: 3}})
    await scene.submit('a', MANUAL)
    await scene.submit('new', MANUAL)
    await scene.complete('a', 'succeeded', {durationMs: 2 * MINUTE})
    await scene.run('a')
    await scene.run('new')
    await scene.claim()
    scene.advance(5 * MINUTE)
    assert.equal(await sweep(scene, 'executions'), '')
    scene.advance(MINUTE)
    assert.equal(await sweep(scene, 'executions'), '+rule/a/running')
  })

  when('a job without a success for too long, page by page', async (scene) => {
    await addSweep(scene, {no_success_for: {for: '26h'}})
    for (const name of ['a', 'b', 'c', 'd', 'e']) await scene.submit(name, MANUAL)
    scene.advance(26 * HOUR - 1)
    await scene.complete('c', 'succeeded')
    assert.equal(await sweep(scene, 'jobs', 2), '')
    scene.advance(1)
    const all = ['a', 'b', 'd', 'e'].map((name) => `+rule/${name}/no_success_for`)
    assert.equal(await sweep(scene, 'jobs', 2), all.join(' '))
    assert.equal(await sweep(scene, 'jobs', 2), '')
    assert.equal(await sweep(scene, 'jobs'), '')
    await scene.complete('a', 'failed')
    await evaluate(scene)
    assert.equal(await sweep(scene, 'jobs', 2), '')
    // A success closes it at once: the sweep has marked the job as watched.
    await scene.complete('a', 'succeeded')
    assert.deepEqual((await evaluate(scene)).closed, [{key: 'rule/a/no_success_for', rule: 'rule'}])
    assert.equal(await sweep(scene, 'jobs', 3), '')
    await scene.store.deleteJob('e')
    await evaluate(scene)
    assert.equal(await sweep(scene, 'jobs', 3), '-rule/e/no_success_for')
  })

  when('no success: of a disabled job, without a node, paused, deleted', async (scene) => {
    await addSweep(scene, {no_success_for: {for: '1h'}}, {jobs: 'a'})
    await addRule(scene, {name: 'more', jobs: 'b*', when: {no_success_for: {for: '1h'}}})
    await scene.submit('a', MANUAL)
    await scene.submit('b-disabled', {...MANUAL, disabled: true})
    await scene.submit('b-tags', {...MANUAL, tags: {zone: 'none'}})
    await scene.submit('b-paused', MANUAL)
    const until = {afterMs: 10 * HOUR}
    await scene.store.pauseFiring({jobs: 'b-paused', reason: '', until})
    await scene.store.deleteJob('a')
    scene.advance(59 * MINUTE)
    assert.equal(await sweep(scene, 'jobs'), '')
    scene.advance(MINUTE)
    const keys = ['disabled', 'paused', 'tags'].map((name) => `+more/b-${name}/no_success_for`)
    assert.equal(await sweep(scene, 'jobs', 2), [...keys, '+rule/a/no_success_for'].join(' '))
    assert.equal(await sweep(scene, 'jobs', 2), '')
    const texts = (await sentences(scene)).join('\n')
    for (const part of [/disabled/, /paused/, /no node has its tags/, /no job has this name/])
      assert.match(texts, part)
    await scene.submit('a', MANUAL)
    assert.equal(await sweep(scene, 'jobs'), '-rule/a/no_success_for')
  })

  when('a rule about owner and metadata, and one that may not read', async (scene) => {
    const path = {'/v1/jobs/b': {capabilities: ['read']}}
    await scene.store.putPolicy({name: 'team', rules: JSON.stringify({path})})
    const condition = {no_success_for: {for: '1h'}}
    await addRule(scene, {when: condition, owner: 'data', metadata: {team: 'x'}})
    const author = {name: 'anna', kind: 'client', policies: ['team']} as const
    await addRule(scene, {name: 'team', when: {...condition, no_leader: {}}}, author)
    await scene.submit('a', {...MANUAL, owner: 'data', metadata: {team: 'x'}})
    await scene.submit('b', {...MANUAL, owner: 'data', metadata: {team: 'y'}})
    await scene.submit('c', MANUAL)
    scene.advance(HOUR)
    const found = '+rule/a/no_success_for +team/b/no_success_for'
    assert.equal(await sweep(scene, 'jobs', 1), found)
    // A condition about the cluster needs the right to list its members.
    scene.advance(HOUR)
    assert.equal(await sweep(scene, 'cluster'), '')
  })

  when('a success expected by a time of day', async (scene) => {
    const expected = {schedule: '0 0 6 * * *', timezone: 'UTC', since: '8h'}
    await addSweep(scene, {expected_by: expected})
    await scene.submit('a', MANUAL)
    await scene.submit('b', MANUAL)
    scene.advance(17 * HOUR) // 05:00
    await scene.complete('a', 'succeeded')
    assert.equal(await sweep(scene, 'jobs'), '')
    scene.advance(HOUR - 1)
    assert.equal(await sweep(scene, 'jobs'), '')
    scene.advance(1)
    assert.equal(await sweep(scene, 'jobs'), '+rule/b/expected_by')
    assert.equal(await sweep(scene, 'jobs'), '')
    scene.advance(HOUR)
    await scene.complete('b', 'succeeded')
    assert.equal((await evaluate(scene)).closed.length, 1)
    // The rule is stored again after its time: it tells nothing about the past.
    await addSweep(scene, {expected_by: {...expected, since: '5m'}})
    assert.equal(await sweep(scene, 'jobs'), '')
    scene.advance(DAY)
    assert.equal(await sweep(scene, 'jobs'), '+rule/a/expected_by +rule/b/expected_by')
  })

  when('no server leads: after the lease, and until one does', async (scene) => {
    await addSweep(scene, {no_leader: {}})
    assert.equal(await sweep(scene, 'cluster'), '')
    scene.advance(6_000 + 29_000)
    assert.equal(await sweep(scene, 'cluster'), '')
    scene.advance(1_000)
    assert.equal(await sweep(scene, 'cluster'), '+rule/cluster/no_leader')
    assert.equal(await sweep(scene, 'cluster'), '')
    await scene.lead('holder-2')
    assert.equal(await sweep(scene, 'cluster'), '-rule/cluster/no_leader')
    await scene.store.resignLease({term: scene.term, holder: 'holder-2'})
    scene.advance(30_000)
    assert.equal(await sweep(scene, 'cluster'), '+rule/cluster/no_leader')
  })

  when('a node that failed, a pause of firing, undecided planned times', async (scene) => {
    await addSweep(scene, {node_failed: {}, firing_paused: {}, undecided: {}})
    await scene.join('n2')
    await scene.submit('a', {schedule: '@every 3h'})
    await scene.store.pauseFiring({jobs: 'x-*', reason: 'move', until: {afterMs: 2 * HOUR}})
    assert.equal(await sweep(scene, 'cluster'), '')
    assert.ok(await scene.fail('n2', 'n2-incarnation-1'))
    assert.equal(await sweep(scene, 'cluster'), '+rule/node-2/node_failed')
    await scene.join('n2', 'n2-incarnation-2')
    assert.equal(await sweep(scene, 'cluster'), '-rule/node-2/node_failed')
    scene.advance(HOUR)
    assert.equal(await sweep(scene, 'cluster'), '+rule/x-*/firing_paused')
    scene.advance(HOUR)
    assert.equal(await sweep(scene, 'cluster'), '-rule/x-*/firing_paused')
    scene.advance(HOUR + 59_000)
    assert.equal(await sweep(scene, 'cluster'), '')
    scene.advance(1_000)
    assert.equal(await sweep(scene, 'cluster'), '+rule/cluster/undecided')
  })

  when('a channel that fails for an hour, until it delivers', async (scene) => {
    await addSweep(scene, {notices_failing: {}})
    await scene.store.recordChannelTest({name: 'mail', error: '503: the receiver failed'})
    scene.advance(HOUR - 1)
    assert.equal(await sweep(scene, 'cluster'), '')
    scene.advance(1)
    assert.equal(await sweep(scene, 'cluster'), '+rule/mail/notices_failing')
    assert.deepEqual((await scene.store.noticesState()).failing, ['mail'])
    await scene.store.recordChannelTest({name: 'mail', error: null})
    assert.equal(await sweep(scene, 'cluster'), '-rule/mail/notices_failing')
    assert.deepEqual(await scene.store.noticesState(), {failing: [], dead: 0})
  })

  when('two servers that find the same open it once', async (scene) => {
    await addSweep(scene, {no_success_for: {for: '1h'}})
    await scene.submit('a', MANUAL)
    scene.advance(HOUR)
    const step = {kind: 'jobs', after: '', rowsMax: 10} as const
    const found = await Promise.all([
      scene.store.sweepNotices(step),
      scene.store.sweepNotices(step),
    ])
    assert.deepEqual(
      found.map(({changes}) => changes),
      [true, true],
    )
    const results = await Promise.all([
      evaluate(scene, 0, REPORT, step),
      evaluate(scene, 0, REPORT, step),
    ])
    assert.equal(results.flatMap(({opened}) => opened).length, 1)
    // A success between the read and the evaluation is seen by the evaluation.
    await scene.store.deleteRule('rule')
    await evaluate(scene)
    await addSweep(scene, {no_success_for: {for: '1h'}}, {name: 'other'})
    assert.equal((await scene.store.sweepNotices(step)).changes, true)
    await scene.complete('a', 'succeeded')
    assert.deepEqual((await evaluate(scene, 0, REPORT, step)).opened, [])
  })

  when('the rules about the store, and the number of its outage', async (scene) => {
    await addSweep(scene, {store: {}}, {to: ['mail', 'chat']})
    await addRule(scene, {name: 'other', to: ['mail']})
    const {rules, channels, outage, clusterId} = await scene.store.storeAlarms()
    assert.deepEqual(
      [rules.map(({name}) => name), channels.map(({name}) => name), outage],
      [['rule'], ['chat', 'mail'], 1],
    )
    assert.equal(clusterId, (await scene.store.info()).clusterId)
    // Each of the servers ends it; it has ended once.
    await scene.store.endStoreOutage(1)
    await scene.store.endStoreOutage(1)
    assert.equal((await scene.store.storeAlarms()).outage, 2)
  })
}
