/** The contract of every executor, run against each of them with real work. */
import assert from 'node:assert/strict'
import {after, before, test} from 'node:test'

import type {Executor, OutputSink} from '../../src/ports/executor.ts'
import {aRun, KeepingSink} from './support.ts'

export interface Subject {
  readonly executor: Executor
  close(): Promise<void>
}

/** Parameters that make the executor behave in a certain way. */
export interface Configs {
  /** Ends well, having put out `hello`. */
  readonly succeeding: Record<string, string>
  /** Ends as failed, having put out `hello`. */
  readonly failing: Record<string, string>
  /** Puts out `ready` and then works for ever. */
  readonly waiting: Record<string, string>
  /** Puts out without end. */
  readonly flooding: Record<string, string>
  /** As `waiting`, with a timeout of well under a second. */
  readonly timingOut: Record<string, string>
  /** Has a problem. */
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

  test(`${name}: puts out what the work wrote and succeeds`, async () => {
    const sink = new KeepingSink()
    const end = await subject.executor.start(aRun(configs().succeeding), sink).ended
    assert.equal(end.outcome, 'succeeded')
    assert.match(sink.text, /hello/)
    assert.deepEqual([end.head, end.foot], ['', ''])
  })

  test(`${name}: fails with a reason, and keeps the output`, async () => {
    const sink = new KeepingSink()
    const end = await subject.executor.start(aRun(configs().failing), sink).ended
    assert.equal(end.outcome, 'failed')
    assert.match(sink.text, /hello/)
    assert.notEqual(end.head + end.foot, '')
  })

  test(`${name}: cancel ends it, any number of times`, async () => {
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

  test(`${name}: kill ends it at once`, async () => {
    const sink = new KeepingSink()
    const handle = subject.executor.start(aRun(configs().waiting), sink)
    await sink.until('ready')
    handle.kill()
    assert.equal((await handle.ended).outcome, 'cancelled')
  })

  test(`${name}: cancel in the same turn as start`, async () => {
    const handle = subject.executor.start(aRun(configs().waiting), new KeepingSink())
    handle.cancel()
    assert.equal((await handle.ended).outcome, 'cancelled')
  })

  test(`${name}: times out and says after how long`, async () => {
    const end = await subject.executor.start(aRun(configs().timingOut), new KeepingSink()).ended
    assert.equal(end.outcome, 'timed_out')
    assert.match(end.foot, /^timed out after .+\n$/)
  })

  test(`${name}: stops reading while the sink asks to wait`, async () => {
    const sink = new StuckSink()
    const handle = subject.executor.start(aRun(configs().flooding), sink)
    await sink.stuck
    handle.cancel()
    assert.equal((await handle.ended).outcome, 'cancelled')
    // What was under way when the sink said wait, and no more: the source never ends.
    assert.ok(
      sink.bytes < 4 * 1024 * 1024,
      `${sink.bytes} bytes were pushed into a sink that said wait`,
    )
  })

  test(`${name}: a wrong configuration is a problem at check, and the same at start`, async () => {
    const {problems} = subject.executor.check(configs().wrong)
    assert.notEqual(problems.length, 0)
    const end = await subject.executor.start(aRun(configs().wrong), new KeepingSink()).ended
    assert.equal(end.outcome, 'failed')
    assert.equal(end.foot, `${problems[0]}\n`)
  })

  test(`${name}: without its required parameter it warns, and fails saying so`, async () => {
    const {problems, warnings} = subject.executor.check({})
    const end = await subject.executor.start(aRun({}), new KeepingSink()).ended
    assert.deepEqual(problems, [])
    assert.deepEqual([end.outcome, end.foot], ['failed', `${warnings[0]}\n`])
  })

  test(`${name}: an unknown parameter is a warning that names the known ones`, () => {
    const {problems, warnings} = subject.executor.check({...configs().succeeding, colour: 'red'})
    assert.deepEqual(problems, [])
    assert.match(warnings[0] ?? '', /"colour"/)
    for (const parameter of subject.executor.parameters)
      assert.ok(warnings[0]!.includes(parameter.name))
  })

  test(`${name}: every parameter may be there and empty`, () => {
    const empty = Object.fromEntries(
      subject.executor.parameters.map((parameter) => [parameter.name, '']),
    )
    assert.deepEqual(subject.executor.check({...empty, ...configs().succeeding}), {
      problems: [],
      warnings: [],
    })
  })
}

/** Takes a little and then asks to wait for ever. */
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
