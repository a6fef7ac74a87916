/** Servers of tests end with the process that started them, however that ends. */
import assert from 'node:assert/strict'
import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {join} from 'node:path'
import {createInterface} from 'node:readline'
import {test} from 'node:test'
import {endProcess, isAlive} from '../support/living-processes.ts'
import {until} from '../support/waiting.ts'

const WATCHDOG = join(import.meta.dirname, '..', 'support', 'watchdog.ts')

/** Watches two processes, one of them frozen, tells their pids, and waits until it is killed. */
const OWNER = `
import {spawn} from 'node:child_process'
import {Watchdog} from ${JSON.stringify(WATCHDOG)}
const watchdog = new Watchdog()
const start = () => {
  const child = spawn('sleep', ['600'], {stdio: 'ignore'})
  watchdog.watch(child)
  return child
}
const [over, frozen, other] = [start(), start(), start()]
over.once('exit', () => console.log(frozen.pid, other.pid))
frozen.kill('SIGSTOP')
over.kill()`

const options = {skip: process.platform === 'linux' ? false : 'needs /proc'}

test('a killed process leaves no servers behind', options, async (t) => {
  const owner = spawn(process.execPath, ['--input-type=module', '--eval', OWNER], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => owner.kill('SIGKILL'))
  const [line] = (await once(createInterface(owner.stdout), 'line')) as [string]
  const pids = line.split(' ').map(Number)
  t.after(() => pids.filter(isAlive).forEach(endProcess))
  assert.deepEqual(pids.map(isAlive), [true, true])
  owner.kill('SIGKILL')
  await until('both have ended', () => !pids.some(isAlive))
})
