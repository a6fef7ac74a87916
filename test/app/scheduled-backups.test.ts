/** Scheduled backups of real servers on PostgreSQL: a leader that is killed while it writes one. */
import assert from 'node:assert/strict'
import {mkdirSync, readdirSync, watch} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {TestPostgres} from '../support/postgres.ts'
import {aServer, atEnd, runProgram, temporaryDirectory} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

test('a leader killed during a backup leaves a draft, and the next one makes the backup', async (t) => {
  const place = temporaryDirectory(t)
  const postgres = await TestPostgres.start()
  atEnd(t, () => postgres.close())
  const url = await postgres.database()
  const shared = join(place, 'shared')
  mkdirSync(shared)
  const drafts = () => readdirSync(shared).filter((name) => name.includes('.partial'))
  const backups = () => readdirSync(shared).filter((name) => name.endsWith('.sqlite'))
  const flags = (name: string, directory = shared) =>
    ['--store', url, '--name', name].concat('--backup-dir', directory)

  const watcher = watch(shared)
  atEnd(t, () => watcher.close())
  const server = ['server', '--http', '127.0.0.1:0', '--data', join(place, 'first')]
  const first = runProgram(t, [...server, ...flags('first')])
  watcher.once('change', () => first.signal('SIGKILL'))
  await first.gone
  assert.deepEqual([drafts().length > 0, backups()], [true, []])

  const second = await aServer(t, {data: join(place, 'second'), flags: flags('second')})
  await until('the backup', () => backups().length > 0 && drafts().length === 0)
  // A follower with another directory shows the backup of the leader.
  const own = join(place, 'own')
  const third = await aServer(t, {data: join(place, 'third'), flags: flags('third', own)})
  const shown = await until('it is recorded', async () => {
    const {last_backup_file: file} = (await third.get('/')).json.gossip
    return file !== '' && String(file)
  })
  assert.deepEqual([backups(), drafts()], [[shown.slice(shared.length + 1)], []])
  await third.stop()
  await second.stop()

  const data = join(place, 'restored')
  const restored = runProgram(t, ['restore-store', shown, '--data', data])
  assert.equal((await restored.exit).code, 0, restored.stderr())
  const next = await aServer(t, {data, flags: ['--backup-dir', shared, '--backup-keep', '1']})
  assert.equal((await next.get('/')).json.gossip.firing, 'paused (restored)')
  await until('a backup of the restored store', () => backups().length === 2)
  await until('it is recorded', async () => {
    const {last_backup_file: file} = (await next.get('/')).json.gossip
    return file !== '' && file !== shown
  })
  assert.ok(backups().includes(shown.slice(shared.length + 1)), 'the earlier store keeps its own')
})
