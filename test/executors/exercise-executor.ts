/** Contract tests of the executor port, run against every executor with real work. */
import assert from 'node:assert/strict'
import {after, before, test} from 'node:test'

import type {Executor, OutputSink} from '../../src/ports/executor.ts'
import {aRun, KeepingSink} from './support.ts'

export interface Subject {
  readonly executor: Executor
  close(): Promise<void>
}

/** Parameters for each behaviour under test. */
export interface Configs {
  /** Writes `hello` and succeeds. */
  readonly succeeding: Record<string, string>
  /** Writes `hello` and fails. */
  readonly failing: Record<string, string>
  /** Writes `ready` and never ends. */
  readonly waiting: Record<string, string>
  /** Writes output without end. */
  readonly flooding: Record<string, string>
  /** Parameters of `waiting`, with a timeout well below a second. */
  readonly timingOut: Record<string, string>
  /** Is invalid. */
  readonly wrong: Record<string, string>
}

export function exerciseExecutor(
  name: string,
  open: () => Promise<Subject>,
  configs: () => Configs,
): void {
  let subject: Subject
  before(async () => {
    subject = await open()
  })
  after(async () => {
    await subject.close()
  })

  test(`${name}: delivers the output and succeeds`, async () => {
    const sink = new KeepingSink()
    const end = await subject.executor.start(aRun(configs().succeeding), sink).ended
    assert.equal(end.outcome, 'succeeded')
    assert.match(sink.text, /hello/)
    assert.deepEqual([end.head, end.foot], ['', ''])
  })

  test(`${name}: a failure has a reason and keeps the output`, async () => {
    const sink = new KeepingSink()
    const end = await subject.executor.start(aRun(configs().failing), sink).ended
    assert.equal(end.outcome, 'failed')
    assert.match(sink.text, /hello/)
    assert.notEqual(end.head + end.foot, '')
  })

  test(`${name}: repeated cancels end the execution once`, async () => {
    const sink = new KeepingSink()
    const handle = subject.executor.start(aRun(configs().waiting), sink)
    await sink.until('ready')
    handle.cancel()
    handle.cancel()
    const end = await handle.ended
    assert.equal(end.outcome, 'cancelled')
    handle.cancel()
    handle.kill()
    assert.equal(await handle.ended, end)
  })

  test(`${name}: kill ends the execution immediately`, async () => {
    const sink = new KeepingSink()
    const handle = subject.executor.start(aRun(configs().waiting), sink)
    await sink.until('ready')
    handle.kill()
    assert.equal((await handle.ended).outcome, 'cancelled')
  })

  test(`${name}: a cancel in the same turn as the start ends the execution`, async () => {
    const handle = subject.executor.start(aRun(configs().waiting), new KeepingSink())
    handle.cancel()
    assert.equal((await handle.ended).outcome, 'cancelled')
  })

  test(`${name}: a timeout ends the execution and is named in the output`, async () => {
    const end = await subject.executor.start(aRun(configs().timingOut), new KeepingSink()).ended
    assert.equal(end.outcome, 'timed_out')
    assert.match(end.foot, /^timed out after .+\n$/)
  })

  test(`${name}: backpressure from the sink stops the reading`, async () => {
    const sink = new StuckSink()
    const handle = subject.executor.start(aRun(configs().flooding), sink)
    await sink.stuck
    handle.cancel()
    assert.equal((await handle.ended).outcome, 'cancelled')
    // Only bytes in transit arrive after the backpressure: the source never ends.
    assert.ok(
      sink.bytes < 4 * 1024 * 1024,
      `${sink.bytes} bytes were pushed into a sink that said wait`,
    )
  })

  test(`${name}: validation and start report the same problem`, async () => {
    const {problems} = subject.executor.check(configs().wrong)
    assert.notEqual(problems.length, 0)
    const end = await subject.executor.start(aRun(configs().wrong), new KeepingSink()).ended
    assert.equal(end.outcome, 'failed')
    assert.equal(end.foot, `${problems[0]}\n`)
  })

  test(`${name}: a missing required parameter warns at validation and fails the start`, async () => {
    const {problems, warnings} = subject.executor.check({})
    const end = await subject.executor.start(aRun({}), new KeepingSink()).ended
    assert.deepEqual(problems, [])
    assert.deepEqual([end.outcome, end.foot], ['failed', `${warnings[0]}\n`])
  })

  test(`${name}: every parameter may be empty`, () => {
    const names = Object.keys(subject.executor.parameters)
    const empty = Object.fromEntries(names.map((name) => [name, '']))
    assert.deepEqual(subject.executor.check({...empty, ...configs().succeeding}), {
      problems: [],
      warnings: [],
    })
  })
}

/** Accepts a little output and then signals backpressure forever. */
class StuckSink implements OutputSink {
  bytes = 0
  readonly stuck: Promise<void>
  #tell: () => void = () => undefined

  constructor() {
    this.stuck = new Promise((resolve) => {
      this.#tell = resolve
    })
  }

  write(bytes: Uint8Array): boolean {
    this.bytes += bytes.length
    return false
  }

  drained(): void {
    this.#tell()
  }
}
