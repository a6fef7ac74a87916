/** Lists over all jobs, page by page; a launch of any job; the chain of a launch. */
import assert from 'node:assert/strict'
import type {
  ExecutionListQuery,
  LaunchListQuery,
  LaunchView,
} from '../../../src/ports/history-store.ts'
import type {Position} from '../../../src/ports/page.ts'
import type {Case} from './case.ts'
import {aRow, HOUR, MINUTE, type Scene} from './scene.ts'

const RANGE = {
  names: null,
  job: null,
  node: null,
  since: null,
  until: null,
  endedSince: null,
  after: null,
  limit: 100,
} as const
const LAUNCHES: LaunchListQuery = {
  ...RANGE,
  metadata: [],
  decision: null,
  reason: null,
  cause: null,
  status: null,
}
const EXECUTIONS: ExecutionListQuery = {
  ...RANGE,
  status: 'not_pending',
  reason: null,
  exitCode: null,
  minDurationMs: null,
  outputBytes: 0,
}

async function groups(scene: Scene, query: Partial<LaunchListQuery>) {
  const page = await scene.store.launchList({...LAUNCHES, ...query})
  return page.items.map(({group}) => group)
}

async function executions(scene: Scene, query: Partial<ExecutionListQuery>) {
  const page = await scene.store.executionList({...EXECUTIONS, ...query})
  return page.items.map(({group}) => group)
}

/** Rows of all pages; `between` plays between two pages. */
async function paged(
  scene: Scene,
  query: Partial<LaunchListQuery>,
  between: () => Promise<void> = async () => {},
): Promise<LaunchView[]> {
  const rows: LaunchView[] = []
  for (let after: Position | null = null; ; await between()) {
    const {items, next} = await scene.store.launchList({...LAUNCHES, limit: 2, ...query, after})
    rows.push(...items)
    if (next === null) return rows
    after = next
  }
}

/** Skips the next planned time of a job: a row of its own, or one more time of the newest row. */
async function skip(scene: Scene, name: string, reason: string) {
  const job = await scene.job(name)
  const row = aRow(job.nextAt!, 'skipped', {reason})
  const applied = await scene.decide(job, [row], job.nextAt! + MINUTE)
  return applied.decided[0]!.launch.group
}

export function acrossJobsCases(when: Case): void {
  when(
    'a launch names its parent, the root of its chain, its children and its end',
    async (scene) => {
      await scene.submit('a')
      await scene.submit('b', {parentJob: 'a', schedule: ''})
      await scene.submit('c', {parentJob: 'b', schedule: ''})
      scene.advance(MINUTE)
      const root = await scene.complete('a', 'failed', {exitCode: 3})
      const [b] = await scene.launches('b')
      const [c] = await scene.launches('c')
      const a = await scene.store.launchOfAny(root, null)
      assert.deepEqual(
        [a!.status, a!.closedAt, a!.parent, a!.rootGroup, a!.children],
        [
          'failed',
          scene.now,
          null,
          null,
          [{group: b!.group, jobName: 'b', decision: 'skipped', status: null}],
        ],
      )
      assert.deepEqual(b!.parent, {
        group: root,
        jobName: 'a',
        decision: 'launched',
        status: 'failed',
      })
      assert.deepEqual([c!.rootGroup, c!.parent?.group], [root, b!.group])
      assert.deepEqual(await scene.store.launchOfAny(b!.group, null), b)
      assert.equal(await scene.store.launchOfAny(root, [{pattern: 'b*', shown: true}]), null)
      assert.equal(await scene.store.launchOfAny(9_999, null), null)
      const chain = await scene.store.trace(c!.group, 10)
      assert.deepEqual(
        chain.map(({group, jobName, parentGroup, endedAt, failure}) => {
          return [group, jobName, parentGroup, endedAt, failure]
        }),
        [
          [root, 'a', null, scene.now, {status: 'failed', reason: '', exitCode: 3}],
          [b!.group, 'b', root, null, null],
          [c!.group, 'c', b!.group, null, null],
        ],
      )
      assert.deepEqual((await scene.store.trace(c!.group, 2)).length, 2)
      assert.deepEqual(await scene.store.trace(9_999, 10), [])
      await scene.store.deleteJob('c')
      assert.equal(await scene.store.launchOfAny(c!.group, null), null, 'its job is deleted')
      assert.equal((await scene.store.trace(root, 10)).length, 2)
    },
  )

  when('launches of all jobs are listed newest first, by each filter', async (scene) => {
    await scene.join('n2')
    await scene.submit('team-a-x', {metadata: {team: 'a'}})
    await scene.submit('team-b_x', {schedule: '@every 1m', metadata: {team: 'b'}})
    const one = await scene.complete('team-a-x', 'succeeded')
    scene.advance(HOUR)
    const since = scene.now
    const two = await scene.complete('team-b_x', 'failed')
    const three = await skip(scene, 'team-b_x', 'forbid: launch 1 is still open')
    scene.advance(HOUR)
    const until = scene.now
    const four = await scene.run('team-a-x', ['n2'])
    const cases: [Partial<LaunchListQuery>, number[]][] = [
      [{}, [four, three, two, one]],
      [{since}, [four, three, two]],
      [{until}, [three, two, one]],
      [{since, until}, [three, two]],
      [{since: until + 1}, []],
      [{until: 0}, []],
      [{decision: 'launched'}, [four, two, one]],
      [{decision: 'skipped'}, [three]],
      [{decision: 'missed'}, []],
      [{decision: 'skipped', since: until}, []],
      [{decision: 'skipped', until: since}, []],
      [{reason: 'forbid'}, [three]],
      [{reason: 'no_target'}, []],
      [{cause: 'manual'}, [four, two, one]],
      [{job: 'team-b_x'}, [three, two]],
      [{job: 'Team-B*'}, [three, two]],
      [{job: 'team-b_*'}, [three, two]],
      [{job: 'team-_*'}, []],
      [{node: 'node-2'}, [four]],
      [{metadata: [{key: 'team', value: 'a'}]}, [four, one]],
      [{metadata: [{either: 'b'}]}, [three, two]],
      [{names: [{pattern: 'team-a-*', shown: true}]}, [four, one]],
      [{names: []}, []],
      [{status: 'success'}, [one]],
      [{status: 'failed'}, [two]],
      [{status: 'failed', endedSince: since}, [two]],
      [{status: 'failed', endedSince: until}, []],
      [{status: 'failed', endedSince: since, decision: 'skipped'}, []],
      [{status: 'failed', endedSince: since, until: since}, []],
      [{limit: 1}, [four]],
    ]
    for (const [query, expected] of cases)
      assert.deepEqual(await groups(scene, query), expected, JSON.stringify(query))
    const [row] = (await scene.store.launchList({...LAUNCHES, limit: 1})).items
    assert.deepEqual(row, await scene.store.launch('team-a-x', four))
  })

  when('a row that covers days is found by its last planned time', async (scene) => {
    await scene.submit('a', {schedule: '@every 1m'})
    await scene.submit('b', {schedule: '@every 1m'})
    const long = await skip(scene, 'a', 'forbid: x')
    const short = await skip(scene, 'b', 'forbid: x')
    scene.advance(HOUR)
    const since = scene.now
    assert.equal(await skip(scene, 'a', 'forbid: x'), long)
    assert.deepEqual(await groups(scene, {decision: 'skipped'}), [long, short])
    assert.deepEqual(await groups(scene, {decision: 'skipped', since}), [long])
  })

  when('executions of all jobs are listed newest first, by each filter', async (scene) => {
    await scene.join('n2')
    await scene.submit('team-a-x')
    await scene.submit('team-b-x')
    const one = await scene.complete('team-a-x', 'succeeded', {output: 'so far'})
    scene.advance(HOUR)
    const since = scene.now
    const two = await scene.complete('team-b-x', 'failed', {exitCode: 3, durationMs: 9_000})
    const three = await scene.complete('team-b-x', 'lost', {reason: 'node_lost'})
    scene.advance(HOUR)
    const until = scene.now
    const four = await scene.run('team-a-x', ['n2'])
    await scene.claim('n2')
    const five = await scene.run('team-a-x')
    scene.advance(MINUTE)
    const cases: [Partial<ExecutionListQuery>, number[]][] = [
      [{}, [four, three, two, one]],
      [{status: null}, [five, four, three, two, one]],
      [{status: 'pending'}, [five]],
      [{status: 'running'}, [four]],
      [{since}, [four, three, two]],
      [{until, since}, [three, two]],
      [{node: 'node-2'}, [four]],
      [{job: 'team-b-*'}, [three, two]],
      [{names: [{pattern: 'team-a-*', shown: true}]}, [four, one]],
      [{reason: 'node_lost'}, [three]],
      [{exitCode: 3}, [two]],
      [{minDurationMs: 9_000}, [four, two]],
      [{status: 'failed', endedSince: since}, [two]],
      [{status: 'lost', endedSince: since}, [three]],
      [{status: 'lost', endedSince: until}, []],
      [{status: 'failed', endedSince: since, until: since}, []],
    ]
    for (const [query, expected] of cases)
      assert.deepEqual(await executions(scene, query), expected, JSON.stringify(query))
    const page = await scene.store.executionList({...EXECUTIONS, job: 'team-a-x', outputBytes: 3})
    assert.equal(new TextDecoder().decode(page.items.at(-1)!.output), 'far')
    const pages: number[] = []
    for (let after: Position | null = null; ;) {
      const query = {...EXECUTIONS, status: null, limit: 2, after}
      const {items, next} = await scene.store.executionList(query)
      pages.push(...items.map(({group}) => group))
      if (next === null) break
      after = next
    }
    assert.deepEqual(pages, [five, four, three, two, one])
  })

  when('pages have each row once while rows are added and pruned', async (scene) => {
    await scene.submit('kept', {schedule: '@every 1m'})
    await scene.submit('pruned', {schedule: '@every 1m'})
    const kept: number[] = []
    for (let at = 0; at < 4; at += 1) {
      scene.advance(MINUTE)
      await scene.complete('pruned', 'failed')
      kept.push(await scene.complete('kept', 'failed'))
      await skip(scene, 'pruned', `forbid: ${at}`)
      kept.push(await skip(scene, 'kept', `forbid: ${at}`))
    }
    const newest = kept.at(-1)!
    const between = async () => {
      await scene.complete('pruned', 'failed')
      await skip(scene, 'pruned', `forbid: between ${scene.now}`)
      scene.advance(MINUTE)
      await scene.store.prune({
        term: scene.term,
        round: 'all',
        after: 0,
        jobLimit: 10,
        rowLimit: 2,
        keepLaunches: 4,
        keepExecutions: 4,
        keepUnlaunched: 4,
        keepMs: null,
        keepOutputBytes: 1_000_000,
      })
    }
    const queries: Partial<LaunchListQuery>[] = [
      {},
      {decision: 'skipped'},
      {status: 'failed', endedSince: 0},
    ]
    for (const query of queries) {
      const all = new Set(await groups(scene, query))
      const rows = await paged(scene, query, between)
      const found = rows.map(({group}) => group)
      assert.equal(new Set(found).size, found.length, 'no row twice')
      const expected = kept.filter((group) => all.has(group)).toReversed()
      assert.ok(expected.length >= 4)
      assert.deepEqual(
        found.filter((group) => group <= newest && kept.includes(group)),
        expected,
      )
    }
  })

  when('a launch is found by its time among many numbers', async (scene) => {
    await scene.submit('a')
    const recorded: [number, number][] = []
    for (let at = 0; at < 40; at += 1) {
      scene.advance(at % 3 === 0 ? HOUR : 0)
      recorded.push([scene.now, await scene.run('a')])
    }
    for (const [since] of [...recorded, [scene.now + 1, 0] as const]) {
      const expected = recorded.filter(([at]) => at >= since).map(([, group]) => group)
      assert.deepEqual(await groups(scene, {since}), expected.toReversed())
      const before = recorded.filter(([at]) => at < since).map(([, group]) => group)
      assert.deepEqual(await groups(scene, {until: since}), before.toReversed())
    }
  })
}
