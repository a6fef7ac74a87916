/** Meaning of answers of receivers, and when a message is sent again. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {judgeHttp, judgeSmtp, nextAttempt, parseRetryAfter} from '../../src/core/notice-delivery.ts'

test('a status of HTTP is sent, tried again or refused', () => {
  const rows = [
    ['sent', 200, 202, 204],
    ['retry', 408, 425, 429, 500, 502, 503, 504, 599],
    ['permanent', 300, 301, 302, 307, 308, 400, 401, 403, 404, 410, 413, 422, 499, 101, 600],
  ] as const
  for (const [outcome, ...statuses] of rows)
    for (const status of statuses) {
      const delivery = judgeHttp(status)
      assert.equal(delivery.outcome, outcome, String(status))
      assert.match(delivery.cause, new RegExp(`^${status}: [a-zA-Z, ]+$`))
    }
})

test('a code of SMTP is sent, tried again or refused', () => {
  const rows = [
    ['sent', 250],
    ['retry', 421, 450, 451, 452, 454],
    ['permanent', 500, 530, 535, 550, 552, 554, 354],
  ] as const
  for (const [outcome, ...codes] of rows)
    for (const code of codes) assert.equal(judgeSmtp(code).outcome, outcome, String(code))
})

test('the wish of the receiver is kept only when it may accept later', () => {
  assert.equal(judgeHttp(429, 3_000).retryAfterMs, 3_000)
  assert.equal(judgeHttp(503, 3_000).retryAfterMs, 3_000)
  assert.equal(judgeHttp(404, 3_000).retryAfterMs, undefined)
  assert.equal(judgeHttp(200, 3_000).retryAfterMs, undefined)
})

test('Retry-After is seconds or a date, and anything else is nothing', () => {
  const now = Date.parse('2026-11-22T02:00:00Z')
  const rows = [
    ['120', 120_000],
    [' 0 ', 0],
    ['Sun, 22 Nov 2026 02:01:00 GMT', 60_000],
    ['Sun, 22 Nov 2026 01:00:00 GMT', 0],
    ['soon', null],
    ['-5', null],
    ['1.5', null],
    ['', null],
    ['99999999999', null],
    ['2026-11-22T02:01:00Z', null],
    ['Sun, 99 Nov 2026 02:01:00 GMT', null],
  ] as const
  for (const [text, expected] of rows) assert.equal(parseRetryAfter(text, now), expected, text)
})

/** Times of all attempts in seconds after the first, when each ends at once with the outcome at its place. */
function schedule(outcomes: (attempt: number) => 'retry' | 'permanent'): readonly number[] {
  const times = [0]
  for (let attempt = 1; attempt < 1_000; attempt++) {
    const next = nextAttempt(outcomes(attempt), attempt, 0, times.at(-1)! * 1000)
    if (next === null) return times
    times.push(next / 1000)
  }
  assert.fail('the message is never dead')
}

test('a receiver that does not answer is tried after 5 s, doubled up to 15 min, for 24 h', () => {
  const times = schedule(() => 'retry')
  assert.deepEqual(times.slice(0, 10), [0, 5, 15, 35, 75, 155, 315, 635, 1275, 2175])
  assert.ok(times.slice(9).every((time, at) => at === 0 || time - times[at + 8]! <= 900))
  assert.equal(times.at(-1), 24 * 3600)
})

test('a message that is refused is tried after 1 min, 10 min and 1 h', () => {
  assert.deepEqual(
    schedule(() => 'permanent'),
    [0, 60, 660, 4260],
  )
})

test('a receiver that fails and then refuses for a moment does not kill the message', () => {
  const times = schedule((attempt) => (attempt === 6 ? 'permanent' : 'retry'))
  assert.equal(times.at(-1), 24 * 3600)
  const refusing = schedule((attempt) => (attempt < 20 ? 'retry' : 'permanent'))
  assert.equal(refusing.at(-1), 24 * 3600)
})

test('Retry-After delays an attempt, but not beyond the 24 h', () => {
  assert.equal(nextAttempt('retry', 1, 0, 0, 60_000), 60_000)
  assert.equal(nextAttempt('retry', 1, 0, 0, 1_000), 5_000)
  assert.equal(nextAttempt('retry', 1, 0, 0, 1e12), 24 * 3_600_000)
  assert.equal(nextAttempt('retry', 9, 0, 24 * 3_600_000, 1_000), null)
})
