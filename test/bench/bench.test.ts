/** The parts of the benchmark count correctly. No test here asserts a duration. */
import assert from 'node:assert/strict'
import {test, type TestContext} from 'node:test'
import type {handlers as Flow} from '../../tools/bench/children/flow.ts'
import type {handlers as Passes} from '../../tools/bench/children/passes.ts'
import type {handlers as BareStore} from '../../tools/bench/children/store.ts'
import {Figures, meets, quantile, summarise} from '../../tools/bench/figures.ts'
import {decisionLags} from '../../tools/bench/launch-lags.ts'
import {Link} from '../../tools/bench/link.ts'
import {markdownOf, shown, tableOf} from '../../tools/bench/report.ts'
import {Scratch} from '../../tools/bench/scratch.ts'

const WEEK_SECONDS = 7 * 86_400

function scratchOf(context: TestContext): Scratch {
  const scratch = new Scratch()
  context.after(() => scratch.clear())
  return scratch
}

test('a figure shows the median of its samples and keeps their spread', () => {
  assert.deepEqual(summarise([3, 1, 10]), {median: 3, low: 1, high: 10})
  assert.equal(quantile([0, 10], 0.5), 5)
  assert.equal(quantile([4], 0.99), 4)
  assert.ok(Number.isNaN(quantile([], 0.5)))
  assert.equal(meets({samples: [1, 2, 3], target: {atLeast: 2}}), true)
  assert.equal(meets({samples: [1, 2, 3], target: {atMost: 1}}), false)
  assert.equal(meets({samples: [1], target: null}), null)
})

test('the table has a line for each figure and marks missed targets', () => {
  const figures = new Figures('starts')
  for (const sample of [100, 300, 200]) figures.add('server', '/s', sample, {atLeast: 250})
  figures.add('loop', '/s', 1234.5)
  const lines = tableOf(figures.all).split('\n')
  assert.match(lines.at(-2)!, /server +200 \/s +100 +300 +3 +≥ 250 +MISSED/)
  assert.match(lines.at(-1)!, /loop +1,235 \/s +1$/)
  assert.deepEqual([0.1234, 12.34, 5, NaN].map(shown), ['0.12', '12.3', '5', '–'])
  assert.match(
    markdownOf(figures.all),
    /^starts:\n\n\| figure .*\n\|---.*\n\| server \| 200 \/s \| 100 \| 300 \| 3 \| ≥ 250 \| MISSED \|\n/,
  )
})

test('a burst without processes is launched, finished and counted completely', async (context) => {
  const scratch = scratchOf(context)
  const dataDir = await scratch.folder()
  const flow = Link.start<typeof Flow>(scratch, 'flow.ts')
  await flow.ask('open', {dataDir, slots: 16, executing: 'nothing', jobs: 300})
  for (let burst = 0; burst < 2; burst += 1) await flow.ask('burst', null)
  assert.deepEqual(await flow.ask('close', null), {counted: 600})
  await flow.end()
  assert.equal(decisionLags(dataDir, 'job-').length, 600)
  assert.equal(decisionLags(dataDir, 'another-').length, 0)
})

test('every real process of a burst succeeds', async (context) => {
  const scratch = scratchOf(context)
  const flow = Link.start<typeof Flow>(scratch, 'flow.ts')
  const choice = {dataDir: await scratch.folder(), slots: 4, jobs: 20}
  assert.deepEqual(await flow.ask('open', {...choice, executing: 'portable'}), {spawn: 'portable'})
  await flow.ask('burst', null)
  assert.deepEqual(await flow.ask('close', null), {counted: 20})
  await flow.end()
})

test('a pass over a filled store launches the one due job, or none', async (context) => {
  const scratch = scratchOf(context)
  const dataDir = await scratch.folder()
  const store = Link.start<typeof BareStore>(scratch, 'store.ts')
  await store.ask('open', {dataDir})
  await store.ask('fill', {jobs: 200})
  await store.ask('close', null)
  await store.end()
  const passes = Link.start<typeof Passes>(scratch, 'passes.ts')
  const {idleMs, oneMs} = await passes.ask('passes', {dataDir, count: 3})
  await passes.end()
  assert.equal(idleMs.length, 3)
  assert.equal(oneMs.length, 3)
  assert.equal(decisionLags(dataDir, 'the-one-that-is-due').length, 3)
})

test('after a week of downtime few rows cover every planned second', async (context) => {
  const scratch = scratchOf(context)
  const passes = Link.start<typeof Passes>(scratch, 'passes.ts')
  for (const schedule of ['@every 1s', '* * * * * *']) {
    const dataDir = await scratch.folder()
    const cost = await passes.ask('outage', {dataDir, schedule, catchUp: 'latest'})
    assert.ok(cost.plannedTimes >= WEEK_SECONDS - 1, `${cost.plannedTimes} of ${schedule}`)
    assert.ok(cost.rows < 100, `${cost.rows} rows of ${schedule}`)
  }
  await passes.end()
})

test('a failed or ended child rejects its requests with the reason', async (context) => {
  const scratch = scratchOf(context)
  const store = Link.start<typeof BareStore>(scratch, 'store.ts')
  await assert.rejects(store.ask('open', {dataDir: '/nowhere/at/all'}), /store\.ts open/)
  await store.end()
  await assert.rejects(store.ask('close', null), /store\.ts close/)
})
