/** Redaction of values of secrets: across chunks, overlapping, in lines and encodings, and nothing else. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {Redaction} from '../../src/node/redaction.ts'
import {systemClock} from '../../src/platform/clock.ts'
import type {OutputSink} from '../../src/ports/executor.ts'
import {SeededRandom} from '../support/seeded-random.ts'

function collecting() {
  const parts: Buffer[] = []
  const target: OutputSink = {
    write: (bytes) => parts.push(Buffer.from(bytes)) > 0,
    drained: () => undefined,
  }
  return {target, text: () => Buffer.concat(parts).toString(), count: () => parts.length}
}

async function redacted(
  values: readonly string[],
  chunks: readonly (string | Uint8Array)[],
): Promise<string> {
  const {target, text} = collecting()
  const sink = (await Redaction.of(values, systemClock())).sink(target)
  for (const chunk of chunks) sink.write(Buffer.from(chunk as string))
  sink.flush()
  return text()
}

const URL_VALUE = 'http://user:pass%20wd@127.0.0.1:1/services/T0P/B00?team=1'

describe('redaction', () => {
  const rows: readonly (readonly [values: string[], output: string, expected: string])[] = [
    [['hunter2'], 'the password is hunter2.', 'the password is [secret].'],
    [['hunter2'], 'hunter2hunter2', '[secret][secret]'],
    [['hunter2'], 'hunter hunte hunt', 'hunter hunte hunt'],
    [['hunter2'], '', ''],
    [[], 'hunter2', 'hunter2'],
    // Overlapping values: no part of either is left.
    [['abcdef', 'defghi'], 'abcdefghi', '[secret]'],
    [['abcdef', 'abcdefgh'], 'abcdefgh abcdefg', '[secret] [secret]g'],
    [['abcabc'], 'abcabcabc', '[secret]'],
    [['aaaaaa'], 'aaaaaaaaaaaaa', '[secret]'],
    // Lines of a value.
    [['first line\nshort\nsecond line'], 'a second line, short', 'a [secret], short'],
    [['first line\nsecond line'], 'first line\nsecond line', '[secret]'],
    [['  hunter2  '], '>hunter2<', '>[secret]<'],
    // Encodings.
    [['pass word/2'], 'q=pass%20word%2F2', 'q=[secret]'],
    [['say "hello"'], '{"v":"say \\"hello\\""}', '{"v":"[secret]"}'],
    [['hunter2'], Buffer.from('hunter2').toString('hex'), '[secret]'],
    [['stäple'], 'a stäple b', 'a [secret] b'],
    [['pass word/2'], 'pass%20word%2f2 pass+word%2F2 pass%20word/2', '[secret] [secret] [secret]'],
    [["it's (me)!*"], 'it%27s%20%28me%29%21%2A', '[secret]'],
    [['stäple word/2'], '"st\\u00e4ple word/2" "stäple word\\/2"', '"[secret]" "[secret]"'],
    // Parts of a URL.
    [['https://Hooks.example'], '> POST https://hooks.example/', '> POST [secret]'],
    [[URL_VALUE], '> GET http://127.0.0.1:1/services/T0P/B00', '> GET [secret]'],
    [[URL_VALUE], 'GET /services/T0P/B00?team=1 HTTP/1.1', 'GET [secret] HTTP/1.1'],
    [[URL_VALUE], '"path": "/services/T0P/B00"', '"path": "[secret]"'],
    [[URL_VALUE], 'a user, pass wd, pass%20wd', 'a user, [secret], [secret]'],
    [[URL_VALUE], `Basic ${Buffer.from('user:pass wd').toString('base64')}`, 'Basic [secret]'],
    [['https://host.example/'], 'https://other.example/', 'https://other.example/'],
    // Wrapped lines.
    [['hunter2-hunter2'], 'hunter2\n-hunter\r\n2\n', '[secret]\n'],
    [['hunter2-hunter2'], 'hunte\nr2-hunter2', 'hunte\nr2-hunter2'],
    [['hunter2-hunter2'], 'hunter2\n\n\n-hunter2', 'hunter2\n\n\n-hunter2'],
    [['hunter2-hunter2'], 'hunter2\nx\ny', 'hunter2\nx\ny'],
    [['short\nlines\nof\na\nvalue'], 'short\nlines\nof\na\nvalue\n', '[secret]\n'],
  ]
  for (const [values, output, expected] of rows) {
    it(`${JSON.stringify(output)} without ${JSON.stringify(values)}`, async () => {
      assert.equal(await redacted(values, [output]), expected)
      // Whatever the chunks are.
      for (const size of [1, 2, 3, 5, 7]) {
        const bytes = Buffer.from(output)
        const count = Math.ceil(bytes.length / size)
        const chunks = Array.from({length: count}, (_, index) =>
          bytes.subarray(index * size, (index + 1) * size),
        )
        assert.equal(await redacted(values, chunks), expected, `in chunks of ${size}`)
      }
    })
  }

  it('finds a value in the base64 of a longer text, wherever it is in it', async () => {
    const value = 'correct horse battery'
    for (const encoding of ['base64', 'base64url'] as const)
      for (const before of ['', 'u:', 'me:', 'user:'])
        for (const after of ['', '!', '!!']) {
          const encoded = Buffer.from(`${before}${value}${after}`).toString(encoding)
          const shown = await redacted([value], [encoded])
          assert.match(shown, /\[secret\]/, `${before}${after} ${encoding}`)
          // The characters left encode its neighbours too.
          const left = shown.replace('[secret]', '').length
          assert.ok(left <= Math.ceil(((before.length + after.length) * 4) / 3) + 6, shown)
        }
  })

  it('finds a value in wrapped base64 and hexadecimal, wherever the lines break', async () => {
    const value = Array.from({length: 90}, (_, index) => `${index}.`).join('')
    for (const encoding of ['base64', 'base64url', 'hex'] as const)
      for (const before of ['', 'user:', 'a longer text before it'])
        for (const [columns, end] of [
          [76, '\n'],
          [64, '\r\n'],
          [60, '\n'],
        ] as const) {
          const encoded = Buffer.from(`${before}${value}`).toString(encoding)
          const lines = encoded.replaceAll(new RegExp(`.{${columns}}`, 'g'), `$&${end}`)
          const shown = await redacted([value], [`> ${lines}\n<`])
          assert.ok(shown.length < 60, shown)
        }
  })

  it('holds back only what may be the beginning of a value', async () => {
    const {target, text} = collecting()
    const sink = (await Redaction.of(['hunter2'], systemClock())).sink(target)
    sink.write(Buffer.from('password: '))
    assert.equal(text(), 'password: ')
    sink.write(Buffer.from('it is hunt'))
    assert.equal(text(), 'password: it is ')
    sink.write(Buffer.from('ing'))
    assert.equal(text(), 'password: it is hunting')
    sink.write(Buffer.from('hunter'))
    sink.flush()
    assert.equal(text(), 'password: it is huntinghunter')
  })

  it('passes on a chunk without values as it is, and the backpressure of its target', async () => {
    const calls: (() => void)[] = []
    const given: Uint8Array[] = []
    const target: OutputSink = {
      write: (bytes) => given.push(bytes) < 0,
      drained: (callback) => void calls.push(callback),
    }
    const sink = (await Redaction.of(['hunter2'], systemClock())).sink(target)
    const chunk = Buffer.from('nothing')
    assert.equal(sink.write(chunk), false)
    assert.equal(given[0]!.buffer, chunk.buffer, 'without a copy')
    assert.equal(sink.write(Buffer.from('hunt')), false, 'held back, and still full')
    let isDrained = false
    sink.drained(() => (isDrained = true))
    calls[0]!()
    assert.ok(isDrained)
    assert.equal(sink.write(Buffer.from('er')), true)
  })

  it('leaves no value in any split of a random text', async () => {
    const random = new SeededRandom(3)
    const text = (letters: string, length: number) =>
      Array.from({length}, () => letters[Math.floor(random.fraction() * letters.length)]).join('')
    for (let round = 0; round < 300; round++) {
      const values = [text('ab', 6), text('ab', 8), `${text('ab', 3)}\n${text('ab', 9)}`]
      const output = text(round % 2 === 0 ? 'ab' : 'aaabbb\n\r', 60)
      const whole = await redacted(values, [output])
      for (const value of values) assert.ok(!whole.includes(value), whole)
      const cut = Math.floor(random.fraction() * output.length)
      const other = cut + Math.floor(random.fraction() * (output.length - cut))
      const chunks = [output.slice(0, cut), output.slice(cut, other), output.slice(other)]
      assert.equal(await redacted(values, chunks), whole)
    }
  })

  it('takes no longer for periodic values and output', async () => {
    // A comparison of each value at each place took 13 s.
    const values = Array.from({length: 16}, (_, index) => 'a'.repeat(7_000 + index))
    for (const line of ['aaaaaaaa', 'aaaaaaa\n']) {
      const chunks = Array.from({length: 46}, () => Buffer.alloc(64 * 1024, line))
      const before = process.cpuUsage()
      assert.equal((await redacted(values, chunks)).trim(), '[secret]')
      const {user, system} = process.cpuUsage(before)
      assert.ok(user + system < 3_000_000, `${user + system} µs`)
    }
  })

  it('lets other work run while it prepares long values', async () => {
    const values = Array.from({length: 16}, (_, index) => `${index} `.repeat(2_000))
    let turns = 0
    const {now, monotonicMs, after} = systemClock()
    const counting = (delayMs: number, callback: () => void) => {
      turns++
      return after(delayMs, callback)
    }
    await Redaction.of(values, {now, monotonicMs, after: counting})
    assert.ok(turns > 16, `${turns} turns`)
  })
})
