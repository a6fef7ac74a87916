/** Texts that all channels share: cleaning, cutting, and fitting a message into a limit. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {INCIDENTS_MAX} from '../../src/core/notice-message.ts'
import {
  cleanMessage,
  fitted,
  keepEnd,
  keepStart,
  moreOf,
  withoutLinks,
} from '../../src/notices/channels/message-text.ts'
import {aMessage, anIncident} from './receivers.ts'

test('a text is cut at the start or the end, within the limit, and says so', () => {
  const rows = [
    [keepStart('abcdef', 6), 'abcdef'],
    [keepStart('abcdef', 5), 'abcd…'],
    [keepStart('ab😀cd', 4), 'ab…'],
    [keepEnd('abcdef', 6), 'abcdef'],
    [keepEnd(`${'a'.repeat(100)}end`, 43), '… 102 characters before this are left out\nd'],
    [keepEnd(`${'a'.repeat(100)}😀`, 43), '… 102 characters before this are left out\n'],
  ] as const
  for (const [cut, expected] of rows) assert.equal(cut, expected)
  for (let max = 60; max < 120; max++) {
    const cut = keepEnd('0123456789'.repeat(20), max)
    assert.ok(cut.length <= max && cut.endsWith('6789'), String(max))
  }
})

test('control characters, marks of direction and escape codes are removed', () => {
  const hostile = 'a\u0000b\r\nc\u001b[31md\u001b]0;title\u0007\u202ee\u2028f\ud800'
  const [incident] = cleanMessage(
    aMessage({incidents: [anIncident({job: hostile, sentences: [hostile], outputTail: hostile})]}),
  ).incidents
  assert.equal(incident?.job, 'a b  cd e f\ufffd')
  assert.deepEqual(incident.sentences, [incident.job])
  assert.equal(incident.outputTail, 'a b\ncd e f\ufffd')
})

test('a link is one of http, without a password', () => {
  const rows = [
    ['https://belfry.example.org/ui/#/x', 'https://belfry.example.org/ui/#/x'],
    ['javascript:alert(1)', ''],
    ['data:text/html,x', ''],
    ['https://user:password@example.org/', ''],
    ['/ui/', ''],
    [`https://example.org/${'x'.repeat(2_000)}`, ''],
  ] as const
  for (const [url, expected] of rows)
    assert.equal(
      cleanMessage(aMessage({incidents: [anIncident({url})]})).incidents[0]?.url,
      expected,
    )
})

test('addresses in texts are no links any more', () => {
  const text = 'see https://a.example, HTTP://b.example and www.c.example'
  const broken = withoutLinks(text)
  assert.doesNotMatch(broken, /:\/\/|www\./i)
  assert.equal(broken.replaceAll('\u200b', ''), text)
})

test('more incidents than a person reads are counted', () => {
  const incidents = Array.from({length: 50}, () => anIncident())
  const message = cleanMessage(aMessage({incidents, more: 5}))
  assert.deepEqual([message.incidents.length, moreOf(message)], [INCIDENTS_MAX, 'and 35 more'])
})

test('a message fits any limit: output goes first, then sentences, then incidents', () => {
  const outputTail = 'x'.repeat(3_000)
  const incidents = Array.from({length: 10}, () => anIncident({outputTail}))
  const message = aMessage({incidents})
  const render = (form: typeof message) => form
  const sizeOf = (form: typeof message) => JSON.stringify(form.incidents).length
  for (const max of [100_000, 30_000, 10_000, 4_000, 1_000, 2]) {
    const form = fitted(message, max, render, sizeOf)
    assert.ok(sizeOf(form) <= max, String(max))
    assert.equal(form.incidents.length + form.more, 10)
    assert.ok(max < 4_000 || form.incidents.length === 10)
  }
  assert.equal(fitted(message, 100_000, render, sizeOf), message)
})
