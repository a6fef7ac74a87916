/** Byte sizes as a table: `text → bytes`, `null` where the text is none; and bytes back to text. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import fc from 'fast-check'
import {formatByteSize, parseByteSize} from '../../src/lib/byte-size.ts'

const READ: readonly (readonly [text: string, bytes: number | null])[] = [
  ['0', 0],
  ['1048576', 1_048_576],
  ['1B', 1],
  ['1kb', 1_000],
  ['1KB', 1_000],
  ['2MB', 2_000_000],
  ['3GB', 3_000_000_000],
  ['1TB', 1_000_000_000_000],
  ['1KiB', 1_024],
  ['512MiB', 536_870_912],
  ['2GiB', 2_147_483_648],
  ['1tib', 1_099_511_627_776],
  ['1.5 GiB', 1_610_612_736],
  ['1.5  gib', 1_610_612_736],
  ['0.4', 0],
  ['0.000001MB', 1],
  ['999999999999999TiB', 999_999_999_999_999 * 2 ** 40],
  ['', null],
  [' ', null],
  [' 1', null],
  ['1 ', 1],
  ['MB', null],
  ['.5MB', null],
  ['1.MB', null],
  ['1.0000001MB', null],
  ['1234567890123456', null],
  ['-1', null],
  ['+1', null],
  ['1e3', null],
  ['1,5MB', null],
  ['1PB', null],
  ['1M', null],
  ['1MBs', null],
  ['1 M B', null],
  ['constructor', null],
  ['1constructor', null],
  ['Infinity', null],
]

for (const [text, bytes] of READ) {
  test(`${JSON.stringify(text)} → ${bytes}`, () => assert.equal(parseByteSize(text), bytes))
}

const SHOWN: readonly (readonly [bytes: number, text: string])[] = [
  [0, '0 B'],
  [1, '1 B'],
  [1_023, '1023 B'],
  [1_024, '1 KiB'],
  [1_536, '1.5 KiB'],
  [2 ** 20 - 1, '1 MiB'],
  [8 * 2 ** 20, '8 MiB'],
  [12_900_000, '12.3 MiB'],
  [2 ** 31, '2 GiB'],
  [2 ** 50, '1024 TiB'],
]

for (const [bytes, text] of SHOWN) {
  test(`${bytes} bytes → ${text}`, () => assert.equal(formatByteSize(bytes), text))
}

test('a formatted size reads back within its rounding', () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), (bytes) => {
      const back = parseByteSize(formatByteSize(bytes))
      assert.ok(back !== null && Math.abs(back - bytes) <= bytes * 0.05)
    }),
  )
})
