/** Output and query strings, one line per rule. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import {encodeExecution} from '../../src/wire/execution.ts'
import {decodeOutput, lastBytes, unfinishedBytes} from '../../src/wire/output.ts'
import {encodeCursor, Query, QueryProblem, readJobQuery, readKeyset} from '../../src/wire/query.ts'
import {anExecution} from '../support/fixtures.ts'

test('the last bytes never split a character', () => {
  const law = fc.property(fc.string({unit: 'grapheme'}), fc.nat(40), (text, bytesMax) => {
    const {text: last, cutBytes} = lastBytes(text, bytesMax)
    const bytes = Buffer.byteLength(last)
    assert.ok(bytes <= bytesMax && text.endsWith(last))
    assert.equal(cutBytes, Buffer.byteLength(text) - bytes)
    // Another character would not fit.
    if (cutBytes > 0) assert.ok(bytes + 4 > bytesMax)
  })
  fc.assert(law)
})

test('only an incomplete character at the end is held back', () => {
  const law = fc.property(fc.string({unit: 'binary'}), fc.nat(200), (text, at) => {
    const bytes = Buffer.from(text.toWellFormed())
    const cut = Math.min(at, bytes.length)
    const head = bytes.subarray(0, cut)
    const whole = cut - unfinishedBytes(head)
    const shown = decodeOutput(bytes.subarray(0, whole)) + decodeOutput(bytes.subarray(whole))
    assert.equal(shown, text.toWellFormed())
    assert.ok(cut - whole <= 3)
  })
  fc.assert(law)
  assert.equal(unfinishedBytes(new Uint8Array([0x80, 0x80, 0x80, 0x80])), 0)
  assert.equal(unfinishedBytes(new Uint8Array([0xff])), 1)
})

test('query values are decoded leniently; invalid ones throw by name', () => {
  const query = new Query('a=1&b=&c&d=%zz&e=+x+&a=2&f=false')
  assert.deepEqual(
    [query.first('a'), query.first('b'), query.first('c'), query.first('none')],
    ['1', '', '', null],
  )
  assert.equal(query.first('d'), '%zz')
  assert.equal(query.first('e'), ' x ')
  assert.deepEqual([query.isSet('c'), query.isSet('f'), query.isSet('none')], [true, false, false])
  assert.equal(query.integer('a', 9, {minimum: 0, maximum: 5}), 1)
  assert.equal(query.integer('b', 9, {minimum: 0, maximum: 5}), 9)
  assert.throws(() => query.integer('d', 9, {minimum: 0, maximum: 5}), QueryProblem)
  assert.equal(query.clamped('a', null, {minimum: 3, maximum: 5}), 3)
})

test('metadata filters are parsed in every spelling', () => {
  const filters = (text: string) => readJobQuery(new Query(text)).metadata
  const pair = [{key: 'k', value: 'v'}]
  for (const text of [
    'metadata[k]=v',
    'metadata=k:v',
    'metadata=k%3Dv',
    'metadata=k=v',
    'metadata[]=k:v',
  ])
    assert.deepEqual(filters(text), pair, text)
  assert.deepEqual(filters('metadata=k:a=b'), [{key: 'k', value: 'a=b'}])
  assert.deepEqual(filters('metadata=k=a:b'), [{key: 'k', value: 'a:b'}])
  assert.deepEqual(filters('metadata[k]='), [{key: 'k', value: ''}])
  assert.deepEqual(filters('metadata[a[b]]=c'), [{key: 'a[b]', value: 'c'}])
  assert.deepEqual(filters('metadata=x&metadata[]=y'), [{either: 'x'}, {either: 'y'}])
  assert.deepEqual(filters('metadata=:x'), [{either: ':x'}])
  assert.deepEqual(filters('metadata=&metadata[]=&metadata[]'), [])
})

test('late_result of an execution is empty without one', () => {
  const view = {...anExecution().record, output: new Uint8Array(), outputTruncated: false}
  assert.equal(encodeExecution(view, null).late_result, '')
  const late = encodeExecution({...view, lateResult: 'failed, exit status 3'}, 0)
  assert.equal(late.late_result, 'failed, exit status 3')
})

test('a cursor returns to its position; another text is refused by name', () => {
  const read = (text: string) => readKeyset(new Query(text), ['integer', 'text'])
  const position = [1_779_000_000_000, 'ä/?']
  const cursor = encodeCursor(position)!
  assert.match(cursor, /^[\w-]+$/)
  assert.deepEqual(read(`after=${cursor}&limit=7`), {after: position, limit: 7})
  assert.deepEqual(read(''), {after: null, limit: 100})
  assert.equal(encodeCursor(null), null)
  const encoded = (text: string) => Buffer.from(text).toString('base64url')
  for (const wrong of [
    'x!',
    encoded('{}'),
    encoded('[1]'),
    encoded('["a", "b"]'),
    encoded('[1e999, "b"]'),
    encoded('[1, "\\u0000"]'),
    encoded('[1, "b", 2]'),
    encoded('[1,'),
  ])
    assert.throws(
      () => read(`after=${wrong}`),
      /^QueryProblem: after: must be the `next` of a page/,
    )
  assert.throws(() => read('limit=1001'), /limit: must be an integer from 1 to 1000/)
  assert.throws(() => read('limit=0'), QueryProblem)
})
