/** References to secrets in parameters: found, filled, and left alone. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {
  fillSecrets,
  percentEncoded,
  SECRET_NAME,
  secretsIn,
  secretsOf,
} from '../../src/core/secret.ts'

const VALUES = {a: 'one', 'b.c': 'two ${secret:a} $& $1'}

const ROWS: readonly (readonly [text: string, names: readonly string[], filled: string])[] = [
  ['nothing', [], 'nothing'],
  ['${other:a} $a ${a}', [], '${other:a} $a ${a}'],
  ['${secret:a}', ['a'], 'one'],
  ['x${secret:a}y${secret:a}', ['a', 'a'], 'xoneyone'],
  // A value is not searched for references, and has no patterns of a replacement.
  ['${secret:b.c}', ['b.c'], 'two ${secret:a} $& $1'],
  ['${secret:none}', ['none'], '${secret:none}'],
  ['${secret:constructor}', ['constructor'], '${secret:constructor}'],
  ['${secret:}', [''], '${secret:}'],
  ['${secret:a', [''], '${secret:a'],
  ['${secret:a} ${secret:b', ['a', ''], 'one ${secret:b'],
]

test('references are found, and filled where there is a value', () => {
  for (const [text, names, filled] of ROWS) {
    assert.deepEqual(secretsIn(text), names, text)
    assert.equal(fillSecrets(text, VALUES), filled, text)
  }
  assert.equal(
    fillSecrets('${secret:a}', VALUES, (value) => value.toUpperCase()),
    'ONE',
  )
})

test('a definition names each secret once, in any parameter of its executor', () => {
  const executorConfig = {url: '${secret:a}/${secret:b}', body: '${secret:b}', method: 'POST'}
  assert.deepEqual(secretsOf({executorConfig}), ['a', 'b'])
})

test('a name can be a part of a path and of a reference', () => {
  for (const name of ['a', 'db.password', 'A_b-1', 'x'.repeat(128)]) assert.match(name, SECRET_NAME)
  for (const name of ['', '.', '..', 'a b', 'a/b', 'a}', 'ü', 'x'.repeat(129)])
    assert.doesNotMatch(name, SECRET_NAME)
})

test('a percent-encoded value stays as it is in every part of a URL', () => {
  const value = Array.from({length: 128}, (_, code) => String.fromCharCode(code)).join('') + 'é'
  const code = percentEncoded(value)
  assert.equal(decodeURIComponent(code), value)
  const url = new URL(`http://${code}:${code}@host/${code}?${code}#${code}`)
  for (const part of [url.username, url.password, url.pathname, url.search, url.hash])
    assert.equal(part.replace(/^[/?#]/, ''), code)
})
