/** A store that is corrupt: the server ends and says what to do, and does not start again on it. */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {overwriteRoot} from '../support/damage.ts'
import {aServer, refusedStart} from '../support/server-process.ts'
import {SOON_MS, within} from '../support/waiting.ts'

test('a server whose store became corrupt ends with exit code 1 and writes nothing more', async (t) => {
  const before = await aServer(t)
  await before.store({name: 'kept', schedule: '@manually', executor_config: {command: 'true'}})
  assert.equal((await before.stop()).code, 0)
  const file = join(before.data, 'belfry.sqlite')
  // Nothing reads this index by itself, so the damage appears when the test asks.
  overwriteRoot(file, 'job_metadata_key')
  const damaged = readFileSync(file)

  const server = await aServer(t, {data: before.data})
  const {status, text} = await server.get('/jobs?metadata[a]=b')
  assert.equal(status, 503, text)
  const {code} = await within(server.program.exit, 'the server ends', SOON_MS)
  assert.equal(code, 1)
  const log = server.program.stderr()
  assert.match(log, /The store is damaged: .* Nothing more is written to .*belfry\.sqlite/)
  assert.match(log, /PRAGMA integrity_check.*belfry restore-store <backup> --data <directory>/)
  assert.ok(readFileSync(file).equals(damaged), 'the log was not written back')

  const argv = ['--http', '127.0.0.1:0', '--data', before.data]
  const refused = await refusedStart(t, argv)
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
  assert.match(refused.stderr, /^belfry: The store in \S+ is damaged: .*belfry restore-store/)
  assert.ok(readFileSync(file).equals(damaged))
})
