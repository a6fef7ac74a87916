import assert from 'node:assert/strict'
import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, test} from 'node:test'
import {lockDirectory} from '../../src/platform/directory-lock.ts'

const LOCK = new URL('../../src/platform/directory-lock.ts', import.meta.url).href

let directory = ''
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'belfry-lock-'))
})
afterEach(() => rmSync(directory, {recursive: true, force: true}))

test('a data directory in use is refused by name until it is released', () => {
  const first = lockDirectory(directory)
  assert.ok(first.ok)
  const second = lockDirectory(directory)
  assert.ok(!second.ok && second.isHeld)
  assert.ok(second.problem.includes(directory))
  assert.match(second.problem, /is held by another Belfry process\. Stop that process or choose/)
  first.release()
  const third = lockDirectory(directory)
  assert.ok(third.ok)
  third.release()
})

test('the kernel releases the lock of a process that was killed', async () => {
  const script = `
    const {lockDirectory} = await import(${JSON.stringify(LOCK)})
    const lock = lockDirectory(${JSON.stringify(directory)})
    process.stdout.write(String(lock.ok))
    setInterval(() => lock, 60_000)`
  const owner = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [said] = (await once(owner.stdout, 'data')) as [Buffer]
  assert.equal(said.toString(), 'true')
  assert.equal(lockDirectory(directory).ok, false)
  const gone = once(owner, 'exit')
  owner.kill('SIGKILL')
  await gone
  const lock = lockDirectory(directory)
  assert.ok(lock.ok)
  lock.release()
})

test('a data directory that cannot be opened is refused, and not as held', () => {
  const lock = lockDirectory(join(directory, 'missing'))
  assert.ok(!lock.ok && !lock.isHeld)
  assert.match(lock.problem, /cannot be used: unable to open/)
})
