/** Untrusted JSON, and the splitter for JSON arrays. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import {JsonArraySplitter, JsonArrayError} from '../../src/wire/json-array.ts'
import {JSON_DEPTH_MAX, readJson} from '../../src/wire/json.ts'

test('plain JSON is returned unchanged', () => {
  for (const text of ['{}', '[]', '1', '"x"', 'null', '{"a":{"b":[true,null,"x"]}}'])
    assert.deepEqual(readJson(text), {kind: 'value', value: JSON.parse(text)})
})

test('inner numbers keep their source text, first-level numbers stay numbers', () => {
  const text = '{"a":1.50,"m":{"x":1.50,"y":1e3,"z":{"w":12345678901234567890}},"l":[1]}'
  assert.deepEqual(readJson(text), {
    kind: 'value',
    value: {a: 1.5, m: {x: '1.50', y: '1e3', z: {w: '12345678901234567890'}}, l: [1]},
  })
})

const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)

test('prototype keys, U+0000, lone surrogates and deep nesting are rejected', () => {
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

test('a content problem names its path', () => {
  const problem = (text: string) => {
    const result = readJson(text)
    return result.kind === 'content' ? result.problem : null
  }
  assert.match(String(problem('{"a":{"b":["x","\\u0000"]}}')), /^a\.b\.1: contains the character/)
  assert.match(String(problem('{"a":{"__proto__":1}}')), /^a: contains the key "__proto__"/)
  assert.match(String(problem('"\\u0000"')), /^the body: contains/)
})

test('a huge invalid body is not parsed twice', () => {
  // A second parse with source texts would block the event loop for more than a second.
  const text = `{"tags":{"n":1.0,"l":[${'0,'.repeat(400_000)}0]}}`
  const result = readJson(text)
  assert.ok(result.kind === 'value')
  assert.equal((result.value as {tags: {n: unknown}}).tags.n, 1)
})

function split(chunks: readonly Uint8Array[], elementBytesMax = 1_000_000): unknown[] {
  const splitter = new JsonArraySplitter(elementBytesMax)
  const elements = chunks.flatMap((chunk) => splitter.push(chunk))
  splitter.end()
  return elements.map((element) => JSON.parse(Buffer.from(element).toString('utf8')))
}

test('an array in chunks of any size is split into the elements that JSON.parse finds', () => {
  const law = fc.property(
    fc.array(fc.jsonValue(), {maxLength: 6}),
    fc.integer({min: 1, max: 9}),
    fc.constantFrom(0, 1, 4),
    (values, size, indent) => {
      const bytes = Buffer.from(JSON.stringify(values, null, indent))
      const chunks: Uint8Array[] = []
      for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size))
      assert.deepEqual(split(chunks), JSON.parse(bytes.toString('utf8')))
    },
  )
  fc.assert(law, {numRuns: 300})
})

test('brackets and quotes inside of strings are no delimiters', () => {
  const text = '[{"a":"],[\\"}"}, "\\\\" ,[1,[2,{"b":"]"}]] ]'
  assert.deepEqual(split([Buffer.from(text)]), JSON.parse(text))
  assert.deepEqual(split([Buffer.from('\ufeff \n[\t1 ]\r\n ')]), [1])
})

test('input that is not one JSON array is rejected', () => {
  const bad = ['', ' ', '{}', '1', '[', '[1', '[1,', '[1,]', '[,1]', '[1,,2]', '[1] 2', '[1][2]']
  for (const text of bad) assert.throws(() => split([Buffer.from(text)]), JsonArrayError, text)
  assert.throws(() => split([Buffer.from(`["${'x'.repeat(200)}"]`)], 100), /larger than 100 bytes/)
})
