/** A killed test leaves no database behind: neither its server nor its folder. */
import assert from 'node:assert/strict'
import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {chmodSync, readdirSync} from 'node:fs'
import {test} from 'node:test'
import {temporaryDirectory} from '../../support/server-process.ts'
import {until} from '../../support/waiting.ts'

const SUPPORT = new URL('../../support/postgres.ts', import.meta.url).href

for (const when of ['while its server runs', 'while its server is down'])
  test(`the folder of a database goes with a process that dies ${when}`, async (t) => {
    const folder = temporaryDirectory(t)
    // The server runs as another user, who must be able to enter the folder.
    chmodSync(folder, 0o755)
    const script = `import {TestPostgres} from ${JSON.stringify(SUPPORT)}
      const postgres = await TestPostgres.start()
      if (${when.includes('down')}) await postgres.kill()
      console.log('started')
      process.stdin.once('data', () => { throw new Error('uncaught') })`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      env: {...process.env, TMPDIR: folder},
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    t.after(() => child.kill('SIGKILL'))
    const exited = once(child, 'exit')
    await once(child.stdout, 'data')
    assert.equal(readdirSync(folder).length, 1)
    child.stdin.write('die\n')
    await exited
    await until('the folder is gone', () => readdirSync(folder).length === 0)
  })
