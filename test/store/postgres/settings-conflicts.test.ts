/**
 * Changes of the settings and of jobs that commit while a transaction of the leader waits for their locks: it
 * stores nothing that was decided with the old ones.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {aRow, aSpec, HOUR, MINUTE} from '../exercise-store/scene.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

describe('a pause of firing that is being stored', () => {
  it('makes the decisions that wait for it conflicts', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting, rows}) => {
      const job = await scene.submit('a')
      scene.advance(MINUTE)
      const {settings} = await first.loadDue({limit: 1})
      // Holds the pause after it has locked the leader's row and before it has counted the revision.
      const holder = await hold('LOCK TABLE meta IN SHARE MODE')
      const pausing = second.pauseFiring({jobs: '*', reason: '', until: null})
      await waiting(1)
      const due = {jobId: job.id, revision: 1, expectedNextAt: job.nextAt!, forbid: false}
      const deciding = first.applyLaunches({
        term: scene.term,
        dues: [{...due, nextAt: job.nextAt! + MINUTE, rows: [aRow(job.nextAt!, 'launched')]}],
        requests: [],
        settings: settings.revision,
      })
      await waiting(2)
      await holder.release()
      assert.equal((await pausing).kind, 'paused')
      assert.deepEqual((await deciding).dues, ['conflict'])
      assert.deepEqual(await rows('SELECT decision FROM launches'), [])
    })
  })
})

describe('the end of a pause of firing', () => {
  it('of two concurrent requests is done and recorded once', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting, rows}) => {
      await first.pauseFiring({jobs: '*', reason: '', until: null})
      scene.advance(MINUTE)
      const holder = await hold('LOCK TABLE meta IN SHARE MODE')
      const ends = [first.endFiringPause('*')]
      await waiting(1)
      ends.push(second.endFiringPause('*'))
      await waiting(2)
      await holder.release()
      assert.deepEqual(
        (await Promise.all(ends)).map((pause) => pause?.until),
        [scene.now, undefined],
      )
      assert.equal((await rows(`SELECT FROM audit WHERE action = 'firing.resume'`)).length, 1)
    })
  })
})

describe('an edit that is being stored', () => {
  it('is not planned over after a change of the default time zone', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a', {schedule: '0 0 15 * * *'})
      await first.setTimezone('Asia/Tokyo')
      scene.advance(HOUR)
      // Holds the edit after it has locked the job and before it has stored the definition.
      const holder = await hold('LOCK TABLE definitions IN SHARE MODE')
      const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
      const editing = second.submit({spec: aSpec('a', {schedule: '0 30 * * * *'}), ...request})
      await waiting(1)
      const planning = first.planZone({term: scene.term, limit: 5})
      await waiting(2)
      await holder.release()
      const edited = await editing
      assert(edited.kind === 'stored')
      assert.equal((await planning).isDone, true)
      const {nextAt, spec} = await scene.job('a')
      assert.deepEqual([spec.schedule, nextAt], ['0 30 * * * *', edited.job.nextAt])
      assert.equal(nextAt, scene.now + HOUR / 2)
    })
  })

  it('is not planned over by the end of the pause after a restore', async () => {
    await withCluster(postgres, async ({scene, first, hold, waiting, rows}) => {
      const {id} = await scene.submit('a', {schedule: '0 0 15 * * *'})
      await rows(`INSERT INTO meta (key, value) VALUES ('firing_paused', 'restored')`)
      // An end that disables a job changes it so: a finish takes no lock on the definitions of all jobs.
      const holder = await hold(`UPDATE jobs SET revision = 2 WHERE id = ${id};
        UPDATE definitions SET definition = replace(definition, '0 0 15', '0 30 *') WHERE job_id = ${id}`)
      const resuming = first.resumeFiring({after: 0, limit: 5})
      await waiting(1)
      await holder.release()
      assert.equal(await resuming, null)
      assert.equal((await scene.job('a')).nextAt, scene.now + HOUR / 2)
    })
  })
})
