/** Output: the kept bytes are exactly the last ones written, appended once. */
import assert from 'node:assert/strict'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import type {Case} from './case.ts'
import {textOf, type Scene} from './scene.ts'

const KEPT_BYTES = 256 * 1024
const START_BYTES = 16 * 1024

async function start(scene: Scene): Promise<ClaimedExecution> {
  await scene.submit('a')
  await scene.run('a')
  return await scene.claimOne()
}

function append(scene: Scene, {execution, token}: ClaimedExecution, offset: number, text: string) {
  const bytes = new TextEncoder().encode(text)
  return scene.store.appendOutput([{key: keyOf({execution}), token, offset, bytes}])
}

function keyOf({execution: {group, node, attempt}}: Pick<ClaimedExecution, 'execution'>) {
  return {group, node, attempt}
}

async function view(scene: Scene, claimed: ClaimedExecution, outputBytes = 1_000_000) {
  const found = await scene.store.execution('a', keyOf(claimed), outputBytes)
  assert(found !== null)
  const {output, outputTruncated, outputBytes: written} = found
  return {text: textOf(output), truncated: outputTruncated, written}
}

export function outputCases(when: Case): void {
  when('a repeated or overlapping append stores no byte twice', async (scene) => {
    const claimed = await start(scene)
    assert.deepEqual(await append(scene, claimed, 0, 'hello '), [true])
    assert.deepEqual(await append(scene, claimed, 0, 'hello '), [true])
    assert.deepEqual(await append(scene, claimed, 3, 'lo world'), [true])
    assert.deepEqual(await append(scene, claimed, 0, 'he'), [true])
    const whole = {text: 'hello world', truncated: false, written: 11}
    assert.deepEqual(await view(scene, claimed), whole)
    await scene.end(claimed, 'succeeded', {offset: 11, output: '!', totalBytes: 12})
    assert.deepEqual(await view(scene, claimed), {
      text: 'hello world!',
      truncated: false,
      written: 12,
    })
    assert.deepEqual(await append(scene, claimed, 12, 'late'), [false])
  })

  when('one call appends several stretches to several executions', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    await scene.run('a')
    const both = await scene.claim()
    const encode = (text: string) => new TextEncoder().encode(text)
    const items = [
      ...both.map((each) => ({
        key: keyOf(each),
        token: each.token,
        offset: 0,
        bytes: encode('ab'),
      })),
      ...both.map((each) => ({
        key: keyOf(each),
        token: each.token,
        offset: 2,
        bytes: encode('cd'),
      })),
      {key: keyOf(both[0]!), token: 'not the token', offset: 4, bytes: encode('ef')},
    ]
    assert.deepEqual(await scene.store.appendOutput(items), [true, true, true, true, false])
    for (const each of both) assert.equal((await view(scene, each)).text, 'abcd')
  })

  when('a gap deletes all older output', async (scene) => {
    const claimed = await start(scene)
    await append(scene, claimed, 0, 'old and gone')
    await append(scene, claimed, 1_000, 'tail')
    assert.deepEqual(await view(scene, claimed), {text: 'tail', truncated: true, written: 1_004})
    await scene.end(claimed, 'failed', {offset: 5_000, output: 'end', totalBytes: 5_003})
    assert.deepEqual(await view(scene, claimed), {text: 'end', truncated: true, written: 5_003})
  })

  when(
    'of a long output the start is kept too, whatever reached the store first',
    async (scene) => {
      const letters = (from: number, length: number) =>
        Array.from({length}, (_, at) => String.fromCharCode(97 + ((from + at) % 26))).join('')
      const parts = async (claimed: ClaimedExecution) => {
        const found = await scene.store.execution('a', keyOf(claimed), KEPT_BYTES)
        const {outputStart = new Uint8Array(), output, outputTruncated} = found!
        return [textOf(outputStart), textOf(output), outputTruncated] as const
      }
      const total = 600_000
      const tail = letters(total - KEPT_BYTES, KEPT_BYTES)
      // Small pieces: the first chunk becomes the start when it is deleted.
      const pieces = await start(scene)
      for (let at = 0; at < total; at += 10_000)
        await append(scene, pieces, at, letters(at, 10_000))
      assert.deepEqual(await parts(pieces), [letters(0, START_BYTES), tail, true])
      // Two large pieces: the first one is still kept, because it also has the first bytes of the tail.
      const large = await start(scene)
      await append(scene, large, 0, letters(0, 100_000))
      await append(scene, large, 100_000, letters(100_000, 200_000))
      const largeTail = letters(300_000 - KEPT_BYTES, KEPT_BYTES)
      assert.deepEqual(await parts(large), [letters(0, START_BYTES), largeTail, true])
      assert.equal((await view(scene, large, 290_000)).text, largeTail)
      await scene.end(large, 'succeeded', {offset: 300_000})
      // The node sends the start after a gap.
      await scene.end(pieces, 'succeeded', {offset: total})
      const flood = await start(scene)
      await append(scene, flood, 0, letters(0, 5))
      const sent = new TextEncoder().encode(`${letters(0, START_BYTES - 1)}é`).subarray(0, -1)
      const key = keyOf(flood)
      const bytes = new TextEncoder().encode(tail)
      const item = {key, token: flood.token, offset: total - KEPT_BYTES, bytes, start: sent}
      for (const _ of ['sent', 'repeated'])
        assert.deepEqual(await scene.store.appendOutput([item]), [true])
      await append(scene, flood, total, letters(total, 10))
      const {text} = await view(scene, flood, 10)
      assert.equal(text, letters(total, 10))
      assert.deepEqual(await parts(flood), [
        letters(0, START_BYTES - 1),
        letters(total + 10 - KEPT_BYTES, KEPT_BYTES),
        true,
      ])
      const since = async (from: number) => {
        const found = await scene.store.outputSince('a', key, from, 20_000)
        return [found!.offset, found!.bytes.length]
      }
      assert.deepEqual(await since(100), [100, START_BYTES - 1 - 100])
      assert.deepEqual(await since(START_BYTES - 1), [total - KEPT_BYTES, 20_000])
    },
  )

  when('exactly the last bytes are kept', async (scene) => {
    const claimed = await start(scene)
    let written = ''
    for (let index = 0; written.length < KEPT_BYTES * 1.5; index += 1) {
      const line = `${index} ${'x'.repeat(9_000)}\n`
      await append(scene, claimed, written.length, line)
      written += line
    }
    const {text, truncated, written: total} = await view(scene, claimed)
    assert(text === written.slice(-KEPT_BYTES), 'the kept text is the tail of what was written')
    assert.deepEqual([truncated, total], [true, written.length])
    await scene.end(claimed, 'succeeded', {offset: written.length})
    assert((await view(scene, claimed)).text === written.slice(-KEPT_BYTES))
  })

  when('the tail of an output never starts inside a character', async (scene) => {
    const claimed = await start(scene)
    await scene.end(claimed, 'succeeded', {output: 'aé€😀'})
    const last = async (bytes: number) => (await view(scene, claimed, bytes)).text
    assert.deepEqual(
      [await last(10), await last(9), await last(8), await last(7), await last(4), await last(3)],
      ['aé€😀', 'é€😀', '€😀', '€😀', '😀', ''],
    )
    assert.deepEqual(await view(scene, claimed, 0), {text: '', truncated: true, written: 10})
  })

  when('binary output is returned unchanged', async (scene) => {
    const claimed = await start(scene)
    const bytes = Uint8Array.from({length: 512}, (_, index) => index % 256)
    const {token} = claimed
    const backing = new Uint8Array(4_096)
    backing.set(bytes, 100)
    const part = backing.subarray(100, 100 + bytes.length)
    await scene.store.appendOutput([{key: keyOf(claimed), token, offset: 0, bytes: part}])
    const found = await scene.store.execution('a', keyOf(claimed), 512)
    assert.deepEqual(Buffer.from(found!.output), Buffer.from(bytes))
  })

  when('output can be read from a position', async (scene) => {
    const claimed = await start(scene)
    const since = async (from: number, limit = 100) => {
      const found = await scene.store.outputSince('a', keyOf(claimed), from, limit)
      return [found!.offset, textOf(found!.bytes), found!.totalBytes, found!.execution.status]
    }
    assert.deepEqual(await since(0), [0, '', 0, 'running'])
    await append(scene, claimed, 0, 'hello ')
    await append(scene, claimed, 6, 'world')
    assert.deepEqual(await since(0), [0, 'hello world', 11, 'running'])
    assert.deepEqual(await since(4, 4), [4, 'o wo', 11, 'running'])
    await append(scene, claimed, 100, 'far')
    assert.deepEqual(await since(11), [100, 'far', 103, 'running'])
    await scene.end(claimed, 'succeeded', {offset: 103})
    assert.deepEqual(await since(103), [103, '', 103, 'succeeded'])
  })

  when('output that a processor consumed is deleted, while head and foot stay', async (scene) => {
    const claimed = await start(scene)
    await append(scene, claimed, 0, 'taken by a processor')
    const options = {dropOutput: true, foot: 'output in /logs/x', offset: 20, totalBytes: 20}
    await scene.end(claimed, 'succeeded', options)
    const found = await scene.store.execution('a', keyOf(claimed), 100)
    assert.deepEqual([found!.output.length, found!.outputFoot], [0, 'output in /logs/x'])
    assert.deepEqual([found!.outputBytes, found!.outputTruncated], [20, true])
  })
}
