/** A killed leader is noticed at once, because its connection is closed; nothing else is taken for it. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {Answer, ServerProcess} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {ClusterProcess} from '../../tools/faults/cluster-process.ts'
import {elapse} from '../../tools/faults/load.ts'

/** Less than what remains of a lease that was just renewed: 2.5 s, and margin for a busy machine. */
const KILLED_WITHIN_MS = 4_500
/** Exceeds the time for which a closed connection has to be seen, and is less than the lease. */
const PAUSE_MS = 3_000

/** Launches of the job, oldest first. */
async function launchesOf(server: ServerProcess): Promise<Answer['json'][]> {
  const {json} = await server.get('/jobs/tick/launches?_end=1000')
  return json.toReversed()
}

/** The first launch decided after `after`, and in another term than `term` if that is given. */
function nextLaunch(server: ServerProcess, after: number, term: number | null = null) {
  return until('a launch', async () =>
    (await launchesOf(server)).find((launch) => {
      return Date.parse(launch.decided_at) > after && launch.term !== term
    }),
  )
}

test('a killed leader is replaced early, a living one is not', async (t) => {
  const cluster = await ClusterProcess.start(t, {servers: ['north', 'south']})
  const leader = await cluster.agreedLeader()
  const follower = leader === 'north' ? 'south' : 'north'
  const server = cluster.server(follower)
  await server.ask('POST', '/jobs', {
    name: 'tick',
    schedule: '* * * * * *',
    executor: 'shell',
    executor_config: {command: 'true'},
  })
  const {term} = await nextLaunch(server, 0)

  await t.test('its connection is ended by an administrator', async () => {
    const endSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE application_name = 'belfry lease'`
    for (let round = 0; round < 3; round += 1) {
      await cluster.postgres.run(endSessions)
      await elapse(PAUSE_MS)
      assert.equal((await nextLaunch(server, Date.now())).term, term)
    }
  })

  await t.test('it stands still for less than its lease', async () => {
    cluster.freeze(leader)
    await elapse(PAUSE_MS)
    cluster.wake(leader)
    assert.equal((await nextLaunch(server, Date.now())).term, term)
  })

  await t.test('it is killed', async (at) => {
    const killedAt = Date.now()
    cluster.program(leader).signal('SIGKILL')
    const first = await nextLaunch(server, killedAt, term)
    const tookMs = Date.parse(first.decided_at) - killedAt
    at.diagnostic(`first launch of the next term ${tookMs} ms after the kill`)
    assert(tookMs < KILLED_WITHIN_MS, `${tookMs} ms`)
  })

  const launches = await launchesOf(server)
  const [first] = launches
  launches.forEach(({scheduled_at: at, decision}, index) => {
    assert.equal(Date.parse(at), Date.parse(first.scheduled_at) + index * 1_000)
    assert.equal(decision, 'launched')
  })
})
