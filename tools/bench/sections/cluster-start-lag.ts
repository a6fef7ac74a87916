/**
 * Lag of launches, claims and started commands on PostgreSQL: at a steady rate, with many jobs due in the
 * same second, and with so many that only their launches are awaited. Servers, PostgreSQL and commands share
 * the cores.
 */
import type {TestPostgres} from '../../../test/support/postgres.ts'
import type {handlers as Client} from '../children/http-client.ts'
import {clusterLags, type Lags} from '../cluster-launch-lags.ts'
import {Cluster, startPostgres} from '../cluster.ts'
import {atOnce, nextSecond, SECOND_MS, steady, steadyLags, until} from '../due.ts'
import {quantile, type Target} from '../figures.ts'
import {Link} from '../link.ts'
import type {Bench, Section} from '../section.ts'
import {StartWatch} from '../start-watch.ts'

/** Time for storing the jobs before they are due. */
const AHEAD_MS = 2_000
const AHEAD_PER_JOB_MS = 0.3
/** Jobs in one request, which is one transaction: a statement limits the number of its parameters. */
const STORED_AT_ONCE = 10_000
const WARM_UP_MS = 2_000
const LOOK_EVERY_MS = 100
/** 1 if any job is still due, else 0. Counting them would take processor time from what is measured. */
const ANY_LEFT = `SELECT count(*)::int AS left
  FROM (SELECT 1 FROM jobs WHERE next_at IS NOT NULL LIMIT 1) AS due`
const LIMIT_MS = 90_000
const P50_MAX_MS = 50
const P99_MAX_MS = 500
const RECORDED_MAX_MS = 10_000
const PROBE_EVERY_MS = 20
const GET_MAX_MS = 250

export const clusterStartLag: Section = {
  name: 'start lag',
  measure: async (bench) => {
    const postgres = await startPostgres(bench.scratch)
    const {servers: counts} = bench.plan.cluster
    for (const servers of counts) await measureSteady(bench, postgres, servers)
    for (const servers of counts) await measureBurst(bench, postgres, servers)
    await measureFlood(bench, postgres, counts.at(-1)!)
  },
}

/** Jobs that fire every second, spread over the second. */
async function measureSteady(bench: Bench, postgres: TestPostgres, servers: number): Promise<void> {
  const {plan, scratch, say} = bench
  const {steadyPerSecond: rate} = plan
  const {steadyMs} = plan.cluster
  const label = `${servers} × server, ${rate} launches/s`
  say(label)
  const cluster = await Cluster.start(scratch, postgres, {servers})
  const watch = await StartWatch.open(scratch)
  const startAt = nextSecond(AHEAD_MS)
  const from = startAt + WARM_UP_MS
  const seconds = (WARM_UP_MS + steadyMs) / SECOND_MS
  const jobs = {count: rate, startAt, seconds, spread: true}
  await cluster.servers[0]!.store(steady(jobs, (number) => watch.command(number)))
  await until(startAt + seconds * SECOND_MS)
  await watch.all(rate * seconds, LIMIT_MS)
  const lags = await clusterLags(cluster, 'steady-', from)
  const commandMs = steadyLags(jobs, watch.starts, from)
  addLags(
    bench,
    label,
    {...lags, commandMs},
    {p50: {atMost: P50_MAX_MS}, p99: {atMost: P99_MAX_MS}},
  )
  await cluster.end()
}

/** Jobs planned for one instant; waits until the last one has started. */
async function measureBurst(bench: Bench, postgres: TestPostgres, servers: number): Promise<void> {
  const {burstDue: jobs} = bench.plan.cluster
  const label = `${servers} × server, ${jobs.toLocaleString('en-GB')} due at once`
  bench.say(label)
  const {cluster, dueAt, watch} = await stored(bench, postgres, servers, jobs)
  await watch.all(jobs, LIMIT_MS)
  const commandMs = watch.starts.map(({atMs}) => atMs - dueAt)
  const lags = await clusterLags(cluster, 'burst-')
  addLags(bench, label, {...lags, commandMs}, {p50: null, p99: null})
  await cluster.end()
}

/** More jobs than can start in reasonable time: measures their launches, and API latency meanwhile. */
async function measureFlood(bench: Bench, postgres: TestPostgres, servers: number): Promise<void> {
  const {floodDue: jobs} = bench.plan.cluster
  const label = `${servers} × server, ${jobs.toLocaleString('en-GB')} due at once`
  bench.say(label)
  const {cluster, dueAt} = await stored(bench, postgres, servers, jobs)
  const client = Link.start<typeof Client>(bench.scratch, 'http-client.ts')
  const url = `${cluster.servers.at(-1)!.url}/v1/jobs/burst-1`
  const [recordedMs, {p50Ms, p99Ms}] = await Promise.all([
    noneLeft(cluster, ANY_LEFT).then(() => Date.now() - dueAt),
    client.ask('probe', {url, everyMs: PROBE_EVERY_MS, ms: bench.plan.cluster.probeMs}),
  ])
  const {decidedMs} = await clusterLags(cluster, 'burst-')
  bench.figures.add(`${label}: the last is recorded after`, 'ms', recordedMs, {
    atMost: RECORDED_MAX_MS,
  })
  bench.figures.add(`${label}: launched, p50`, 'ms', quantile(decidedMs, 0.5))
  bench.figures.add(`${label}: GET a job meanwhile, p50`, 'ms', p50Ms)
  bench.figures.add(`${label}: GET a job meanwhile, p99`, 'ms', p99Ms, {atMost: GET_MAX_MS})
  await client.end()
  // The remaining executions are not measured.
  await cluster.end('kill')
}

/** Starts a cluster with `jobs` jobs due at one instant; resolves at that instant. */
async function stored(bench: Bench, postgres: TestPostgres, servers: number, count: number) {
  const {scratch} = bench
  const cluster = await Cluster.start(scratch, postgres, {servers})
  const watch = await StartWatch.open(scratch)
  const dueAt = nextSecond(AHEAD_MS + count * AHEAD_PER_JOB_MS)
  const jobs = atOnce(count, dueAt, (number) => watch.command(number))
  for (let from = 0; from < count; from += STORED_AT_ONCE)
    await cluster.servers[0]!.store(jobs.slice(from, from + STORED_AT_ONCE))
  if (Date.now() >= dueAt) throw new Error('the jobs were not stored in time')
  await until(dueAt)
  return {cluster, dueAt, watch}
}

/** Polls the number of remaining rows until it is 0. */
async function noneLeft(cluster: Cluster, sql: string): Promise<void> {
  const beganAt = performance.now()
  for (;;) {
    const [row] = await cluster.rows<{left: number}>(sql)
    if (row!.left === 0) return
    if (performance.now() - beganAt > LIMIT_MS) throw new Error(`${row!.left} are left`)
    await until(Date.now() + LOOK_EVERY_MS)
  }
}

function addLags(
  {figures}: Bench,
  label: string,
  {decidedMs, startedMs, commandMs}: Lags & {readonly commandMs: readonly number[]},
  targets: {readonly p50: Target | null; readonly p99: Target | null},
): void {
  for (const [what, lags] of [
    ['launched', decidedMs],
    ['claimed', startedMs],
    ['command started', commandMs],
  ] as const) {
    figures.add(`${label}: ${what}, p50`, 'ms', quantile(lags, 0.5), targets.p50)
    figures.add(`${label}: ${what}, p99`, 'ms', quantile(lags, 0.99), targets.p99)
    figures.add(`${label}: ${what}, max`, 'ms', quantile(lags, 1))
  }
}
