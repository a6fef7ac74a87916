/**
 * Cost of stored jobs on PostgreSQL that are not due: a pass of the launcher, and the processor time of idle
 * servers and their database.
 */
import type {handlers as Passes} from '../children/passes.ts'
import type {handlers as BareStore} from '../children/store.ts'
import {Cluster, startPostgres} from '../cluster.ts'
import {quantile} from '../figures.ts'
import {Link} from '../link.ts'
import {processorTimeMs} from '../processor-time.ts'
import type {Bench, Section} from '../section.ts'
import type {TestPostgres} from '../../../test/support/postgres.ts'

const MINUTE_MS = 60_000
/** Warm-up: in its first seconds a process compiles its code. */
const WARM_UP_MS = 2_000

export const clusterSizes: Section = {
  name: 'sizes',
  measure: async (bench) => {
    const postgres = await startPostgres(bench.scratch)
    for (const jobs of bench.plan.cluster.sizes) await measureSize(bench, postgres, jobs)
  },
}

async function measureSize(bench: Bench, postgres: TestPostgres, jobs: number): Promise<void> {
  const {plan, scratch, figures, say} = bench
  const label = `${jobs.toLocaleString('en-GB')} jobs`
  say(`${label}: filling`)
  const store = await postgres.database()
  const dataDir = await scratch.folder()
  const filler = Link.start<typeof BareStore>(scratch, 'store.ts')
  await filler.ask('open', {dataDir, store})
  await filler.ask('fill', {jobs})
  await filler.ask('close', null)
  await filler.end()
  // A single size is enough: idle work does not read jobs.
  if (jobs === plan.cluster.sizes.at(-1)) await measureIdle(bench, postgres, store, label)
  say(`${label}: passes`)
  const child = Link.start<typeof Passes>(scratch, 'passes.ts')
  const {idleMs, oneMs} = await child.ask('passes', {dataDir, store, count: plan.cluster.passes})
  await child.end()
  figures.add(`${label}, pass with nothing due, p50`, 'ms', quantile(idleMs, 0.5))
  figures.add(`${label}, pass with nothing due, p99`, 'ms', quantile(idleMs, 0.99))
  figures.add(`${label}, pass with one due, p50`, 'ms', quantile(oneMs, 0.5))
  figures.add(`${label}, pass with one due, p99`, 'ms', quantile(oneMs, 0.99))
  await scratch.remove(dataDir)
}

/** Idle cost in core seconds a minute: polls, heartbeats, the lease, retention. */
async function measureIdle(
  {plan, scratch, figures, say}: Bench,
  postgres: TestPostgres,
  store: string,
  label: string,
): Promise<void> {
  const servers = plan.cluster.servers.at(-1)!
  say(`${label}: ${servers} idle servers`)
  const cluster = await Cluster.start(scratch, postgres, {servers, store})
  await passing(WARM_UP_MS)
  const pids = [...cluster.servers.map(({pid}) => pid), cluster.postgresPid]
  const beganAt = performance.now()
  const before = pids.map((pid) => processorTimeMs(pid))
  await passing(plan.cluster.idleMs)
  const after = pids.map((pid) => processorTimeMs(pid))
  const minutes = (performance.now() - beganAt) / MINUTE_MS
  pids.forEach((pid, index) => {
    const [from, to] = [before[index], after[index]]
    if (from == null || to == null) return
    const isPostgres = pid === cluster.postgresPid
    const what = isPostgres ? 'PostgreSQL' : index === 0 ? 'the leader' : 'each follower'
    figures.add(`${label}, idle, ${what}, each minute`, 'ms', (to - from) / minutes)
  })
  await cluster.end()
}

async function passing(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms))
}
