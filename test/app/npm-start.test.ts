/** `npm start` as the README tells it: ending npm ends the server, in good order. */
import assert from 'node:assert/strict'
import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {join} from 'node:path'
import {test} from 'node:test'
import {endMarked} from '../support/living-processes.ts'
import {temporaryDirectory} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'

const WITHIN_MS = 30_000

test('whoever ends npm ends the server, which stops in good order', async (t) => {
  const data = join(temporaryDirectory(t), 'data')
  const flags = ['--http', '127.0.0.1:0', '--data', data]
  const npm = spawn('npm', ['start', '--silent', '--', ...flags], {
    cwd: join(import.meta.dirname, '..', '..'),
    stdio: ['ignore', 'pipe', 'pipe'],
    // Its own group, so that whatever happens all of it can be ended.
    detached: true,
  })
  // Only when everything that holds its streams is gone, the server among it.
  const ended = once(npm, 'close')
  t.after(() => {
    endMarked(data)
    try {
      process.kill(-npm.pid!, 'SIGKILL')
    } catch {
      // Nothing of the group is left, as it should be.
    }
  })
  let said = ''
  for (const stream of [npm.stdout, npm.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text))
  await until('the server is ready', () => said.includes('is ready on'), WITHIN_MS)
  npm.kill('SIGTERM')
  await within(ended, 'npm and the server end', WITHIN_MS)
  assert.match(said, /"msg":"stopped"/)
})
