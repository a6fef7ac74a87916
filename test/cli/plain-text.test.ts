/** Control sequences in the output of jobs never reach the terminal, wherever chunks are split. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import fc from 'fast-check'
import {oneLine, plainJson, PlainText} from '../../src/cli/sanitize.ts'

/** Written text and shown text. */
const ROWS: readonly (readonly [written: string, shown: string])[] = [
  ['plain text\n\twith tab', 'plain text\n\twith tab'],
  ['grüße 日本 🎉', 'grüße 日本 🎉'],
  ['\u001b[31mred\u001b[0m', 'red'],
  ['\u001b[1;38;2;1;2;3mx', 'x'],
  ['\u001b[?25lx\u001b[2J\u001b[1;1H', 'x'],
  ['\u001b]0;title\u0007x', 'x'],
  ['\u001b]8;;http://evil\u001b\\link\u001b]8;;\u001b\\', 'link'],
  ['\u001bP+q544e\u001b\\x', 'x'],
  ['\u001b_application\u001b\\x', 'x'],
  ['\u001b^private\u001b\\x\u001bXstart\u001b\\y', 'xy'],
  ['\u001bcreset', 'reset'],
  ['\u001b(0box\u001b(B', 'box'],
  ['\u009b31mred', 'red'],
  ['\u009d0;title\u009cx', 'x'],
  ['\u0090q\u001b\\x', 'x'],
  ['beep\u0007 back\b\b over\rwritten', 'beep back overwritten'],
  ['nul\0 delete\u007f next\u0085line', 'nul delete nextline'],
  ['\u001b]0;never ended\nnext line', '\nnext line'],
  ['\u001b[31', ''],
  ['\u001b\u001b[31mx', 'x'],
  ['\u001b[3\u001b[31mx', 'x'],
  ['\r\n', '\n'],
  ['a\u202eb\u2066c\u200f', 'abc'],
]

for (const [written, shown] of ROWS)
  test(`${JSON.stringify(written)} is shown as ${JSON.stringify(shown)}`, () => {
    assert.equal(new PlainText().push(written), shown)
    const pieces = new PlainText()
    const bitByBit = [...written].map((piece) => pieces.push(piece)).join('')
    assert.equal(bitByBit, shown, 'cut everywhere')
  })

test('control characters other than newline and tab are removed', () => {
  const any = fc.string({
    unit: fc.constantFrom('\u001b', '[', ']', '\\', 'm', 'x', '\u0007', '\u009b', '\n', '\0', '\t'),
  })
  fc.assert(
    fc.property(fc.array(any), (pieces) => {
      const plain = new PlainText()
      const shown = pieces.map((piece) => plain.push(piece)).join('')
      assert.equal(shown, new PlainText().push(pieces.join('')))
      // eslint-disable-next-line no-control-regex
      assert.doesNotMatch(shown, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/)
    }),
  )
})

test('a cell of a table is one line', () => {
  assert.equal(oneLine(' a\r\nb\tc\u001b[2J '), 'a b c')
})

test('JSON has no character that a terminal or a reader of lines takes for another', () => {
  const value = {text: 'a\u202e\u009b31m\u2028\u2029\u200d\u{e0001}\n grüße 日本 🎉'}
  for (const indent of [0, 2]) {
    const shown = plainJson(value, indent)
    assert.deepEqual(JSON.parse(shown), value)
    assert.doesNotMatch(shown.replaceAll('\n', ''), /[\p{C}\u2028\u2029]/u)
    assert.match(shown, / grüße 日本 🎉"/)
    assert.match(shown, /a\\u202e\\u009b31m/)
  }
})
