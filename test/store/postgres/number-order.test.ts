/**
 * Launch numbers are taken before the commit: a smaller number may appear after a larger one. Readers that
 * page by numbers still find it.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {checkedLimits} from '../../../src/config/limits.ts'
import {ClockGuard} from '../../../src/core/clock-guard.ts'
import {Launcher} from '../../../src/scheduler/launcher.ts'
import {localWakeup} from '../../../src/platform/wakeup.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {withCluster, type Cluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {RecordedEvents} from '../../support/recorded-events.ts'
import {anEnd, MINUTE} from '../exercise-store/scene.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

/** Inserting a dependent's request, whose number is taken by then, waits for this advisory lock. */
const GATE = 4711
const GATED = `CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN PERFORM pg_advisory_xact_lock(${GATE}); RETURN NEW; END $$;
  CREATE TRIGGER gate BEFORE INSERT ON launches FOR EACH ROW WHEN (NEW.cause = 'parent')
  EXECUTE FUNCTION gate()`

interface OutOfOrder {
  /** Number of the request that is committed already. */
  readonly larger: number
  /** Commits the request with the smaller number. */
  commitSmaller(): Promise<void>
}

/** The finish of `a` has taken a number for `child` without a commit; a later request of `b` is committed. */
async function outOfOrder({
  scene,
  first,
  second,
  rows,
  hold,
  waiting,
}: Cluster): Promise<OutOfOrder> {
  await scene.submit('a')
  await scene.submit('b')
  await scene.submit('child', {schedule: '', parentJob: 'a'})
  await scene.run('a')
  const claimed = await scene.claimOne()
  await rows(GATED)
  const holder = await hold(`SELECT pg_advisory_xact_lock(${GATE})`)
  const ending = first.finish([anEnd(claimed, 'succeeded')])
  await waiting(1)
  const asked = await second.requestRun({name: 'b', forced: false, idempotency: null})
  assert(asked.kind === 'accepted')
  return {
    larger: asked.group,
    commitSmaller: async () => {
      await holder.release()
      await ending
    },
  }
}

describe('a request with a smaller number than one committed before', () => {
  it('is decided by a leader that has read the larger one', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, first} = cluster
      const events = new RecordedEvents()
      const wakeup = localWakeup()
      const decided = (job: string) =>
        new Promise<number>((resolve) => {
          events.listen(({name, data}) => {
            if (name === 'launch_decided' && data.job === job) resolve(data.group)
          })
        })
      const leader = new Launcher({
        store: first,
        term: scene.term,
        onTermOver: () => assert.fail('the term is not over'),
        clock: systemClock(),
        random: systemRandom(),
        wakeup,
        events,
        clockGuard: new ClockGuard({clockFarMs: MINUTE, clockConfirmMs: MINUTE}),
        zoneData: '2026a',
        defaultTarget: 'all',
        lateAfterMs: MINUTE,
        targetWaitMs: MINUTE,
        hasBursts: false,
        // The test must not depend on polling.
        limits: {...checkedLimits(), launchFirstMax: 1_000, pollMs: 10 * MINUTE},
      })
      const {larger, commitSmaller} = await outOfOrder(cluster)
      const [ofB, ofChild] = [decided('b'), decided('child')]
      leader.start()
      assert.equal(await ofB, larger)
      await commitSmaller()
      wakeup.notify('launch')
      const smaller = await ofChild
      assert(smaller < larger, `${smaller} and ${larger}`)
      await leader.stop()
    })
  })

  it('is read from 0, but not after the larger one', async () => {
    await withCluster(postgres, async (cluster) => {
      const {second} = cluster
      const {larger, commitSmaller} = await outOfOrder(cluster)
      const namesAfter = async (afterGroup: number) => {
        const {requests} = await second.loadRequests({afterGroup, limit: 10})
        return requests.map(({job}) => job.spec.name)
      }
      assert.deepEqual(await namesAfter(0), ['b'])
      await commitSmaller()
      assert.deepEqual(await namesAfter(larger), [])
      assert.deepEqual(await namesAfter(0), ['child', 'b'])
    })
  })
})
