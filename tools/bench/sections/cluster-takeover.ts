/**
 * Takeover time: jobs fire spread over each second while the leader is killed, or stopped with SIGTERM,
 * again and again. Measures from the signal to the first launch that the next leader commits, from the
 * launch history. Then audits every planned time against the marks of the commands: a takeover that loses or
 * doubles work is worthless.
 */
import {auditLaunches, Marks, type Mark, type LaunchAudit} from '../../faults/marks.ts'
import {Cluster, startPostgres} from '../cluster.ts'
import {nextSecond, phaseMs, SECOND_MS, until} from '../due.ts'
import {quantile} from '../figures.ts'
import type {Bench, Section} from '../section.ts'
import type {ServerProcess} from '../server-process.ts'

const AHEAD_MS = 2_000
const LOOK_EVERY_MS = 50
const LIMIT_MS = 30_000
/** Random offset, so that the leader ends at any point between two lease renewals. */
const PAUSE_MAX_MS = 2_000
const P99_MAX_MS = 8_000
const MAX_MS = 10_000
const ASKED_MAX_MS = 1_000
/** Excludes planned times during the start of the servers. */
const FLAGS = ['--keep-launches=100000', '--keep-executions=100000']
const PAGE = 1_000

export const clusterTakeover: Section = {
  name: 'takeover',
  measure: async (bench) => {
    const {plan, scratch} = bench
    const postgres = await startPostgres(scratch)
    const choice = {servers: plan.cluster.servers.at(-1)!, flags: FLAGS}
    const cluster = await Cluster.start(scratch, postgres, choice)
    const marks = new Marks({after: (cleanup) => scratch.after(cleanup)})
    const startAt = nextSecond(AHEAD_MS)
    await cluster.servers[0]!.store(markedJobs(marks, plan.cluster.takeoverJobs, startAt))
    await until(startAt + SECOND_MS)
    await measureTakeovers(bench, cluster, 'SIGKILL')
    await measureTakeovers(bench, cluster, 'SIGTERM')
    await addAudit(bench, cluster, marks, startAt)
    await cluster.end()
  },
}

type Signal = 'SIGKILL' | 'SIGTERM'

async function measureTakeovers({plan, figures, say}: Bench, cluster: Cluster, signal: Signal) {
  const {takeovers} = plan.cluster
  const label = `${signal} of the leader, first launch of the next`
  const takeoversMs: number[] = []
  for (let count = 0; count < takeovers; count += 1) {
    say(`${signal} ${count + 1} of ${takeovers}`)
    const takeoverMs = await takeover(cluster, signal)
    takeoversMs.push(takeoverMs)
    figures.add(label, 'ms', takeoverMs)
    await until(Date.now() + Math.random() * PAUSE_MAX_MS)
  }
  const targets =
    signal === 'SIGKILL'
      ? {p99: {atMost: P99_MAX_MS}, max: {atMost: MAX_MS}}
      : {p99: null, max: {atMost: ASKED_MAX_MS}}
  figures.add(`${label}, p90`, 'ms', quantile(takeoversMs, 0.9))
  figures.add(`${label}, p99`, 'ms', quantile(takeoversMs, 0.99), targets.p99)
  figures.add(`${label}, max`, 'ms', quantile(takeoversMs, 1), targets.max)
}

/** Jobs that fire every second, each at its own offset, and mark their runs. */
function markedJobs(marks: Marks, count: number, startAt: number) {
  return Array.from({length: count}, (_, index) => ({
    name: nameOf(index),
    schedule: '@every 1s',
    starts_at: new Date(startAt + phaseMs(index, count)).toISOString(),
    executor: 'shell',
    executor_config: {shell: 'true', command: marks.command()},
  }))
}

function nameOf(index: number): string {
  return `mark-${index}`
}

/** Ends and restarts the leader; ms from the signal to the first launch of another term. */
async function takeover(cluster: Cluster, signal: Signal): Promise<number> {
  const leader = await found('a leader', () => cluster.leader())
  const server = cluster.servers[leader.index]!
  const signalledAt = Date.now()
  const ended = signal === 'SIGKILL' ? server.kill() : server.stop()
  const again = ended.then(() => cluster.restart(leader.index))
  const decidedAt = await found('a launch of the next term', async () => {
    const [row] = await cluster.rows<{at: string | null}>(
      'SELECT min(decided_at) AS at FROM launches WHERE term > $1',
      [leader.term],
    )
    return row!.at
  })
  await again
  return Number(decidedAt) - signalledAt
}

async function found<Result>(what: string, look: () => Promise<Result | null>): Promise<Result> {
  const limitAt = Date.now() + LIMIT_MS
  for (;;) {
    const result = await look()
    if (result !== null) return result
    if (Date.now() > limitAt) throw new Error(`there was no ${what} within ${LIMIT_MS} ms`)
    await until(Date.now() + LOOK_EVERY_MS)
  }
}

/** Audits every planned time until now against the marks of the commands. */
async function addAudit(
  {plan, figures}: Bench,
  cluster: Cluster,
  marks: Marks,
  startAt: number,
): Promise<void> {
  const {takeovers, takeoverJobs: jobs} = plan.cluster
  const label = `${takeovers} × SIGKILL and ${takeovers} × SIGTERM`
  const endAt = Date.now()
  const [asked] = cluster.servers
  for (let index = 0; index < jobs; index += 1) await disable(asked!, nameOf(index))
  await found('end of what ran', async () => {
    const [row] = await cluster.rows<{open: number}>(
      'SELECT count(*)::int AS open FROM launches WHERE open = 1',
    )
    return row!.open === 0 ? true : null
  })
  const written: readonly Mark[] = marks.read()
  const audits: LaunchAudit[] = []
  for (let index = 0; index < jobs; index += 1) {
    const from = startAt + phaseMs(index, jobs)
    const to = endAt - SECOND_MS
    const launches = await launchesOf(asked!, nameOf(index))
    audits.push(auditLaunches({name: nameOf(index), launches, marks: written, from, to}))
  }
  const sum = (count: (audit: LaunchAudit) => number) =>
    audits.reduce((total, audit) => total + count(audit), 0)
  figures.add(
    `${label}: planned times`,
    '',
    sum(({planned}) => planned),
  )
  figures.add(
    `${label}: started`,
    '',
    sum(({started}) => started),
  )
  figures.add(
    `${label}: missing`,
    '',
    sum(({missing}) => missing.length),
    {atMost: 0},
  )
  figures.add(
    `${label}: doubled`,
    '',
    sum(({doubled, repeated}) => doubled.length + repeated.length),
    {
      atMost: 0,
    },
  )
}

async function disable(server: ServerProcess, name: string): Promise<void> {
  const response = await fetch(`${server.url}/v1/jobs/${name}/toggle`, {method: 'POST'})
  if (!response.ok) throw new Error(`toggle answered ${response.status}`)
}

/** All launches of a job, from the API. */
async function launchesOf(server: ServerProcess, name: string) {
  const rows: Parameters<typeof auditLaunches>[0]['launches'][number][] = []
  for (;;) {
    const range = `_start=${rows.length}&_end=${rows.length + PAGE}`
    const page = (await (
      await server.get(`/v1/jobs/${name}/launches?${range}`)
    ).json()) as typeof rows
    rows.push(...page)
    if (page.length < PAGE) return rows
  }
}
