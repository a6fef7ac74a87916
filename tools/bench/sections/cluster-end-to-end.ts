/**
 * Saturated servers on one PostgreSQL, compared with plain loops: planned, launched, `true` run, finished,
 * counted. Everything shares the cores of this machine, so more servers are not faster: the section shows
 * their overhead.
 */
import {Cluster, startPostgres} from '../cluster.ts'
import {
  addRatios,
  measureLoops,
  PlainLoop,
  PROBE_EVERY_MS,
  stopwatch,
  type Rate,
} from '../plain-loop.ts'
import {saturate} from '../saturate.ts'
import type {Section} from '../section.ts'
import type {TestPostgres} from '../../../test/support/postgres.ts'

const SECOND_MS = 1000
/** Initial guess: share of the plain loop's rate that saturates a cluster. */
const FIRST_GUESS = 0.8
const GET_MAX_MS = 50

export const clusterEndToEnd: Section = {
  name: 'end to end',
  measure: async (bench) => {
    const {cluster: plan} = bench.plan
    const postgres = await startPostgres(bench.scratch)
    const loop = await PlainLoop.start(bench)
    const jobs = new Map<number, number>()
    for (let round = 0; bench.again(round, plan.rounds); round += 1) {
      bench.say(`round ${round + 1} of ${plan.rounds}`)
      let before = await measureLoops(loop)
      for (const servers of plan.servers) {
        const atFirst = jobs.get(servers) ?? Math.ceil(before.plain.perSecond * FIRST_GUESS)
        const measured = await measureServers(loop, postgres, servers, atFirst)
        jobs.set(servers, measured.jobs)
        const after = await measureLoops(loop)
        addRatios(bench, measured, [before, after])
        before = after
      }
    }
    await loop.end()
  },
}

/** Measures; returns the number of jobs a second that saturated the servers. */
async function measureServers(
  {bench, client}: PlainLoop,
  postgres: TestPostgres,
  servers: number,
  jobsAtFirst: number,
): Promise<Rate & {readonly jobs: number}> {
  const {plan, scratch, figures, say} = bench
  const label = servers === 1 ? '1 server' : `${servers} servers`
  say(label)
  const cluster = await Cluster.start(scratch, postgres, {servers})
  // The last server is a follower, if there are several.
  const asked = cluster.servers.at(-1)!
  const jobs = await saturate(asked, jobsAtFirst)
  const used = stopwatch(() => cluster.processorTimeMs())
  const before = await asked.succeeded()
  const probe = {url: `${asked.url}/v1/jobs/job-1`, everyMs: PROBE_EVERY_MS, ms: plan.windowMs}
  const latencies = await client.ask('probe', probe)
  const after = await asked.succeeded()
  const count = after.count - before.count
  const processorMsEach = used(count)
  const {waiting} = await asked.figures()
  if (waiting === 0) throw new Error('the servers ran out of work: they were not saturated')
  const perSecond = (count * SECOND_MS) / (after.atMs - before.atMs)
  figures.add(`${label}, executions`, '/s', perSecond)
  figures.add(`${label}, GET a job p50`, 'ms', latencies.p50Ms)
  figures.add(`${label}, GET a job p99`, 'ms', latencies.p99Ms, {atMost: GET_MAX_MS})
  await cluster.end()
  return {label, perSecond, processorMsEach, jobs}
}
