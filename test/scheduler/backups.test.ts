/** Scheduled backups: when the leader makes one, what it leaves when it fails, and which files it deletes. */
import assert from 'node:assert/strict'
import {mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {backupProblem, type BackupState} from '../../src/core/backup.ts'
import {BackupDirectory} from '../../src/platform/backup-directory.ts'
import {TermOver} from '../../src/ports/store-errors.ts'
import {ScheduledBackups} from '../../src/scheduler/backups.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {until} from '../support/waiting.ts'

const HOUR = 3_600_000
/** How often a leader looks whether a backup is due. */
const LOOK_MS = 15_000
const STORE = {clusterId: 'cluster-of-tests', incarnation: 'first-incarnation'}
const PREFIX = 'belfry-cluster--first-in-'

function aCluster(t: TestContext) {
  const path = mkdtempSync(join(tmpdir(), 'belfry-backups-'))
  t.after(() => rmSync(path, {recursive: true, force: true}))
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const cluster = {
    path,
    clock,
    events,
    state: null as BackupState | null,
    problem: null as string | null,
    isOver: false,
    keep: 2,
    /** Called when a draft is written. */
    writing: async () => {},
    files: () => readdirSync(path).toSorted(),
    made: () => events.of('backup_made').length,
    failed: () => events.of('backup_failed').length,
    leader: () =>
      new ScheduledBackups({
        store: {
          backup: async (target) => {
            writeFileSync(target, 'a backup')
            await cluster.writing()
          },
          defaultTimezone: async () => 'UTC',
          backupState: async () => ({now: clock.now(), state: cluster.state}),
          recordBackup: async ({state}) => {
            if (cluster.isOver) throw new TermOver('another leader')
            cluster.state = state
          },
        },
        directory: async () => new BackupDirectory(path, STORE),
        check: async () => cluster.problem,
        schedule: '@hourly',
        keep: cluster.keep,
        nodeName: 'a',
        term: 1,
        onTermOver: () => {},
        clock,
        events,
      }),
    /**
     * Turns the clock until `count` backups were made or failed. It turns further while they are not: the
     * backup before may still delete old files on a slow disk, and each look within `ms` leaves it alone.
     */
    async turned(count: number, ms: number) {
      const ended = () => cluster.made() + cluster.failed() >= count
      await clock.advance(ms)
      await until('a backup ends', async () => {
        if (!ended()) await clock.advance(LOOK_MS)
        return ended()
      })
    },
  }
  return cluster
}

test('the first backup is made at once, then one each planned time; the newest are kept', async (t) => {
  const cluster = aCluster(t)
  const kept = ['notes.txt', `${PREFIX}20000101T000000Z.sqlite.keep`, 'belfry-other-x-1.sqlite']
  for (const name of kept) writeFileSync(join(cluster.path, name), '')
  const leader = cluster.leader()
  leader.start()
  for (let count = 1; count <= 4; count += 1) await cluster.turned(count, count === 1 ? 1 : HOUR)
  await until('old ones are deleted', () => cluster.files().length === kept.length + 2)
  const backups = cluster.files().filter((name) => !kept.includes(name))
  for (const name of backups) {
    assert.match(name, /^belfry-cluster--first-in-\d{8}T\d{6}Z\.sqlite$/)
    assert.equal(statSync(join(cluster.path, name)).mode & 0o777, 0o600)
  }
  assert.equal(cluster.state?.file, join(cluster.path, backups.at(-1)!))
  assert.equal(backupProblem(cluster.state, cluster.clock.now()), null)
  await cluster.clock.finish(leader.stop())
})

test('a takeover makes only a backup that was missed, and removes the draft of a crash', async (t) => {
  const cluster = aCluster(t)
  const first = cluster.leader()
  first.start()
  await cluster.turned(1, 1)
  await cluster.clock.finish(first.stop())
  const second = cluster.leader()
  second.start()
  await cluster.clock.advance(60_000)
  assert.equal(cluster.made(), 1)
  await cluster.clock.finish(second.stop())
  const draft = `${PREFIX}20000101T000000Z.sqlite.partial`
  for (const ending of ['', '-wal']) writeFileSync(join(cluster.path, `${draft}${ending}`), '')
  await cluster.clock.advance(3 * HOUR)
  assert.equal(backupProblem(cluster.state, cluster.clock.now()), 'the last backup is too old')
  const third = cluster.leader()
  third.start()
  await cluster.turned(2, 1)
  assert.equal(cluster.made(), 2)
  assert.equal(cluster.files().length, 2)
  await cluster.clock.finish(third.stop())
})

test('a backup that cannot be read back leaves no file, deletes none, and is tried again', async (t) => {
  const cluster = aCluster(t)
  const leader = cluster.leader()
  leader.start()
  await cluster.turned(1, 1)
  const good = cluster.files()
  cluster.problem = 'is damaged'
  await cluster.turned(2, HOUR)
  await until('it is stored', () => cluster.state?.failedAt !== null)
  assert.deepEqual(cluster.files(), good)
  assert.deepEqual(cluster.events.of('backup_failed'), [{message: 'the backup is damaged'}])
  const problem = backupProblem(cluster.state, cluster.clock.now())
  assert.equal(problem, 'the last backup failed (the backup is damaged)')
  cluster.problem = null
  await cluster.turned(3, 11 * 60_000)
  assert.equal(backupProblem(cluster.state, cluster.clock.now()), null)
  await cluster.clock.finish(leader.stop())
})

test('with one backup kept, the newest stays', async (t) => {
  const cluster = aCluster(t)
  cluster.keep = 1
  const leader = cluster.leader()
  leader.start()
  for (let count = 1; count <= 3; count += 1) {
    await cluster.turned(count, count === 1 ? 1 : HOUR)
    await until('old ones are deleted', () => cluster.files().length === 1)
    assert.equal(cluster.state?.file, join(cluster.path, cluster.files()[0]!))
  }
  await cluster.clock.finish(leader.stop())
})

test('a full disk or a missing directory keeps older backups and leaves no partial file', async (t) => {
  const cluster = aCluster(t)
  const leader = cluster.leader()
  leader.start()
  await cluster.turned(1, 1)
  const good = cluster.files()
  cluster.writing = () => Promise.reject(new Error('the disk is full'))
  await cluster.turned(2, HOUR)
  await until('it is stored', () => cluster.state?.failure === 'the disk is full')
  assert.deepEqual(cluster.files(), good)
  assert.equal(cluster.state?.file, join(cluster.path, good[0]!))
  cluster.writing = async () => {}
  rmSync(cluster.path, {recursive: true})
  writeFileSync(cluster.path, 'no directory')
  await cluster.turned(3, 11 * 60_000)
  await until('it is stored', () => /EEXIST|ENOTDIR/.test(cluster.state?.failure ?? ''))
  rmSync(cluster.path)
  await cluster.turned(4, 11 * 60_000)
  assert.deepEqual([cluster.made(), cluster.files().length], [2, 1])
  assert.equal(backupProblem(cluster.state, cluster.clock.now()), null)
  await cluster.clock.finish(leader.stop())
})

test('old backups that cannot be deleted are a problem, and the new one is not repeated', async (t) => {
  const cluster = aCluster(t)
  cluster.keep = 1
  // A directory is not deleted as a file.
  mkdirSync(join(cluster.path, `${PREFIX}20000101T000000Z.sqlite`))
  const leader = cluster.leader()
  leader.start()
  await cluster.turned(2, 1)
  await until('it is stored', () => cluster.state?.failedAt !== null)
  assert.notEqual(cluster.state?.lastAt, null)
  assert.match(backupProblem(cluster.state, cluster.clock.now())!, /^the last backup failed/)
  await cluster.clock.advance(11 * 60_000)
  assert.equal(cluster.made(), 1)
  await cluster.clock.finish(leader.stop())
})

test('a backup that is written when the term ends is discarded, and the next leader makes it', async (t) => {
  const cluster = aCluster(t)
  const written = Promise.withResolvers<void>()
  cluster.writing = () => written.promise
  const first = cluster.leader()
  first.start()
  await cluster.clock.advance(1)
  await until('a draft is written', () => cluster.files().length === 1)
  await cluster.clock.finish(first.stop())
  written.resolve()
  await until('the draft is removed', () => cluster.files().length === 0)
  assert.deepEqual([cluster.state?.lastAt ?? null, cluster.failed()], [null, 0])
  const second = cluster.leader()
  second.start()
  await cluster.turned(1, 1)
  assert.equal(cluster.files().length, 1)
  await cluster.clock.finish(second.stop())
})

test('a leader whose term is over records no backup', async (t) => {
  const cluster = aCluster(t)
  cluster.isOver = true
  const leader = cluster.leader()
  leader.start()
  await cluster.clock.advance(1)
  await until('the file is complete', () =>
    cluster.files().some((name) => name.endsWith('Z.sqlite')),
  )
  await cluster.clock.finish(leader.stop())
  assert.deepEqual([cluster.made(), cluster.failed(), cluster.state], [0, 0, null])
})
