/**
 * One execution from claim to finish: what is said, kept and handed on, and that whatever is wanted
 * of it is done.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {ExecutionRun, type StartRecorder} from '../../src/node/execution-run.ts'
import type {ChainEnd, OutputChain} from '../../src/ports/processor.ts'
import type {OutputSink} from '../../src/ports/executor.ts'
import type {FinishItem, OutputAppend} from '../../src/ports/node-store.ts'
import {aJob, anExecution, NOON, type JobFixture} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {keepingChain, ScriptedExecutor, type Script} from '../support/scripted-executor.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function aRunning(
  script: Script,
  settings: {job?: JobFixture; chain?: ChainEnd; startLog?: StartRecorder} = {},
) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const executor = new ScriptedExecutor(clock)
  const {spec} = settings.job ?? aJob('job')
  executor.script('job', script)
  const finished: FinishItem[] = []
  const appends: OutputAppend[] = []
  const world = {ours: true, appended: Promise.resolve()}
  const openChain = (_processors: object, _run: object, keep: OutputSink): OutputChain => ({
    ...keepingChain(keep),
    end: async () => settings.chain ?? {line: null, foot: ''},
  })
  const running = new ExecutionRun(
    {
      execution: anExecution().with({group: 12, attempt: 2}).running().record,
      token: 'token',
      spec,
      cause: 'schedule',
      scheduledAt: NOON - 5,
    },
    clock.monotonicMs(),
    {
      clock,
      random: new SeededRandom(),
      events,
      executors: {get: (name) => (name === 'scripted' ? executor : null)},
      openChain,
      ...(settings.startLog === undefined ? {} : {startLog: settings.startLog}),
      finish: async (item) => finished.push(item),
      append: async (item) => {
        appends.push(item)
        await world.appended
        return world.ours
      },
      keepOutputBytes: 1_000,
      flushBytes: 100,
      flushMs: 1_000,
      flushPauseMs: 250,
    },
  )
  const complete = async (meanwhile = () => {}) => {
    const ran = running.run()
    await clock.advance(100)
    meanwhile()
    await clock.finish(ran)
    await clock.finish(running.finish())
    assert.equal(clock.waiting, 0)
    return finished[0]!
  }
  return {clock, events, executor, running, appends, finished, world, complete}
}

describe('a run', () => {
  it('is told what it is, and its end is handed on whole', async () => {
    const job = aJob('job').with({executorConfig: {command: 'true'}})
    const {executor, events, complete} = aRunning({ms: 300, output: 'hello', exitCode: 0}, {job})
    const item = await complete()
    assert.deepEqual(executor.started[0]!.run, {
      executionId: '12-node-a-2',
      jobName: 'job',
      nodeName: 'node-a',
      attempt: 2,
      scheduledAt: NOON - 5,
      config: {command: 'true'},
    })
    const {output, jitter, ...rest} = item
    assert.deepEqual(rest, {
      key: {group: 12, node: 'node-a', attempt: 2},
      token: 'token',
      status: 'succeeded',
      reason: '',
      durationMs: 300,
      exitCode: 0,
      outputHead: '',
      outputFoot: '',
      dropOutput: false,
    })
    assert.equal(Buffer.from(output.bytes).toString(), 'hello')
    assert.ok(jitter >= 0 && jitter < 1)
    const started = {job: 'job', execution: '12-node-a-2', node: 'node-a', attempt: 2}
    assert.deepEqual(events.of('execution_started'), [started])
  })

  it('whose processors took the output elsewhere keeps one line in its place', async () => {
    const chain = {line: '/var/log/12-node-a-2', foot: 'syslog: not there\n'}
    const {complete} = aRunning({output: 'much', outcome: 'failed', exitCode: 2}, {chain})
    const item = await complete()
    assert.deepEqual(
      [item.dropOutput, item.outputHead, item.outputFoot],
      [true, 'exit status 2\n', '/var/log/12-node-a-2\nsyslog: not there\n'],
    )
  })

  it('whose processors failed keeps its output, and says so after it', async () => {
    const chain = {line: null, foot: 'files: no space left\n'}
    const {complete} = aRunning({output: 'much\n'}, {chain})
    const item = await complete()
    assert.deepEqual([item.dropOutput, item.outputFoot], [false, 'files: no space left\n'])
    assert.equal(Buffer.from(item.output.bytes).toString(), 'much\n')
  })

  it('says what it adds on a line of its own, also after output that ends within a line', async () => {
    const chain = {line: null, foot: 'files: no space left\n'}
    const {complete} = aRunning({output: 'half a line'}, {chain})
    const item = await complete()
    assert.equal(item.outputFoot, '\nfiles: no space left\n')
  })
})

describe('the record of what is begun', () => {
  it('is written before the start, and the line may go once the end is stored', async () => {
    const said: string[] = []
    const recorded = Promise.withResolvers<void>()
    const startLog: StartRecorder = {
      begin: ({group, node, attempt}) => {
        said.push(`${group}-${node}-${attempt}, ${executor.started.length} started`)
        return recorded.promise
      },
      ended: () => said.push('ended'),
    }
    const {executor, running, clock} = aRunning({}, {startLog})
    const ran = running.run()
    await clock.advance(1_000)
    assert.equal(executor.started.length, 0)
    recorded.resolve()
    await clock.finish(ran)
    assert.deepEqual([executor.started.length, said], [1, ['12-node-a-2, 0 started']])
    await clock.finish(running.finish())
    assert.deepEqual(said.slice(1), ['ended'])
  })

  it('that takes nothing starts nothing: the execution fails, and says why', async () => {
    const startLog: StartRecorder = {
      begin: async () => {
        throw new Error('read-only file system')
      },
      ended: () => {},
    }
    const {executor, complete} = aRunning({}, {startLog})
    const item = await complete()
    assert.equal(executor.started.length, 0)
    assert.equal(item.status, 'failed')
    assert.match(item.outputFoot, /^not started: .*read-only file system/)
  })

  it('starts nothing that is cancelled while it is written', async () => {
    const recorded = Promise.withResolvers<void>()
    const startLog: StartRecorder = {begin: () => recorded.promise, ended: () => {}}
    const {executor, running, complete} = aRunning({}, {startLog})
    const item = await complete(() => {
      running.cancel()
      recorded.resolve()
    })
    assert.deepEqual([executor.started.length, item.status], [0, 'cancelled'])
  })
})

describe('a run that is to end', () => {
  it('before it started, starts nothing', async () => {
    for (const [want, status, reason] of [
      ['cancel', 'cancelled', ''],
      ['term', 'lost', 'node_stopped'],
      ['kill', 'lost', 'node_stopped'],
    ] as const) {
      const {running, executor, complete} = aRunning({})
      if (want === 'cancel') running.cancel()
      else running.stop(want)
      const item = await complete()
      assert.equal(executor.started.length, 0)
      assert.deepEqual([item.status, item.reason], [status, reason])
    }
  })

  it('while it runs, is told once more whenever it is asked, and a cancel stays a cancel', async () => {
    const {running, executor, complete} = aRunning({ms: Infinity, ignoresTerm: true})
    const item = await complete(() => {
      running.cancel()
      running.stop('term')
      running.stop('kill')
    })
    const [started] = executor.started
    assert.deepEqual([started!.cancels, started!.kills], [2, 1])
    assert.deepEqual([item.status, item.reason], ['cancelled', ''])
  })

  it('by the node, is lost; and one that ended well all the same, is not', async () => {
    const lost = aRunning({ms: Infinity})
    const item = await lost.complete(() => lost.running.stop('term'))
    assert.deepEqual([item.status, item.reason], ['lost', 'node_stopped'])

    const well = aRunning({ms: 5_000, ignoresTerm: true})
    const fine = await well.complete(() => well.running.stop('term'))
    assert.deepEqual([fine.status, fine.reason], ['succeeded', ''])
  })

  it('is not for refused output; once it may not go on it is ended, and that is told once', async () => {
    const {running, executor, events, clock, world} = aRunning({ms: Infinity, output: 'talks'})
    world.ours = false
    const ran = running.run()
    await clock.advance(2_000)
    assert.equal(executor.started[0]!.cancels, 0)
    running.revoke()
    running.revoke()
    await clock.finish(ran)
    const told = {job: 'job', execution: '12-node-a-2', reason: 'not_ours'}
    assert.deepEqual(events.of('execution_abandoned'), [told])
  })

  it('by a node that is cut off, is lost, and that is told', async () => {
    const {running, events, complete} = aRunning({ms: Infinity})
    const item = await complete(() => running.disconnect())
    assert.deepEqual([item.status, item.reason], ['lost', 'cut_off'])
    assert.equal(events.of('execution_abandoned')[0]?.reason, 'cut_off')
  })

  it('and its end is handed on at once, whatever holds up its output', async () => {
    const {running, clock, finished, world} = aRunning({ms: 1_500, output: 'words'})
    world.appended = new Promise(() => {})
    const ran = running.run()
    await clock.finish(ran)
    void running.finish()
    await clock.settle()
    assert.equal(Buffer.from(finished[0]!.output.bytes).toString(), 'words')
  })
})
