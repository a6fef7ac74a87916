/** The tail buffer: exactly the last bytes, at their absolute position, with memory bounded by the limit. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import fc from 'fast-check'
import {TailBuffer} from '../../src/lib/tail-buffer.ts'

/** Bytes whose value depends on their absolute position, to detect a shift or a mix. */
function stretch(from: number, length: number): Uint8Array {
  return Uint8Array.from({length}, (_, index) => positioned(from + index))
}

function positioned(position: number): number {
  return (position * 31 + (position >> 8) * 7) & 255
}

function assertStretch(taken: {offset: number; bytes: Uint8Array}, from: number, to: number) {
  assert.equal(taken.offset, from)
  assert.deepEqual(taken.bytes, stretch(from, to - from))
}

describe('a tail buffer', () => {
  it('keeps every byte below the limit', () => {
    const tail = new TailBuffer(10)
    tail.push(stretch(0, 4))
    tail.push(stretch(4, 6))
    assert.equal(tail.totalBytes, 10)
    assert.equal(tail.heldBytes, 10)
    assertStretch(tail.take(), 0, 10)
    assert.equal(tail.heldBytes, 0)
    assertStretch(tail.take(), 10, 10)
  })

  it('drops exactly the oldest bytes above the limit', () => {
    const tail = new TailBuffer(10)
    for (let from = 0; from < 99; from += 3) tail.push(stretch(from, 3))
    assertStretch(tail.take(), 89, 99)
  })

  it('keeps the end of a chunk longer than the limit', () => {
    const tail = new TailBuffer(10)
    tail.push(stretch(0, 1_000))
    assert.equal(tail.heldBytes, 10)
    assertStretch(tail.take(), 990, 1_000)
  })

  it('keeps absolute positions over several takes', () => {
    const tail = new TailBuffer(10)
    tail.push(stretch(0, 6))
    assertStretch(tail.take(), 0, 6)
    tail.push(stretch(6, 2))
    assertStretch(tail.take(), 6, 8)
    tail.push(stretch(8, 20))
    assertStretch(tail.take(), 18, 28)
  })

  it('puts bytes back as far as the limit allows', () => {
    const tail = new TailBuffer(10)
    tail.push(stretch(0, 8))
    const {bytes} = tail.take()
    tail.push(stretch(8, 5))
    tail.unshift(bytes)
    assertStretch(tail.take(), 3, 13)
  })

  it('drops bytes put back when newer bytes fill the buffer', () => {
    const tail = new TailBuffer(10)
    tail.push(stretch(0, 8))
    const {bytes} = tail.take()
    tail.push(stretch(8, 10))
    tail.unshift(bytes)
    assertStretch(tail.take(), 8, 18)
  })

  it('keeps no bytes with a limit of 0, but counts them', () => {
    const tail = new TailBuffer(0)
    tail.push(stretch(0, 5))
    tail.push(new Uint8Array())
    assert.equal(tail.totalBytes, 5)
    assert.equal(tail.heldBytes, 0)
    assertStretch(tail.take(), 5, 5)
  })

  it('costs bounded memory for a command that writes byte by byte from large buffers', () => {
    const tail = new TailBuffer(64 * 1024)
    const before = process.memoryUsage().arrayBuffers
    const pieces = 8_000
    for (let piece = 0; piece < pieces; piece += 1) {
      // Each byte is of a 64 KiB read buffer, as pipes deliver them: all of them together would be 0.5 GB.
      tail.push(new Uint8Array(64 * 1024).subarray(0, 1))
    }
    const grown = process.memoryUsage().arrayBuffers - before
    assert.ok(grown < 200 * 1024 * 1024, `grew by ${grown} bytes`)
    assert.equal(tail.take().bytes.length, pieces)
  })

  it('equals the end of the stream for any sequence of push, take and unshift', () => {
    const step = fc.oneof(
      {weight: 4, arbitrary: fc.record({push: fc.nat({max: 70})})},
      {weight: 1, arbitrary: fc.record({take: fc.boolean()})},
    )
    fc.assert(
      fc.property(
        fc.integer({min: 1, max: 50}),
        fc.array(step, {maxLength: 60}),
        (limit, steps) => {
          const tail = new TailBuffer(limit)
          let written = 0
          let usedUpTo = 0
          let lent: {offset: number; bytes: Uint8Array} | null = null
          for (const one of steps) {
            if ('push' in one) {
              tail.push(stretch(written, one.push))
              written += one.push
            } else if (lent !== null) {
              // `take: true` = it was used; else it comes back.
              if (one.take) usedUpTo = lent.offset + lent.bytes.length
              else tail.unshift(lent.bytes)
              lent = null
            } else {
              lent = tail.take()
              assertStretch(lent, Math.max(usedUpTo, written - limit), written)
            }
            assert.ok(tail.heldBytes <= limit + 70)
          }
          if (lent !== null) tail.unshift(lent.bytes)
          assert.equal(tail.totalBytes, written)
          assertStretch(tail.take(), Math.max(usedUpTo, written - limit), written)
        },
      ),
    )
  })
})
