/** Reading JSON from anyone, and splitting files of it. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import {JsonArraySplitter, NotAnArray} from '../../src/wire/json-array.ts'
import {JSON_DEPTH_MAX, readJson} from '../../src/wire/json.ts'

test('plain JSON comes out as it is', () => {
  for (const text of ['{}', '[]', '1', '"x"', 'null', '{"a":{"b":[true,null,"x"]}}'])
    assert.deepEqual(readJson(text), {kind: 'value', value: JSON.parse(text)})
})

test('inner numbers keep the text they were written in, outer ones stay numbers', () => {
  const text = '{"a":1.50,"m":{"x":1.50,"y":1e3,"z":{"w":12345678901234567890}},"l":[1]}'
  assert.deepEqual(readJson(text), {
    kind: 'value',
    value: {a: 1.5, m: {x: '1.50', y: '1e3', z: {w: '12345678901234567890'}}, l: [1]},
  })
})

const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)

test('what would do harm is refused', () => {
  const refused = [
    '{"__proto__":1}',
    '{"a":{"constructor":1}}',
    '[{"prototype":1}]',
    '{"a":"\\u0000"}',
    '{"\\u0000":1}',
    '"\\ud800"',
    '["\\udc00x"]',
    deep(JSON_DEPTH_MAX + 1),
    deep(100_000),
  ]
  for (const text of refused) assert.equal(readJson(text).kind, 'content', text.slice(0, 40))
  assert.equal(readJson(deep(JSON_DEPTH_MAX)).kind, 'value')
  assert.equal(readJson('"\\ud83d\\udd14"').kind, 'value')
  for (const text of ['', '{', "{'a':1}", 'undefined', '{"a":1,}'])
    assert.equal(readJson(text).kind, 'syntax')
})

test('the place of what is wrong is named', () => {
  const problem = (text: string) => {
    const reading = readJson(text)
    return reading.kind === 'content' ? reading.problem : null
  }
  assert.match(String(problem('{"a":{"b":["x","\\u0000"]}}')), /^a\.b\.1: holds the character/)
  assert.match(String(problem('{"a":{"__proto__":1}}')), /^a: holds the key "__proto__"/)
  assert.match(String(problem('"\\u0000"')), /^the body: holds/)
})

test('a huge body without sense costs little more than parsing it', () => {
  // Parsed once more with its numbers as written, this would stop the process for more than a second.
  const text = `{"tags":{"n":1.0,"l":[${'0,'.repeat(400_000)}0]}}`
  const reading = readJson(text)
  assert.ok(reading.kind === 'value')
  assert.equal((reading.value as {tags: {n: unknown}}).tags.n, 1)
})

function split(pieces: readonly Uint8Array[], elementBytesMax = 1_000_000): unknown[] {
  const splitter = new JsonArraySplitter(elementBytesMax)
  const elements = pieces.flatMap((piece) => splitter.push(piece))
  splitter.end()
  return elements.map((element) => JSON.parse(Buffer.from(element).toString('utf8')))
}

test('an array in any pieces is split into what JSON.parse would have found', () => {
  const law = fc.property(
    fc.array(fc.jsonValue(), {maxLength: 6}),
    fc.integer({min: 1, max: 9}),
    fc.constantFrom(0, 1, 4),
    (values, size, indent) => {
      const bytes = Buffer.from(JSON.stringify(values, null, indent))
      const pieces: Uint8Array[] = []
      for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size))
      assert.deepEqual(split(pieces), JSON.parse(bytes.toString('utf8')))
    },
  )
  fc.assert(law, {numRuns: 300})
})

test('brackets and quotes inside of strings are no borders', () => {
  const text = '[{"a":"],[\\"}"}, "\\\\" ,[1,[2,{"b":"]"}]] ]'
  assert.deepEqual(split([Buffer.from(text)]), JSON.parse(text))
  assert.deepEqual(split([Buffer.from('\ufeff \n[\t1 ]\r\n ')]), [1])
})

test('what is not one array is refused', () => {
  const bad = ['', ' ', '{}', '1', '[', '[1', '[1,', '[1,]', '[,1]', '[1,,2]', '[1] 2', '[1][2]']
  for (const text of bad) assert.throws(() => split([Buffer.from(text)]), NotAnArray, text)
  assert.throws(() => split([Buffer.from(`["${'x'.repeat(200)}"]`)], 100), /larger than 100 bytes/)
})
