/** Output buffer: stores exactly the last bytes at a limited rate, whatever call fails, is lost or late. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import fc from 'fast-check'
import {OutputBuffer} from '../../src/node/output-buffer.ts'
import type {OutputAppend} from '../../src/ports/node-store.ts'
import {StoreUnavailable} from '../../src/ports/store-errors.ts'
import {aJob} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const KEEP = 1_000
const START = 100

/** Bytes whose value encodes their absolute position. */
function chunk(from: number, length: number): Uint8Array {
  return Uint8Array.from(
    {length},
    (_, index) => ((from + index) * 31 + ((from + index) >> 8) * 7) & 255,
  )
}

/** Store model: keeps the last `KEEP` bytes of appends at absolute positions. */
class KeptOutput {
  bytes = new Uint8Array()
  end = 0

  append({offset, bytes}: Pick<OutputAppend, 'offset' | 'bytes'>): void {
    if (bytes.length === 0 || offset + bytes.length <= this.end) return
    const fresh = offset < this.end ? bytes.subarray(this.end - offset) : bytes
    const before = offset > this.end ? new Uint8Array() : this.bytes
    const all = new Uint8Array([...before, ...fresh])
    this.bytes = all.subarray(Math.max(0, all.length - KEEP))
    this.end = offset + bytes.length
  }
}

function aBuffer(add: (item: OutputAppend) => Promise<boolean>) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const buffer = new OutputBuffer({
    clock,
    events,
    jobName: 'job',
    key: {group: 1, node: 'node-a', attempt: 1},
    token: 'token',
    limits: {
      outputTailBytes: KEEP,
      outputStartBytes: START,
      outputFlushBytes: 300,
      outputFlushMs: 1_000,
      outputPauseMs: 250,
    },
    appends: {add},
  })
  return {clock, events, buffer}
}

describe('an output buffer', () => {
  it('flushes the bytes of a second at once, and nothing without new bytes', async () => {
    const appends: OutputAppend[] = []
    const {clock, events, buffer} = aBuffer(async (item) => appends.push(item) > 0)
    buffer.write(chunk(0, 5))
    await clock.advance(400)
    buffer.write(chunk(5, 5))
    await clock.advance(599)
    assert.equal(appends.length, 0)
    await clock.advance(1)
    assert.deepEqual(
      appends.map(({offset, bytes}) => [offset, bytes]),
      [[0, chunk(0, 10)]],
    )
    await clock.advance(60 * SECOND)
    assert.equal(appends.length, 1)
    assert.equal(clock.waiting, 0)
    const payload = {job: 'job', execution: '1-node-a-1', total_bytes: 10}
    assert.deepEqual(events.of('execution_output'), [payload])
  })

  it('flushes a flood at once, then at most 4 times a second, at most the tail each time', async () => {
    const appends: OutputAppend[] = []
    const {clock, buffer} = aBuffer(async (item) => appends.push(item) > 0)
    let written = 0
    for (let ms = 0; ms < 10 * SECOND; ms += 10) {
      buffer.write(chunk(written, 400))
      written += 400
      await clock.advance(10)
    }
    assert.ok(appends.length >= 38 && appends.length <= 42, `${appends.length}`)
    assert.ok(appends.every(({bytes}) => bytes.length <= KEEP))
  })

  it('close returns the unflushed bytes, and nothing is flushed afterwards', async () => {
    const appends: OutputAppend[] = []
    const {clock, buffer} = aBuffer(async (item) => appends.push(item) > 0)
    buffer.write(chunk(0, 100))
    await clock.advance(SECOND)
    buffer.write(chunk(100, 50))
    const last = buffer.close()
    assert.deepEqual(last, {offset: 100, bytes: chunk(100, 50), totalBytes: 150})
    buffer.write(chunk(150, 50))
    await clock.advance(10 * SECOND)
    assert.equal(appends.length, 1)
    assert.equal(clock.waiting, 0)
  })

  it('close does not wait for a flush in flight, and returns its bytes again', async () => {
    for (const isTaken of [true, false]) {
      const held = Promise.withResolvers<boolean>()
      const {clock, buffer} = aBuffer(() => held.promise)
      buffer.write(chunk(0, 100))
      await clock.advance(SECOND)
      buffer.write(chunk(100, 20))
      assert.deepEqual(buffer.close(), {offset: 0, bytes: chunk(0, 120), totalBytes: 120})
      if (isTaken) held.resolve(true)
      else held.reject(new StoreUnavailable('away'))
      await clock.advance(10 * SECOND)
      assert.equal(clock.waiting, 0)
    }
  })

  it('sends the first bytes only if the tail has dropped some of them, and only once', async () => {
    const starts = async (writes: readonly number[]) => {
      const appends: OutputAppend[] = []
      const {clock, buffer} = aBuffer(async (item) => appends.push(item) > 0)
      let written = 0
      for (const size of writes) {
        for (let at = 0; at < size; at += 50)
          buffer.write(chunk(written + at, Math.min(50, size - at)))
        written += size
        await clock.advance(2 * SECOND)
      }
      buffer.write(chunk(written, 2 * KEEP))
      return [...appends, buffer.close()].map(({start}) => start)
    }
    const start = chunk(0, START)
    assert.deepEqual(await starts([]), [start])
    assert.deepEqual(await starts([10]), [undefined, start])
    assert.deepEqual(await starts([60, 60]), [undefined, undefined, undefined])
    assert.deepEqual(await starts([10, 3 * KEEP, 20]), [undefined, start, undefined, undefined])
  })

  it('flushes nothing more after the store refused the claim', async () => {
    let appends = 0
    const {clock, buffer} = aBuffer(async () => (appends += 1) === 0)
    for (let second = 0; second < 10; second += 1) {
      buffer.write(chunk(second * 400, 400))
      await clock.advance(SECOND)
    }
    assert.equal(appends, 1)
    assert.equal(buffer.close().totalBytes, 4_000)
  })

  it('retries during an outage of the store, keeping no more than the tail', async () => {
    let away = true
    const kept = new KeptOutput()
    const {clock, events, buffer} = aBuffer(async (item) => {
      assert.ok(item.bytes.length <= KEEP)
      if (away) throw new StoreUnavailable('away')
      kept.append(item)
      return true
    })
    for (let second = 0; second < 30; second += 1) {
      buffer.write(chunk(second * 400, 400))
      await clock.advance(SECOND)
    }
    assert.ok(events.of('step_failed').length >= 25)
    away = false
    await clock.advance(SECOND)
    assert.equal(kept.end, 12_000)
    assert.deepEqual(kept.bytes, chunk(11_000, KEEP))
    buffer.close()
  })

  it('stores the exact tail for any writes, pauses, rejections and lost replies', async () => {
    const step = fc.record({
      size: fc.oneof(fc.nat({max: 50}), fc.nat({max: 700}), fc.constant(2_500)),
      pauseMs: fc.constantFrom(0, 0, 10, 300, 1_200),
      store: fc.constantFrom('ok', 'ok', 'ok', 'away', 'reply lost', 'slow'),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, {maxLength: 30}), async (steps) => {
        const kept = new KeptOutput()
        let mood = 'ok'
        const {clock, buffer} = aBuffer(async (item) => {
          const now = mood
          if (now === 'slow') await new Promise<void>((resolve) => void clock.after(700, resolve))
          if (now === 'away') throw new StoreUnavailable('away')
          kept.append(item)
          if (now === 'reply lost') throw new StoreUnavailable('reply lost')
          return true
        })
        let written = 0
        for (const {size, pauseMs, store} of steps) {
          mood = store
          buffer.write(chunk(written, size))
          written += size
          await clock.advance(pauseMs)
        }
        const last = buffer.close()
        assert.equal(last.totalBytes, written)
        kept.append(last)
        // A flush in flight arrives after the finish and changes nothing.
        await clock.advance(SECOND)
        const from = Math.max(0, written - KEEP)
        if (written > 0)
          assert.deepEqual([kept.end, kept.bytes], [written, chunk(from, written - from)])
        assert.equal(clock.waiting, 0)
      }),
      {numRuns: 150},
    )
  })
})

describe('the output of an execution', () => {
  const LIMIT = 256 * 1024

  async function outputOf(world: World) {
    const [execution] = await world.executions('job')
    const {group, node, attempt} = execution!
    return (await world.store.execution('job', {group, node, attempt}, LIMIT))!
  }

  it('is readable while it is running', async () => {
    const world = new World()
    await world.start({scripts: {job: {ms: Infinity, output: 'first words'}}})
    await world.submit(aJob('job').manual())
    await world.runByHand('job')
    await world.clock.advance(1_100)
    const view = await outputOf(world)
    assert.deepEqual([Buffer.from(view.output).toString(), view.status], ['first words', 'running'])
  })

  it('is the exact tail of a flood in the real store, under faults of every kind', async () => {
    const random = new SeededRandom(99)
    for (let run = 0; run < 6; run += 1) {
      const world = new World(run)
      const node = await world.start({scripts: {job: {ms: Infinity}}})
      await world.submit(aJob('job').manual())
      await world.runByHand('job')
      await world.clock.advance(10)
      node.fault = (method) =>
        method === 'appendOutput' || method === 'finish'
          ? random.pick(['none', 'none', 'unavailable', 'answer_lost'] as const)
          : 'none'
      const {sink, end} = node.executor.started[0]!
      let written = 0
      for (let write = random.between(5, 60); write > 0; write -= 1) {
        const size = random.chance(0.1) ? random.between(0, 2 * LIMIT) : random.between(0, 40_000)
        sink.write(chunk(written, size))
        written += size
        await world.clock.advance(random.pick([0, 5, 100, 400, 1_500]))
      }
      end({outcome: 'succeeded', exitCode: 0})
      await world.clock.advance(20 * SECOND)
      const view = await outputOf(world)
      const from = Math.max(0, written - LIMIT)
      const at = `run ${run} of seed ${random.seed}`
      assert.equal(view.status, 'succeeded', at)
      assert.equal(view.outputBytes, written, at)
      assert.equal(view.outputTruncated, written > LIMIT, at)
      // Text is cut at a character: up to three bytes may be missing at the front of a cut tail.
      const kept = Buffer.from(view.output)
      const expected = Buffer.from(chunk(from, written - from))
      assert.ok(expected.length - kept.length <= 3, at)
      assert.ok(expected.subarray(expected.length - kept.length).equals(kept), at)
      await world.check(['job'])
    }
  })

  it('keeps head and foot of a failure separate from the output of the command', async () => {
    const world = new World()
    await world.start({scripts: {job: {output: 'oops\n', outcome: 'failed', exitCode: 3}}})
    await world.submit(aJob('job').manual())
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const view = await outputOf(world)
    assert.deepEqual(
      [view.outputHead, Buffer.from(view.output).toString(), view.exitCode],
      ['exit status 3\n', 'oops\n', 3],
    )
  })
})
