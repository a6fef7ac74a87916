/** Misspelt words, and values in messages. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {meantBy} from '../../src/lib/nearest.ts'
import {quoteForMessage} from '../../src/lib/quote.ts'

test('a misspelt word means the nearest one, unless it is too far', () => {
  const words = ['retries', 'schedule', 'concurrency', 'max_lateness', 'name']
  for (const [text, meant] of [
    ['retrys', 'retries'],
    ['schedul', 'schedule'],
    ['concurency', 'concurrency'],
    ['max-lateness', 'max_lateness'],
    ['Name', 'name'],
    ['colour', ''],
    ['n', ''],
    ['x'.repeat(100_000), ''],
  ] as const)
    assert.equal(meantBy(text, words), meant, text.slice(0, 20))
})

test('a value in a message is short and has no invisible characters', () => {
  assert.equal(quoteForMessage('a"b'), String.raw`"a\"b"`)
  assert.equal(quoteForMessage('x\u202ey\u009bz\n'), String.raw`"x\u202ey\u009bz\n"`)
  assert.equal(quoteForMessage(-1), '-1')
  assert.ok(quoteForMessage('x'.repeat(100_000)).length < 70)
})
