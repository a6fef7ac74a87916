/** Progress of a long command: a redrawn line on a terminal, a few lines in a log. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {ProgressLine} from '../../src/cli/terminal.ts'

/** The output for progress at each of the times, in ms. */
function shown(isWatched: boolean, times: readonly number[]): string {
  let text = ''
  let now = 0
  const terminal = {err: (piece: string) => void (text += piece), progress: isWatched}
  const line = new ProgressLine(terminal, {monotonicMs: () => now})
  line.print('looking')
  for (const at of times) {
    now = at
    line.show({what: 'jobs', done: at, total: 10_000})
  }
  line.end()
  line.end()
  return text
}

test('a terminal shows one line, redrawn at most ten times per second and cleared at the end', () => {
  const clear = '\r\u001b[K'
  const bar = (filled: number) => `[${'#'.repeat(filled)}${'-'.repeat(24 - filled)}]`
  const drawn = [
    `looking`,
    `${bar(0)} 0 of 10,000 jobs`,
    `${bar(0)} 100 of 10,000 jobs`,
    `${bar(12)} 5,000 of 10,000 jobs`,
    `${bar(24)} 10,000 of 10,000 jobs`,
    '',
  ]
  assert.equal(shown(true, [0, 50, 99, 100, 199, 5_000, 10_000]), drawn.join(clear))
})

test('a log has a line every five seconds', () => {
  const lines = ['looking', '0 of 10,000 jobs', '5,000 of 10,000 jobs', '10,000 of 10,000 jobs', '']
  assert.equal(shown(false, [0, 100, 4_999, 5_000, 9_999, 10_000]), lines.join('\n'))
})

test('progress of nothing is complete', () => {
  let text = ''
  const terminal = {err: (piece: string) => void (text += piece), progress: true}
  new ProgressLine(terminal, {monotonicMs: () => 0}).show({what: 'members', done: 0, total: 0})
  assert.match(text, /\[#{24}\] 0 of 0 members$/)
})
