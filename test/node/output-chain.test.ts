/** Chains of processors: order, forwarding, failure, backpressure. */
import assert from 'node:assert/strict'
import {describe, test} from 'node:test'
import type {OutputSink} from '../../src/ports/executor.ts'
import type {Processor, ProcessorStream} from '../../src/ports/processor.ts'
import type {Clock} from '../../src/ports/runtime.ts'
import {type ChainOptions, openChain} from '../../src/node/output-chain.ts'
import {aRun, KeepingSink, realClock} from '../processors/support.ts'

const ENDED = {outcome: 'succeeded', exitCode: 0}

/** A processor that records its calls and fails on request. */
function aProcessor(
  name: string,
  stream: Partial<ProcessorStream> & {open?: () => Promise<void>} = {},
) {
  const seen: string[] = []
  const processor: Processor & {seen: string[]} = {
    name,
    parameters: [],
    fileParameters: [],
    check: (config) => (config['forward'] === 'bad' ? ['forward is bad'] : []),
    open: async () => {
      await stream.open?.()
      return {
        write: async (bytes) => {
          seen.push(Buffer.from(bytes).toString())
          await stream.write?.(bytes)
        },
        end: async (end) => {
          seen.push(`<${end.outcome}>`)
          return stream.end === undefined ? `went to ${name}` : stream.end(end)
        },
      }
    },
    seen,
  }
  return processor
}

function aChain(
  processors: Processor[],
  configs: Record<string, Record<string, string>>,
  more: Partial<ChainOptions> = {},
) {
  const keep = new KeepingSink()
  const chain = openChain({
    processors: configs,
    registry: {get: (name) => processors.find((each) => each.name === name) ?? null},
    run: aRun(),
    keep,
    clock: realClock,
    ...more,
  })
  return {chain, keep}
}

describe('chain', () => {
  test('without processors, the output is only stored', async () => {
    const {chain, keep} = aChain([], {})
    assert.equal(chain.write(Buffer.from('x')), true)
    assert.deepEqual(await chain.end(ENDED), {line: null, foot: ''})
    assert.equal(keep.text, 'x')
  })

  test('forward false ends the chain: one line is stored, the next processor gets nothing', async () => {
    const [a, b] = [aProcessor('a'), aProcessor('b')]
    const {chain} = aChain([a, b], {a: {}, b: {}})
    chain.write(Buffer.from('x'))
    assert.deepEqual(await chain.end(ENDED), {line: 'went to a', foot: ''})
    assert.deepEqual([a.seen, b.seen], [['x', '<succeeded>'], []])
  })

  test('forward true passes the output on in the order of the definition and stores it', async () => {
    const [a, b] = [aProcessor('a'), aProcessor('b')]
    const {chain, keep} = aChain([a, b], {b: {forward: 'true'}, a: {forward: 'true'}})
    chain.write(Buffer.from('x'))
    assert.deepEqual(await chain.end(ENDED), {line: null, foot: ''})
    assert.deepEqual([a.seen, b.seen, keep.text], [['x', '<succeeded>'], ['x', '<succeeded>'], 'x'])
  })

  test('forward true, then false: the line of the last processor is stored', async () => {
    const {chain} = aChain([aProcessor('a'), aProcessor('b')], {a: {forward: 'true'}, b: {}})
    assert.deepEqual(await chain.end(ENDED), {line: 'went to b', foot: ''})
  })

  test('a processor that the node does not have is noted, and the next one gets the output', async () => {
    const [a, b] = [aProcessor('a'), aProcessor('b')]
    const {chain} = aChain([a, b], {slack: {}, a: {}, b: {}})
    chain.write(Buffer.from('x'))
    assert.deepEqual(await chain.end(ENDED), {
      line: 'went to a',
      foot: 'processor slack skipped: this node has no such processor\n',
    })
    assert.deepEqual([a.seen, b.seen], [['x', '<succeeded>'], []])
  })

  test('a failed processor is noted and the output is stored; other processors continue', async () => {
    const fail = async (): Promise<never> => {
      throw new Error('disk full')
    }
    const rows: [Processor[], Record<string, Record<string, string>>, RegExp][] = [
      [
        [aProcessor('a', {open: fail})],
        {a: {}},
        /^processor a failed: disk full; the output is kept here\n$/,
      ],
      [[aProcessor('a', {write: fail})], {a: {}}, /disk full/],
      [[aProcessor('a', {end: fail})], {a: {}}, /disk full/],
      [[], {a: {}}, /this node has no such processor/],
      [[aProcessor('a')], {a: {forward: 'bad'}}, /forward is bad/],
    ]
    for (const [processors, configs, foot] of rows) {
      const {chain, keep} = aChain(processors, configs)
      chain.write(Buffer.from('x'))
      const end = await chain.end(ENDED)
      assert.equal(end.line, null)
      assert.match(end.foot, foot)
      assert.equal(keep.text, 'x')
    }
    const good = aProcessor('b')
    const {chain} = aChain([aProcessor('a', {write: fail}), good], {a: {forward: 'true'}, b: {}})
    chain.write(Buffer.from('x'))
    assert.deepEqual(await chain.end(ENDED), {
      line: 'went to b',
      foot: 'processor a failed: disk full; the output is kept here\n',
    })
    assert.deepEqual(good.seen, ['x', '<succeeded>'])
  })

  test('a stalled processor times out in each of its steps', async () => {
    const never = (): Promise<never> => new Promise(() => undefined)
    for (const stream of [{open: never}, {write: never}, {end: never}]) {
      const {chain, keep} = aChain([aProcessor('a', stream)], {a: {}}, {stallMs: 20})
      chain.write(Buffer.from('x'))
      const end = await chain.end(ENDED)
      assert.deepEqual([end.line, keep.text], [null, 'x'])
      assert.match(end.foot, /^processor a failed: it stalled for 0\.02s/)
    }
  })

  test('the chain leaves no timer', async () => {
    let armed = 0
    const clock: Clock = {
      ...realClock,
      after: () => {
        armed += 1
        return {cancel: () => (armed -= 1)}
      },
    }
    const {chain} = aChain([aProcessor('a')], {a: {}}, {clock})
    for (let count = 0; count < 10; count++) chain.write(Buffer.from('x'))
    await chain.end(ENDED)
    assert.equal(armed, 0)
  })

  test('a slow processor causes backpressure, and its queue stays bounded', async () => {
    let taken = 0
    let inHand = 0
    let most = 0
    const slow = aProcessor('a', {
      write: async (bytes) => {
        await new Promise((resolve) => setImmediate(resolve))
        taken += bytes.length
        inHand -= bytes.length
      },
    })
    const {chain} = aChain(
      [slow],
      {a: {forward: 'true'}},
      {keep: {write: () => true, drained: () => undefined}},
    )
    const chunk = Buffer.alloc(16 * 1024)
    for (let count = 0; count < 200; count++) {
      inHand += chunk.length
      most = Math.max(most, inHand)
      if (!chain.write(chunk)) await new Promise<void>((resolve) => chain.drained(resolve))
    }
    await chain.end(ENDED)
    assert.deepEqual([taken, inHand], [200 * chunk.length, 0])
    assert.ok(most <= 6 * chunk.length, `${most} bytes waited`)
  })

  test('backpressure from the store reaches the source', async () => {
    let full: (() => void) | null = null
    const keep: OutputSink = {
      write: () => false,
      drained: (callback) => {
        assert.equal(full, null, 'one waiting callback at a time')
        full = callback
      },
    }
    const {chain} = aChain([aProcessor('a')], {a: {}}, {keep})
    assert.equal(chain.write(Buffer.from('x')), false)
    assert.equal(chain.write(Buffer.from('y')), false)
    let released = false
    chain.drained(() => {
      released = true
    })
    assert.equal(released, false)
    full!()
    assert.equal(released, true)
    assert.deepEqual(await chain.end(ENDED), {line: 'went to a', foot: ''})
  })
})
