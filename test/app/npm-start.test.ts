/** `npm start` as in the README: ending npm stops the server gracefully. */
import assert from 'node:assert/strict'
import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {join} from 'node:path'
import {test} from 'node:test'
import {endMarked} from '../support/living-processes.ts'
import {temporaryDirectory} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'

const WITHIN_MS = 30_000

test('a signal to npm stops the server gracefully', async (t) => {
  const data = join(temporaryDirectory(t), 'data')
  const flags = ['--http', '127.0.0.1:0', '--data', data]
  const npm = spawn('npm', ['start', '--silent', '--', ...flags], {
    cwd: join(import.meta.dirname, '..', '..'),
    stdio: ['ignore', 'pipe', 'pipe'],
    // A process group of its own, so that the cleanup can kill all of it.
    detached: true,
  })
  // Emitted when all processes with these streams have ended, the server included.
  const ended = once(npm, 'close')
  t.after(() => {
    endMarked(data)
    try {
      process.kill(-npm.pid!, 'SIGKILL')
    } catch {
      // The group has ended already.
    }
  })
  let printed = ''
  for (const stream of [npm.stdout, npm.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (printed += text))
  await until('the server is ready', () => printed.includes('is ready on'), WITHIN_MS)
  npm.kill('SIGTERM')
  await within(ended, 'npm and the server end', WITHIN_MS)
  assert.match(printed, /"msg":"stopped"/)
})
