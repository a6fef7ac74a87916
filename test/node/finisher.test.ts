/** Finisher over the real store: results are stored once, and their follow-ups survive every restart. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {announceFinished, Finisher} from '../../src/node/finisher.ts'
import type {FinishOutcome} from '../../src/core/end-requests.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import {aJob, NOON} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

function anItem(group: number): FinishItem {
  return {
    key: {group, node: 'node-a', attempt: 1},
    token: 'token',
    status: 'succeeded',
    durationMs: 5,
    startedAfterMs: 0,
    exitCode: 0,
    reason: '',
    outputHead: '',
    outputFoot: '',
    output: {offset: 0, bytes: new Uint8Array(), totalBytes: 0},
    dropOutput: false,
    jitter: 0.5,
  }
}

describe('the finisher', () => {
  function aFinisher(finish: (items: readonly FinishItem[]) => Promise<readonly FinishOutcome[]>) {
    const clock = new VirtualClock()
    const events = new RecordedEvents()
    const wakeup = new TestWakeup()
    const finisher = new Finisher({
      store: {finish},
      clock,
      events,
      announce: (outcomes) => announceFinished(outcomes, {wakeup, events}),
      limits: {commitWaitMs: 2, commitPauseMs: 0, commitItemsMax: 4},
    })
    return {clock, events, finisher, wakeup}
  }
  const already = ({key}: FinishItem): FinishOutcome => ({
    kind: 'already',
    key,
    status: 'succeeded',
  })

  it('retries a result of a failed batch alone', async () => {
    let isLocked = true
    const {clock, finisher} = aFinisher(async (items) => {
      if (isLocked && items.some(({key}) => key.group === 1)) throw new StoreUnavailable('locked')
      return items.map(already)
    })
    const stored: number[] = []
    for (const group of [1, 2]) void finisher.finish(anItem(group)).then(() => stored.push(group))
    await clock.advance(1_000)
    assert.deepEqual(stored, [2])
    isLocked = false
    await clock.advance(1_000)
    assert.deepEqual(stored, [2, 1])
  })

  it('batches results and returns to each its own outcome', async () => {
    const batches: number[] = []
    const {clock, finisher} = aFinisher(async (items) => {
      batches.push(items.length)
      return items.map(already)
    })
    const ends = [1, 2, 3, 4, 5, 6].map((group) => finisher.finish(anItem(group)))
    await clock.advance(10)
    assert.deepEqual(
      (await Promise.all(ends)).map(({kind}) => kind),
      Array(6).fill('already'),
    )
    assert.deepEqual(batches, [4, 2])
  })

  it('a repeated finish wakes dependents but emits no second event', async () => {
    const {clock, events, finisher, wakeup} = aFinisher(async (items) => items.map(already))
    const end = finisher.finish(anItem(1))
    await clock.advance(10)
    assert.equal((await end).kind, 'already')
    assert.deepEqual(wakeup.notified, ['run', 'launch'])
    assert.deepEqual(events.of('execution_finished'), [])
  })

  it('retries a result until the store has it', async () => {
    let calls = 0
    const {clock, events, finisher} = aFinisher(async (items) => {
      calls += 1
      if (calls < 4) throw new StoreUnavailable('unavailable')
      if (calls < 6) throw new OutcomeUnknown('perhaps')
      return items.map(already)
    })
    const end = finisher.finish(anItem(1))
    await clock.advance(3 * SECOND)
    assert.equal((await end).kind, 'already')
    assert.equal(events.of('step_failed').length, 5)
    assert.equal(clock.waiting, 0)
  })
})

describe('finishing', () => {
  it('is applied once, however often a reply is lost', async () => {
    const world = new World()
    const node = await world.start({scripts: {job: {ms: 100, output: 'hello', exitCode: 0}}})
    let losses = 0
    node.fault = (method) => (method === 'finish' && losses++ % 3 < 2 ? 'answer_lost' : 'none')
    await world.submit(aJob('job').every('2s'))
    await world.clock.advance(61 * SECOND)
    node.fault = () => 'none'
    await world.clock.advance(900)
    const job = await world.job('job')
    assert.equal(job.counters.successCount, 30)
    assert.equal(node.executor.started.length, 30)
    await world.check(['job'])
    const [today] = await world.store.statistics(1)
    assert.deepEqual(today, {date: NOON - 12 * HOUR, successCount: 30, failedCount: 0})
  })

  it('again changes nothing, with the same or another result', async () => {
    const world = new World()
    const node = await world.start()
    const items: FinishItem[] = []
    const {finish} = node.store
    node.store.finish = (batch) => {
      items.push(...batch)
      return finish(batch)
    }
    await world.submit(aJob('job').manual())
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const before = [await world.job('job'), await world.executions('job')]
    for (const status of ['succeeded', 'failed', 'lost'] as const) {
      const again = {...items[0]!, status}
      const [outcome, twice] = await world.store.finish([again, again])
      assert.deepEqual([outcome!.kind, twice!.kind], ['already', 'already'])
    }
    const otherClaim = {...items[0]!, token: 'of another claim'}
    assert.deepEqual((await world.store.finish([otherClaim]))[0]!.kind, 'unknown')
    assert.deepEqual([await world.job('job'), await world.executions('job')], before)
    await world.check(['job'])
  })

  it('stores the duration measured by the node since the claim', async () => {
    const world = new World()
    const node = await world.start({scripts: {job: {ms: 12_345}}})
    node.delayMs = (method) => (method === 'finish' ? 3 * SECOND : 0)
    await world.submit(aJob('job').manual())
    await world.runByHand('job')
    await world.clock.advance(30 * SECOND)
    const [execution] = await world.executions('job')
    assert.equal(execution!.finishedAt! - execution!.startedAt!, 12_345)
    const [finished] = node.events.of('execution_finished')
    assert.equal(finished!.duration_ms, 12_345)
  })
})

describe('retries', () => {
  it('follow with exponential backoff, up to the limit of the job; the last one decides', async () => {
    const world = new World()
    const script = ({attempt}: {attempt: number}) =>
      ({outcome: attempt === 4 ? 'succeeded' : 'failed', exitCode: attempt === 4 ? 0 : 7}) as const
    const node = await world.start({scripts: {job: script}})
    await world.submit(aJob('job').manual().retrying(5))
    await world.runByHand('job')
    await world.clock.advance(MINUTE)
    const executions = await world.executions('job')
    assert.deepEqual(
      executions.map(({attempt, status}) => [attempt, status]),
      [
        [1, 'failed'],
        [2, 'failed'],
        [3, 'failed'],
        [4, 'succeeded'],
      ],
    )
    executions.slice(1).forEach((retry, index) => {
      const waitedMs = retry.startedAt! - executions[index]!.finishedAt!
      const middleMs = SECOND * 2 ** index
      assert.ok(waitedMs >= middleMs * 0.8 && waitedMs <= middleMs * 1.2 + 5, `${waitedMs}`)
    })
    const job = await world.job('job')
    assert.deepEqual([job.status, job.counters.errorCount], ['success', 3])
    assert.deepEqual(
      node.events.of('execution_finished').map(({retried}) => retried),
      [true, true, true, false],
    )
    await world.check(['job'])
  })

  it('keep their backoff across a restart', async () => {
    const world = new World()
    const scripts = {job: {outcome: 'failed'}} as const
    const first = await world.start({scripts})
    await world.submit(aJob('job').manual().retrying(6))
    await world.runByHand('job')
    await world.clock.advance(20 * SECOND)
    const owed = (await world.executions('job')).at(-1)!
    assert.equal(owed.status, 'pending')
    first.crash()
    const second = await world.start({incarnation: 'second-incarnation', scripts})
    await world.clock.advance(owed.notBefore - world.clock.now() - 1)
    assert.equal(second.executor.started.length, 0)
    await world.clock.advance(SECOND)
    assert.equal(second.executor.started[0]!.run.attempt, owed.attempt)
    await world.clock.advance(10 * MINUTE)
    assert.equal((await world.executions('job')).length, 7)
    await world.check(['job'])
  })

  it('after a crash follow a lost attempt, which never starts again', async () => {
    const world = new World()
    const first = await world.start({scripts: {job: {ms: Infinity}}})
    await world.submit(aJob('job').manual().retrying(1))
    await world.runByHand('job')
    await world.clock.advance(5 * SECOND)
    first.crash()
    await world.start({incarnation: 'second-incarnation'})
    await world.clock.advance(5 * SECOND)
    const executions = await world.executions('job')
    assert.deepEqual(
      executions.map(({status, reason}) => [status, reason]),
      [
        ['lost', 'node_restarted'],
        ['succeeded', ''],
      ],
    )
    await world.check(['job'])
  })

  it('do not follow if the definition was changed to no retries meanwhile', async () => {
    const world = new World()
    await world.start({scripts: {job: {ms: 5 * SECOND, outcome: 'failed'}}})
    await world.submit(aJob('job').manual().retrying(3))
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.submit(aJob('job').manual())
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.statuses('job'), ['failed'])
  })
})

describe('a job that kills its node', () => {
  it('is disabled after the second death, with the reason in its launch record', async () => {
    const world = new World()
    const scripts = {job: {ms: Infinity}}
    let node = await world.start({scripts})
    await world.submit(aJob('job').every('1h').retrying(9))
    await world.runByHand('job')
    for (let death = 1; death <= 4; death += 1) {
      await world.clock.advance(10 * SECOND)
      node.crash()
      node = await world.start({incarnation: `node-${death + 1}`, scripts})
      await world.clock.advance(10 * SECOND)
    }
    assert.deepEqual(await world.statuses('job'), ['lost', 'lost'])
    const job = await world.job('job')
    assert.equal(job.spec.disabled, true)
    assert.equal(job.nextAt, null)
    const reasons = (await world.launches('job')).map(
      ({decision, reason}) => `${decision} ${reason}`,
    )
    assert.match(reasons.join('\n'), /skipped quarantined: nodes died while executing launch \d+/)
    await world.check(['job'])
  })

  it('is not one whose node was stopped gracefully', async () => {
    const world = new World()
    const scripts = {job: {ms: Infinity}}
    let node = await world.start({scripts})
    await world.submit(aJob('job').manual().retrying(9))
    await world.runByHand('job')
    for (let stop = 1; stop <= 4; stop += 1) {
      await world.clock.advance(10 * SECOND)
      await world.clock.finish(node.stop())
      node = await world.start({incarnation: `node-${stop + 1}`, scripts})
      await world.clock.advance(20 * SECOND)
    }
    assert.equal((await world.job('job')).spec.disabled, false)
    assert.deepEqual((await world.statuses('job')).slice(0, 4), Array(4).fill('lost'))
    await world.check(['job'])
  })
})

describe('dependents', () => {
  const parent = aJob('parent').manual()

  it('are launched once for each success of the parent, along the whole chain', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(parent)
    for (const name of ['left', 'right']) await world.submit(aJob(name).childOf('parent'))
    await world.submit(aJob('grandchild').childOf('left'))
    for (let run = 0; run < 3; run += 1) {
      await world.runByHand('parent')
      await world.clock.advance(SECOND)
    }
    for (const name of ['parent', 'left', 'right', 'grandchild']) {
      const runs = node.executor.of(name)
      assert.equal(runs.length, 3, name)
      const rows = await world.launches(name)
      assert.ok(rows.every(({cause}) => cause === (name === 'parent' ? 'manual' : 'parent')))
    }
    const groups = (await world.launches('parent')).map(({group}) => group)
    const parents = (await world.launches('left')).map(({parentGroup}) => parentGroup)
    assert.deepEqual(parents, groups)
    await world.check(['parent', 'left', 'right', 'grandchild'])
  })

  it('are not launched after a failure, a cancel or a partial failure', async () => {
    const world = new World()
    const a = await world.start({name: 'a', tags: {role: 'web'}})
    const b = await world.start({name: 'b', tags: {role: 'web'}, leads: false})
    await world.submit(parent.tagged({role: 'web'}))
    await world.submit(aJob('child').childOf('parent'))
    const outcomes = [
      ['failed', 'failed'],
      ['succeeded', 'failed'],
      ['cancelled', 'succeeded'],
    ] as const
    for (const [ofA, ofB] of outcomes) {
      a.executor.script('parent', {outcome: ofA})
      b.executor.script('parent', {outcome: ofB})
      await world.runByHand('parent')
      await world.clock.advance(2 * SECOND)
    }
    assert.deepEqual(await world.launchReasons('child'), [
      'parent_failed: launch 1 of parent ended failed',
      'parent_failed: launch 3 of parent ended partially failed',
      'parent_failed: launch 5 of parent ended partially failed',
    ])
    a.executor.script('parent', {})
    b.executor.script('parent', {ms: 300})
    await world.runByHand('parent')
    await world.clock.advance(2 * SECOND)
    const launched = (await world.launches('child')).filter(({decision}) => decision === 'launched')
    assert.equal(launched.length, 1, 'one launch after success on all nodes')
    await world.check(['parent', 'child'])
  })

  it('that are disabled or outside their window get a skipped row with the reason', async () => {
    const world = new World()
    await world.start()
    await world.submit(parent)
    await world.submit(aJob('off').childOf('parent').disabled())
    await world.submit(
      aJob('early')
        .childOf('parent')
        .between(NOON + HOUR, null),
    )
    await world.submit(
      aJob('over')
        .childOf('parent')
        .between(null, NOON + 1),
    )
    await world.clock.advance(SECOND)
    await world.runByHand('parent')
    await world.clock.advance(SECOND)
    assert.match((await world.launchLines('off'))[0]!, / skipped disabled$/)
    assert.match((await world.launchLines('early'))[0]!, / skipped outside_window$/)
    assert.match((await world.launchLines('over'))[0]!, / skipped outside_window$/)
    await world.check(['off', 'early', 'over'])
  })

  it('with forbid are skipped while they are running', async () => {
    const world = new World()
    await world.start({scripts: {child: {ms: 10 * SECOND}}})
    await world.submit(parent)
    await world.submit(aJob('child').childOf('parent').forbidding())
    await world.runByHand('parent')
    await world.clock.advance(SECOND)
    await world.runByHand('parent')
    await world.clock.advance(SECOND)
    const decisions = (await world.launches('child')).map(({decision}) => decision)
    assert.deepEqual(decisions, ['launched', 'skipped'])
    await world.check(['child'])
  })

  it('are launched once after a crash of the node at any call', async () => {
    for (let call = 1; call <= 14; call += 1) {
      const world = new World()
      const node = await world.start()
      await world.submit(parent)
      await world.submit(aJob('child').childOf('parent'))
      await world.submit(aJob('grandchild').childOf('child'))
      let left = call
      node.fault = (method) => {
        if (['finish', 'applyLaunches', 'claim'].includes(method) && --left === 0) node.crash()
        return 'none'
      }
      await world.runByHand('parent')
      await world.clock.advance(5 * SECOND)
      node.crash()
      await world.start({incarnation: 'second-incarnation'})
      await world.clock.advance(30 * SECOND)
      const lost = (await world.statuses('parent')).includes('lost')
      const [row, ...others] = await world.launches('child')
      assert.deepEqual(
        [row?.decision, others],
        [lost ? 'skipped' : 'launched', []],
        `crash at call ${call}`,
      )
      await world.check(['parent', 'child', 'grandchild'])
    }
  })
})

describe('an ephemeral job', () => {
  it('is deleted after its first success; that launch stays readable for a day', async () => {
    const world = new World()
    const script = ({attempt}: {attempt: number}) =>
      ({outcome: attempt === 2 ? 'succeeded' : 'failed', output: 'last words'}) as const
    const node = await world.start({scripts: {job: script}, prunes: true})
    await world.submit(aJob('job').every('10s').ephemeral().retrying(3))
    await world.clock.advance(10_500)
    assert.equal((await world.statuses('job'))[0], 'failed')
    const {group} = (await world.launches('job'))[0]!
    await world.clock.advance(5 * SECOND)
    assert.equal(await world.store.job('job'), null)
    assert.deepEqual(node.events.of('job_deleted'), [{job: 'job'}])
    await world.clock.advance(MINUTE)
    assert.equal(node.executor.started.length, 2, 'no further run')
    const key = {group, node: 'node-a', attempt: 2}
    const kept = await world.store.execution('job', key, 100)
    assert.equal(Buffer.from(kept!.output).toString(), 'last words')
    await world.clock.finish(node.stop())
    world.clock.sleep(24 * HOUR)
    await world.start({incarnation: 'second-incarnation', prunes: true})
    await world.clock.advance(MINUTE)
    assert.equal(await world.store.execution('job', key, 100), null)
  })

  it('stays after a failure', async () => {
    const world = new World()
    await world.start({scripts: {job: {outcome: 'failed'}}})
    await world.submit(aJob('job').manual().ephemeral())
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    assert.equal((await world.job('job')).status, 'failed')
  })
})

describe('run on create', () => {
  it('runs once at once, independent of the schedule', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(aJob('job').every('1h'), {runOnCreate: true})
    await world.clock.advance(SECOND)
    assert.equal(node.executor.started.length, 1)
    assert.deepEqual(
      (await world.launches('job')).map(({cause}) => cause),
      ['create'],
    )
    await world.check(['job'])
  })
})
