/** Execution from claim to finish: its events, output and result, and every way to stop it. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {checkedLimits} from '../../src/config/limits.ts'
import {ExecutionRun, type StartRecorder} from '../../src/node/execution-run.ts'
import type {StringMap} from '../../src/core/job.ts'
import type {Processor} from '../../src/ports/processor.ts'
import type {FinishItem, OutputAppend} from '../../src/ports/node-store.ts'
import {aJob, anExecution, NOON, type JobFixture} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {ScriptedExecutor, type Script} from '../support/scripted-executor.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function anExecutionRun(
  script: Script,
  settings: {
    job?: JobFixture
    /** Ends of its processors, by name. */
    processors?: Readonly<Record<string, () => Promise<string>>>
    startLog?: StartRecorder
    secrets?: StringMap
  } = {},
) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const executor = new ScriptedExecutor(clock)
  const {job = aJob('job'), processors = {}} = settings
  // All but the last pass the output on.
  const last = Object.keys(processors).at(-1)
  const configs = Object.keys(processors).map((name) => [name, {forward: String(name !== last)}])
  const {spec} = job.with({processors: Object.fromEntries(configs)})
  executor.script('job', script)
  const finished: FinishItem[] = []
  const appends: OutputAppend[] = []
  const world = {isActive: true, appended: Promise.resolve()}
  const opened: object[] = []
  const processorOf = (name: string): Processor => ({
    name,
    parameters: [],
    fileParameters: [],
    check: () => [],
    open: async ({run}) => {
      opened.push(run)
      return {write: async () => undefined, end: processors[name]!}
    },
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
      processors: {get: processorOf},
      ...(settings.startLog === undefined ? {} : {startLog: settings.startLog}),
      finisher: {finish: async (item) => finished.push(item)},
      appends: {
        add: async (item) => {
          appends.push(item)
          await world.appended
          return world.isActive
        },
      },
      limits: {...checkedLimits(), outputTailBytes: 1_000, outputStartBytes: 100},
    },
    settings.secrets,
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
  return {clock, events, executor, opened, running, appends, finished, world, complete}
}

const failing = (why: string) => () => Promise.reject(new Error(why))
const failed = (name: string, why: string) =>
  `processor ${name} failed: ${why}; the output is kept here\n`

describe('an execution', () => {
  it('gets its parameters, and its complete result is stored', async () => {
    const job = aJob('job').with({executorConfig: {command: 'true'}})
    const {executor, events, complete} = anExecutionRun(
      {ms: 300, output: 'hello', exitCode: 0},
      {job},
    )
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
      startedAfterMs: 0,
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

  it('gets the values of its secrets, which neither processors nor its result have', async () => {
    const job = aJob('job').with({executorConfig: {env: 'A=${secret:db}'}})
    const processors = {bad: failing('a hunter2 error'), files: async () => 'a hunter2 line'}
    const {executor, opened, complete} = anExecutionRun(
      {ms: 300, output: 'the password is hunter2', exitCode: 0},
      {job, processors, secrets: {db: 'hunter2', other: 'of another job'}},
    )
    const item = await complete()
    const {run} = executor.started[0]!
    assert.deepEqual([run.secrets, run.config], [{db: 'hunter2'}, {env: 'A=${secret:db}'}])
    assert.equal(Buffer.from(item.output.bytes).toString(), 'the password is [secret]')
    assert.equal(item.outputFoot, `a [secret] line\n${failed('bad', 'a [secret] error')}`)
    assert.equal(opened.length, 2)
    assert.ok(!JSON.stringify(opened).includes('hunter2'))
  })

  it('passes on what was held back at its end', async () => {
    const job = aJob('job').with({executorConfig: {env: 'A=${secret:db}'}})
    const {complete} = anExecutionRun({ms: 300, output: 'hunt'}, {job, secrets: {db: 'hunter2'}})
    assert.equal(Buffer.from((await complete()).output.bytes).toString(), 'hunt')
  })

  it('fails with a reason, and is not started, if a secret is missing', async () => {
    const job = aJob('job').with({executorConfig: {env: 'A=${secret:db}'}})
    const {executor, complete} = anExecutionRun({ms: 300}, {job, secrets: {other: 'hunter2'}})
    const {status, reason, outputFoot} = await complete()
    assert.deepEqual([status, reason, executor.started.length], ['failed', 'no_secret', 0])
    assert.match(outputFoot, /^not started: there is no secret "db"/)
  })

  it('that waited in the helper reports when it started', async () => {
    const item = await anExecutionRun({ms: 300, ranMs: 120}).complete()
    assert.deepEqual([item.durationMs, item.startedAfterMs], [300, 180])
  })

  it('whose processors stored the output elsewhere keeps one line instead', async () => {
    const processors = {syslog: failing('not there'), files: async () => '/var/log/12-node-a-2'}
    const script = {output: 'much', outcome: 'failed', exitCode: 2} as const
    const {complete} = anExecutionRun(script, {processors})
    const item = await complete()
    assert.deepEqual(
      [item.dropOutput, item.outputHead, item.outputFoot],
      [true, 'exit status 2\n', `/var/log/12-node-a-2\n${failed('syslog', 'not there')}`],
    )
  })

  it('whose processors failed keeps its output and appends their error', async () => {
    const processors = {files: failing('no space left')}
    const {complete} = anExecutionRun({output: 'much\n'}, {processors})
    const item = await complete()
    assert.deepEqual([item.dropOutput, item.outputFoot], [false, failed('files', 'no space left')])
    assert.equal(Buffer.from(item.output.bytes).toString(), 'much\n')
  })

  it('appends its lines after a newline, even if the output has no final newline', async () => {
    const processors = {files: failing('no space left')}
    const {complete} = anExecutionRun({output: 'half a line'}, {processors})
    const item = await complete()
    assert.equal(item.outputFoot, `\n${failed('files', 'no space left')}`)
  })
})

describe('the start log', () => {
  it('is written before the start; its entry ends when the result is stored', async () => {
    const calls: string[] = []
    const recorded = Promise.withResolvers<void>()
    const startLog: StartRecorder = {
      begin: ({group, node, attempt}) => {
        calls.push(`${group}-${node}-${attempt}, ${executor.started.length} started`)
        return recorded.promise
      },
      ended: () => calls.push('ended'),
    }
    const {executor, running, clock} = anExecutionRun({}, {startLog})
    const ran = running.run()
    await clock.advance(1_000)
    assert.equal(executor.started.length, 0)
    recorded.resolve()
    await clock.finish(ran)
    assert.deepEqual([executor.started.length, calls], [1, ['12-node-a-2, 0 started']])
    await clock.finish(running.finish())
    assert.deepEqual(calls.slice(1), ['ended'])
  })

  it('that cannot be written prevents the start: the execution fails with the reason', async () => {
    const startLog: StartRecorder = {
      begin: async () => {
        throw new Error('read-only file system')
      },
      ended: () => {},
    }
    const {executor, complete} = anExecutionRun({}, {startLog})
    const item = await complete()
    assert.equal(executor.started.length, 0)
    assert.equal(item.status, 'failed')
    assert.match(item.outputFoot, /^not started: .*read-only file system/)
  })

  it('prevents the start of an execution cancelled during the write', async () => {
    const recorded = Promise.withResolvers<void>()
    const startLog: StartRecorder = {begin: () => recorded.promise, ended: () => {}}
    const {executor, running, complete} = anExecutionRun({}, {startLog})
    const item = await complete(() => {
      running.cancel()
      recorded.resolve()
    })
    assert.deepEqual([executor.started.length, item.status], [0, 'cancelled'])
  })
})

describe('a stop', () => {
  it('before the start prevents it', async () => {
    for (const [want, status, reason] of [
      ['cancel', 'cancelled', ''],
      ['term', 'lost', 'node_stopped'],
      ['kill', 'lost', 'node_stopped'],
    ] as const) {
      const {running, executor, complete} = anExecutionRun({})
      if (want === 'cancel') running.cancel()
      else running.stop(want)
      const item = await complete()
      assert.equal(executor.started.length, 0)
      assert.deepEqual([item.status, item.reason], [status, reason])
    }
  })

  it('reaches the executor each time, and a later stop does not replace a cancel', async () => {
    const {running, executor, complete} = anExecutionRun({ms: Infinity, ignoresTerm: true})
    const item = await complete(() => {
      running.cancel()
      running.stop('term')
      running.stop('kill')
    })
    const [started] = executor.started
    assert.deepEqual([started!.cancels, started!.kills], [2, 1])
    assert.deepEqual([item.status, item.reason], ['cancelled', ''])
  })

  it('of the node makes an execution lost, unless it has succeeded', async () => {
    const lost = anExecutionRun({ms: Infinity})
    const item = await lost.complete(() => lost.running.stop('term'))
    assert.deepEqual([item.status, item.reason], ['lost', 'node_stopped'])

    const well = anExecutionRun({ms: 5_000, ignoresTerm: true})
    const fine = await well.complete(() => well.running.stop('term'))
    assert.deepEqual([fine.status, fine.reason], ['succeeded', ''])
  })

  it('by revocation emits one event; refused output alone does not stop an execution', async () => {
    const {running, executor, events, clock, world} = anExecutionRun({
      ms: Infinity,
      output: 'talks',
    })
    world.isActive = false
    const ran = running.run()
    await clock.advance(2_000)
    assert.equal(executor.started[0]!.cancels, 0)
    running.revoke()
    running.revoke()
    await clock.finish(ran)
    const abandoned = {job: 'job', execution: '12-node-a-2', reason: 'claim_revoked'}
    assert.deepEqual(events.of('execution_abandoned'), [abandoned])
  })

  it('by disconnection makes it lost and emits an event', async () => {
    const {running, events, complete} = anExecutionRun({ms: Infinity})
    const item = await complete(() => running.disconnect())
    assert.deepEqual([item.status, item.reason], ['lost', 'cut_off'])
    assert.equal(events.of('execution_abandoned')[0]?.reason, 'disconnected')
  })

  it('does not delay the result by a flush of output in flight', async () => {
    const {running, clock, finished, world} = anExecutionRun({ms: 1_500, output: 'words'})
    world.appended = new Promise(() => {})
    const ran = running.run()
    await clock.finish(ran)
    void running.finish()
    await clock.settle()
    assert.equal(Buffer.from(finished[0]!.output.bytes).toString(), 'words')
  })
})
