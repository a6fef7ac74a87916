/** The facts of problems: which rows are read, how far, and that problems follow from them. */
import assert from 'node:assert/strict'
import {problemsOf} from '../../../src/core/problems/problems.ts'
import type {ProblemQuery} from '../../../src/ports/history-store.ts'
import type {Case} from './case.ts'
import {aRow, HOUR, MINUTE, type Scene} from './scene.ts'

const QUERY: ProblemQuery = {
  names: null,
  job: null,
  metadata: [],
  since: {agoMs: 8 * HOUR},
  until: null,
  firstUntil: null,
  keepLaunches: 1_000,
}
const CONTEXT = {
  defaultTarget: 'one',
  seesNodes: true,
  isFiltered: false,
  isStoreDown: false,
} as const
const PAGE = {open: false, after: null, limit: 100}

const ALICE = {name: 'alice', accessor: 'a', kind: 'client', address: ''} as const

/**
 * Kind, code, state and jobs of each problem, with its planned times, in the order of the list. No leader
 * decides the later planned times of a scene: that they are due is left out.
 */
async function problems(scene: Scene, query: Partial<ProblemQuery> = {}): Promise<string[]> {
  await lead(scene)
  const facts = await scene.store.problemFacts({...QUERY, ...query})
  const {problems: found, onPurpose} = problemsOf(facts, CONTEXT, PAGE)
  const shown = [...found, ...onPurpose].filter(({code}) => code !== 'undecided')
  return shown.map(({kind, code, isOver, jobs, plannedTimes}) => {
    return `${kind} ${code} ${isOver ? 'over' : 'open'} ${jobs.join(',')} ${plannedTimes}`
  })
}

/** Keeps the lease of the scene. */
async function lead({store, term}: Scene): Promise<void> {
  assert.ok(await store.renewLease({term, holder: 'holder-1', ttlMs: 30 * 24 * HOUR}))
}

/** Decides the next planned time of a job. */
async function skip(scene: Scene, name: string, reason: string, count = 1): Promise<void> {
  const job = await scene.job(name)
  const at = job.nextAt!
  const until = at + (count - 1) * MINUTE
  const row = aRow(at, 'skipped', {reason, count, scheduledUntil: until})
  await scene.decide(job, [row], until + MINUTE)
}

async function launchPlanned(scene: Scene, name: string): Promise<void> {
  const job = await scene.job(name)
  await scene.decide(job, [aRow(job.nextAt!, 'launched')], job.nextAt! + MINUTE)
}

export function problemCases(when: Case): void {
  when('rows with one cause are one problem, which is over after a later launch', async (scene) => {
    await lead(scene)
    const schedule = '@every 1m'
    for (const name of ['a', 'b']) await scene.submit(name, {schedule, tags: {group: 'wbe'}})
    await scene.submit('c', {schedule, tags: {group: 'x'}})
    scene.advance(10 * MINUTE)
    for (const name of ['a', 'b', 'c']) await skip(scene, name, 'no_target', 4)
    await skip(scene, 'b', 'forbid: launch 9 is still open')
    assert.deepEqual((await problems(scene)).toSorted(), [
      'skipped forbid open b 1',
      'skipped no_target open b,a 8',
      'skipped no_target open c 4',
    ])
    for (const name of ['a', 'c']) await launchPlanned(scene, name)
    assert.deepEqual((await problems(scene)).toSorted(), [
      'skipped forbid open b 1',
      'skipped no_target open b,a 8',
      'skipped no_target over c 4',
    ])
    await launchPlanned(scene, 'b')
    assert.deepEqual(
      (await problems(scene)).filter((text) => text.includes('open')),
      [],
    )
  })

  when('an earlier row is over although a later one of the job is not', async (scene) => {
    await lead(scene)
    await scene.submit('f')
    await scene.complete('f', 'failed', {exitCode: 1})
    await scene.complete('f', 'succeeded')
    await scene.complete('f', 'failed', {exitCode: 2})
    const failed = (await problems(scene)).filter((text) => text.startsWith('failed'))
    assert.deepEqual(failed, ['failed failed open f 1', 'failed failed over f 1'])
    await scene.submit('a', {schedule: '@every 1m', concurrency: 'forbid'})
    scene.advance(10 * MINUTE)
    await skip(scene, 'a', 'forbid')
    await launchPlanned(scene, 'a')
    await skip(scene, 'a', 'no_target')
    assert.deepEqual((await problems(scene, {job: 'a'})).toSorted(), [
      'skipped forbid over a 1',
      'skipped no_target open a 1',
    ])
  })

  when('a chain that fails is one problem, and a cancelled launch is none', async (scene) => {
    for (const [name, parentJob] of [
      ['a', ''],
      ['b', 'a'],
      ['c', 'b'],
    ] as const)
      await scene.submit(name, {parentJob, schedule: parentJob === '' ? '@every 1h' : ''})
    await scene.complete('a', 'failed', {exitCode: 3})
    assert.deepEqual(await problems(scene), ['failed failed open a,b,c 1'])
    await scene.complete('a', 'succeeded')
    assert.deepEqual(await problems(scene), ['failed failed over a,b,c 1'])
    await scene.submit('d')
    await scene.complete('d', 'cancelled')
    assert.deepEqual(await problems(scene, {job: 'd'}), [])
  })

  when('lost attempts are one problem until their launches have ended', async (scene) => {
    await scene.join('n2')
    for (const name of ['a', 'b']) {
      await scene.submit(name, {retries: 1})
      await scene.run(name, ['n2'])
    }
    const claimed = await scene.claim('n2')
    assert.equal(claimed.length, 2)
    scene.advance(MINUTE)
    await scene.fail('n2', 'n2-incarnation-1')
    for (const one of claimed) await scene.end(one, 'lost', {reason: 'node_lost'})
    const [lost, ...others] = await problems(scene)
    assert.match(lost!, /^lost node_lost open (a,b|b,a) 2$/)
    assert.deepEqual(others, [], 'the failed node is part of it')
    assert.deepEqual(
      (await scene.store.problemFacts(QUERY)).endsOf.get(claimed[0]!.execution.group),
      {open: true, status: null, closedAt: null},
    )
  })

  when('spans of disabled jobs are counted from the begin of the range', async (scene) => {
    await lead(scene)
    await scene.submit('a', {schedule: '@every 1m'})
    scene.advance(1_000)
    await scene.store.toggle('a', null, ALICE, true)
    scene.advance(3 * HOUR)
    assert.deepEqual(await problems(scene), ['on_purpose disabled open a 180'])
    assert.deepEqual(await problems(scene, {since: {agoMs: HOUR}}), [
      'on_purpose disabled open a 60',
    ])
    await scene.store.toggle('a', null, ALICE, false)
    assert.deepEqual(await problems(scene), ['on_purpose disabled over a 180'])
    scene.advance(HOUR)
    assert.deepEqual(
      (await problems(scene, {since: {agoMs: HOUR / 2}})).filter((text) =>
        text.includes('disabled'),
      ),
      [],
      'a span that ended before the range is not part of it',
    )
  })

  when('what waits, runs for long or is due is read, oldest first', async (scene) => {
    await lead(scene)
    await scene.submit('long')
    const group = await scene.run('long')
    await scene.claimOne()
    await scene.submit('waits', {schedule: '@every 1m'})
    await scene.store.requestRun({name: 'waits', forced: true, idempotency: null})
    await scene.submit('queued')
    await scene.run('queued')
    scene.advance(11 * MINUTE)
    const facts = await scene.store.problemFacts(QUERY)
    assert.deepEqual(
      [facts.running.map((each) => each.group), facts.queued.map((each) => each.jobName)],
      [[group], ['queued']],
    )
    assert.deepEqual(
      facts.pending.map(({jobName}) => jobName),
      ['waits'],
    )
    assert.deepEqual(facts.due.map(({jobName}) => jobName).toSorted(), ['long', 'queued', 'waits'])
    const past = await scene.store.problemFacts({...QUERY, until: scene.now - 1})
    assert.deepEqual([past.running, past.queued, past.pending, past.due], [[], [], [], []])
  })

  when('planned times around a time without a leader are part of it', async (scene) => {
    const {store, term} = scene
    await store.renewLease({term, holder: 'holder-1', ttlMs: MINUTE})
    await scene.submit('a', {schedule: '@every 1m'})
    scene.advance(10 * MINUTE)
    const facts = await store.problemFacts(QUERY)
    const open = problemsOf(facts, CONTEXT, PAGE).problems
    assert.deepEqual(
      open.map(({code, isOver, jobs}) => [code, isOver, jobs]),
      [['no_leader', false, ['a']]],
    )
    await scene.lead('holder-2')
    const job = await scene.job('a')
    const at = job.nextAt!
    const missed = {reason: 'catch_up_skip', count: 9, scheduledUntil: at + 8 * MINUTE}
    await scene.decide(
      job,
      [aRow(at, 'missed', missed), aRow(at + 9 * MINUTE, 'launched')],
      at + 10 * MINUTE,
    )
    const over = problemsOf(await store.problemFacts(QUERY), CONTEXT, PAGE).problems
    assert.deepEqual(
      over.map(({code, isOver, jobs, plannedTimes}) => [code, isOver, jobs, plannedTimes]),
      [['no_leader', true, ['a'], over[0]!.plannedTimes]],
    )
    assert.ok(over[0]!.plannedTimes >= 9)
  })

  when('names, a job, metadata and the range choose the rows', async (scene) => {
    await lead(scene)
    const metadata = {team: 'x'}
    await scene.submit('team-a', {schedule: '@every 1m', metadata})
    await scene.submit('team-b', {schedule: '@every 1m', disabled: true})
    await scene.submit('team-c', {schedule: '@every 1m'})
    scene.advance(10 * MINUTE)
    for (const name of ['team-a', 'team-c']) {
      await skip(scene, name, 'forbid')
      await scene.complete(name, 'failed', {exitCode: 3})
    }
    const only = async (query: Partial<ProblemQuery>) => {
      const found = await problems(scene, query)
      return [...new Set(found.map((text) => /team-\w/.exec(text)![0]))].toSorted()
    }
    assert.deepEqual(await only({}), ['team-a', 'team-b', 'team-c'])
    assert.deepEqual(await only({names: [{pattern: 'team-a*', shown: true}]}), ['team-a'])
    assert.deepEqual(await only({names: [{pattern: 'team-b', shown: true}]}), ['team-b'])
    assert.deepEqual(await only({names: []}), [])
    assert.deepEqual(await only({job: '*-c'}), ['team-c'])
    assert.deepEqual(await only({metadata: [{key: 'team', value: 'x'}]}), ['team-a'])
    scene.advance(HOUR)
    assert.deepEqual(await only({since: {agoMs: MINUTE}, job: 'team-a'}), [])
    assert.deepEqual(await only({until: scene.now - HOUR, job: 'team-a'}), ['team-a'])
    await scene.store.deleteJob('team-a')
    assert.deepEqual(await only({names: [{pattern: 'team-a*', shown: true}]}), [])
  })

  when(
    'the history of a job is complete since its oldest row if others were deleted',
    async (scene) => {
      await scene.submit('a')
      await scene.complete('a', 'failed')
      const [launch] = await scene.launches('a')
      const kept = async (keepLaunches: number) => {
        const {keptFrom} = await scene.store.problemFacts({...QUERY, keepLaunches})
        return [...keptFrom.values()]
      }
      assert.deepEqual([await kept(1), await kept(2)], [[launch!.storedAt], []])
    },
  )
}
