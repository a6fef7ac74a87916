/** Backoff of retries: 1 s, doubled up to 5 min, with a jitter of ±20 %. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {isRetried, retryDelayMs} from '../../src/core/finish.ts'

describe('the delay before a retry', () => {
  const table: readonly [attempt: number, middleMs: number][] = [
    [1, 1_000],
    [2, 2_000],
    [3, 4_000],
    [4, 8_000],
    [8, 128_000],
    [9, 256_000],
    [10, 300_000],
    [11, 300_000],
    [100, 300_000],
    [1_000_000, 300_000],
  ]
  for (const [attempt, middleMs] of table) {
    it(`after attempt ${attempt} is ${middleMs} ms ± 20 %`, () => {
      assert.equal(retryDelayMs(attempt, 0.5), middleMs)
      assert.equal(retryDelayMs(attempt, 0), middleMs * 0.8)
      const most = retryDelayMs(attempt, 1 - Number.EPSILON)
      assert.ok(most <= middleMs * 1.2 && most > middleMs * 1.19)
      assert.ok(Number.isInteger(retryDelayMs(attempt, 0.123456789)))
    })
  }
})

describe('the retry of a final status', () => {
  for (const [status, retried] of [
    ['failed', true],
    ['timed_out', true],
    ['lost', true],
    ['cancelled', false],
    ['succeeded', false],
  ] as const) {
    it(`${status}: ${retried}`, () => assert.equal(isRetried(status), retried))
  }
})
