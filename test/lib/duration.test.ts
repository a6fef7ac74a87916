/** Durations as a table: `text → ms`, `null` = not a duration; and back. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {
  DURATION_MAX_MS,
  formatDuration,
  parseDuration,
  parseLength,
} from '../../src/lib/duration.ts'

const READ: readonly (readonly [text: string, ms: number | null])[] = [
  ['0', 0],
  ['0s', 0],
  ['1ms', 1],
  ['500ms', 500],
  ['1s', 1000],
  ['90s', 90_000],
  ['1m', 60_000],
  ['1h', 3_600_000],
  ['1d', 86_400_000],
  ['24h', 86_400_000],
  ['1h30m', 5_400_000],
  ['1.5h', 5_400_000],
  ['1d2h3m4s5ms', 93_784_005],
  ['30m1h', 5_400_000],
  ['1h1h', 7_200_000],
  ['.5s', 500],
  ['1.s', 1000],
  ['1.005s', 1005],
  ['0.1s', 100],
  ['4.35s', 4350],
  ['0.000001s', 0.001],
  ['1us', 0.001],
  ['1500us', 1.5],
  ['1µs', 0.001],
  ['1\u03bcs', 0.001],
  ['1ns', 0.000001],
  ['1000000ns', 1],
  ['007s', 7000],
  ['36525d', DURATION_MAX_MS],
  ['', null],
  [' ', null],
  ['5', null],
  ['00', null],
  ['0.0', null],
  ['1', null],
  ['s', null],
  ['.s', null],
  ['1S', null],
  ['1H', null],
  ['1w', null],
  ['1y', null],
  ['1M', null],
  ['-1s', null],
  ['+1s', null],
  ['1 s', null],
  ['1h 30m', null],
  [' 1s', null],
  ['1s ', null],
  ['1s\n', null],
  ['1e3s', null],
  ['1,5h', null],
  ['1..5h', null],
  ['1h30', null],
  ['infinity', null],
  ['NaNs', null],
  ['36525d1ms', null],
  ['99999999999999999999d', null],
  ['1s'.repeat(1000), null],
]

test('texts parse to their duration', async (group) => {
  for (const [text, ms] of READ) {
    await group.test(`${JSON.stringify(text.slice(0, 30))} → ${ms}`, () => {
      assert.equal(parseDuration(text), ms)
    })
  }
})

test('lengths are whole ms, rounded up', () => {
  for (const [text, ms] of [
    ['1.5ms', 2],
    ['100us', 1],
    ['1.0005s', 1001],
    ['30s', 30_000],
    ['0', 0],
    ['x', null],
  ] as const)
    assert.equal(parseLength(text), ms, text)
})

const SHOWN: readonly (readonly [ms: number, text: string])[] = [
  [0, '0s'],
  [1, '1ms'],
  [500, '500ms'],
  [1000, '1s'],
  [1500, '1s500ms'],
  [90_000, '1m30s'],
  [5_400_000, '1h30m'],
  [86_400_000, '1d'],
  [93_784_005, '1d2h3m4s5ms'],
  [DURATION_MAX_MS, '36525d'],
  [0.001, '1us'],
  [1.5, '1ms500us'],
  [0.000001, '1ns'],
  [0.0000001, '0s'],
  [0.9999999, '1ms'],
  [-1500, '-1s500ms'],
]

test('durations format to the shortest text', () => {
  for (const [ms, text] of SHOWN) assert.equal(formatDuration(ms), text)
  assert.throws(() => formatDuration(Number.NaN))
})

test('a formatted duration parses back to the same value', () => {
  for (let ms = 0; ms < DURATION_MAX_MS; ms = Math.ceil(ms * 1.37) + 1) {
    assert.equal(parseDuration(formatDuration(ms)), ms)
  }
})
