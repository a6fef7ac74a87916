/** The measurement of started commands, and of memory, counts what it claims. No test asserts a duration. */
import assert from 'node:assert/strict'
import {execFileSync} from 'node:child_process'
import {test, type TestContext} from 'node:test'
import type {handlers as PosixLoop} from '../../tools/bench/children/posix-loop.ts'
import {atOnce, steady, steadyLags} from '../../tools/bench/due.ts'
import {Link} from '../../tools/bench/link.ts'
import {memoryUse} from '../../tools/bench/memory-use.ts'
import {Scratch} from '../../tools/bench/scratch.ts'
import {ServerProcess} from '../../tools/bench/server-process.ts'
import {StartWatch} from '../../tools/bench/start-watch.ts'

const LIMIT_MS = 60_000
const START_AT = 1_000_000

function scratchOf(context: TestContext): Scratch {
  const scratch = new Scratch()
  context.after(() => scratch.clear())
  return scratch
}

test('every started command is counted once, with the number of its job', async (context) => {
  const watch = await StartWatch.open(scratchOf(context))
  const before = Date.now()
  for (const number of [7, 12, 7]) execFileSync('/bin/sh', ['-c', watch.command(number).command])
  await watch.all(3, LIMIT_MS)
  assert.deepEqual(
    watch.starts.map(({number}) => number),
    [7, 12, 7],
  )
  for (const {atMs} of watch.starts) assert.ok(atMs >= before && atMs <= Date.now())
  await assert.rejects(watch.all(2, LIMIT_MS), /3 commands started, expected 2/)
  await assert.rejects(watch.all(4, 0), /3 commands started, expected 4/)
})

test('the delay of a start is measured from the planned time of its own second', () => {
  const jobs = {count: 2, startAt: START_AT, seconds: 2, spread: true}
  const starts = [
    {number: 0, atMs: START_AT + 5},
    {number: 1, atMs: START_AT + 507},
    // The second line of a job belongs to its second planned time, however late it is.
    {number: 1, atMs: START_AT + 3_000},
    {number: 0, atMs: START_AT + 1_009},
  ]
  assert.deepEqual(steadyLags(jobs, starts, START_AT), [5, 7, 1_500, 9])
  assert.deepEqual(steadyLags(jobs, starts, START_AT + 1_000), [1_500, 9])
  assert.deepEqual(steadyLags({...jobs, spread: false}, starts, START_AT), [5, 507, 2_000, 9])
})

test('a server starts each planned command of the start lag section once', async (context) => {
  const scratch = scratchOf(context)
  const watch = await StartWatch.open(scratch)
  const server = await ServerProcess.start(scratch, {dataDir: await scratch.folder()})
  const command = (number: number) => watch.command(number)
  const startAt = Math.ceil(Date.now() / 1_000) * 1_000 + 2_000
  const jobs = {count: 4, startAt, seconds: 2, spread: true}
  await server.store([...steady(jobs, command), ...atOnce(3, startAt, (n) => command(100 + n))])
  await watch.all(11, LIMIT_MS)
  const lags = steadyLags(
    jobs,
    watch.starts.filter(({number}) => number < 100),
    startAt,
  )
  assert.equal(lags.length, 8)
  for (const lag of lags) assert.ok(lag >= 0, `${lag} ms`)
  const processes = memoryUse(server.pid, 'server')
  assert.deepEqual([...processes.keys()], ['server', 'helper'])
  for (const {rss, pss} of processes.values()) assert.ok(pss > 1 && rss >= pss, `${rss} ${pss}`)
  await server.stop()
})

test('the posix_spawn loop counts processes that it started and reaped', async (context) => {
  const loop = Link.start<typeof PosixLoop>(scratchOf(context), 'posix-loop.ts')
  // The fast method is not available on musl and outside Linux.
  if (!(await loop.ask('open', null))) return loop.end()
  const {count, perSecond} = await loop.ask('run', {parallel: 2, ms: 50})
  assert.ok(count >= 2 && perSecond > 0)
  await loop.end()
})
