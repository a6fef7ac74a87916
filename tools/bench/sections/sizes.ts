/**
 * Cost of many stored jobs: a pass of the launcher, a page of the list, memory, start-up. And the cost of
 * catching up a job that fires every second after a week of downtime.
 */
import type {handlers as Client} from '../children/http-client.ts'
import type {handlers as Passes} from '../children/passes.ts'
import type {handlers as BareStore} from '../children/store.ts'
import {quantile} from '../figures.ts'
import {Link} from '../link.ts'
import {processorTimeMs} from '../processor-time.ts'
import type {Bench, Section} from '../section.ts'
import {ServerProcess} from '../server-process.ts'

const PAGE = 20
const PERCENT = 100
const OUTAGES = [
  {schedule: '@every 1s', catchUp: 'skip'},
  {schedule: '@every 1s', catchUp: 'latest'},
  {schedule: '@every 1s', catchUp: 'all'},
  {schedule: '* * * * * *', catchUp: 'latest'},
] as const

export const sizes: Section = {
  name: 'sizes',
  measure: async (bench) => {
    await measureEmptyStarts(bench)
    for (const [index, outage] of OUTAGES.entries())
      if (bench.again(index, OUTAGES.length)) await measureOutage(bench, outage)
    for (const [index, jobs] of bench.plan.sizes.entries())
      if (bench.again(index, bench.plan.sizes.length)) await measureSize(bench, jobs)
  },
}

async function measureEmptyStarts({plan, scratch, figures, say}: Bench): Promise<void> {
  say('starts without a job')
  for (let start = 0; start < plan.starts; start += 1) {
    const dataDir = await scratch.folder()
    const server = await ServerProcess.start(scratch, {dataDir})
    figures.add('no jobs, time to ready', 'ms', server.readyMs)
    figures.add('no jobs, resident memory', 'MiB', (await server.figures()).residentMiB)
    await server.stop()
    await scratch.remove(dataDir)
  }
}

async function measureSize(bench: Bench, jobs: number): Promise<void> {
  const {scratch, figures, say} = bench
  const label = `${jobs.toLocaleString('en-GB')} jobs`
  say(`${label}: filling`)
  const dataDir = await scratch.folder()
  const filler = Link.start<typeof BareStore>(scratch, 'store.ts')
  await filler.ask('open', {dataDir})
  await filler.ask('fill', {jobs})
  await filler.ask('close', null)
  await filler.end()
  await measureServer(bench, {jobs, label, dataDir})
  say(`${label}: passes`)
  const child = Link.start<typeof Passes>(scratch, 'passes.ts')
  const {idleMs, oneMs} = await child.ask('passes', {dataDir, count: bench.plan.passes})
  await child.end()
  figures.add(`${label}, pass with nothing due, p50`, 'ms', quantile(idleMs, 0.5))
  figures.add(`${label}, pass with nothing due, p99`, 'ms', quantile(idleMs, 0.99))
  figures.add(`${label}, pass with one due, p50`, 'ms', quantile(oneMs, 0.5))
  figures.add(`${label}, pass with one due, p99`, 'ms', quantile(oneMs, 0.99))
  await scratch.remove(dataDir)
}

interface Filled {
  readonly jobs: number
  readonly label: string
  readonly dataDir: string
}

/** Starts a server over the jobs repeatedly; queries lists on the last one. */
async function measureServer(bench: Bench, {jobs, label, dataDir}: Filled): Promise<void> {
  const {plan, scratch, figures, say} = bench
  say(`${label}: starts`)
  const start = () => ServerProcess.start(scratch, {dataDir})
  let server = await start()
  for (let started = 1; started < plan.starts; started += 1) {
    figures.add(`${label}, time to ready`, 'ms', server.readyMs)
    await server.stop()
    server = await start()
  }
  figures.add(`${label}, time to ready`, 'ms', server.readyMs)
  figures.add(`${label}, resident memory at ready`, 'MiB', (await server.figures()).residentMiB)
  await measureIdle(bench, server, label)
  say(`${label}: lists`)
  const client = Link.start<typeof Client>(scratch, 'http-client.ts')
  const count = plan.listRequests
  for (const [name, query] of Object.entries(lists(jobs))) {
    const urls = [`${server.url}/v1/jobs?${query}`]
    const {p50Ms, p99Ms} = await client.ask('walk', {urls, count})
    figures.add(`${label}, ${name}, p50`, 'ms', p50Ms)
    figures.add(`${label}, ${name}, p99`, 'ms', p99Ms)
  }
  const {residentMiB, loopLagMaxMs} = await server.figures()
  figures.add(`${label}, resident memory after lists`, 'MiB', residentMiB)
  figures.add(`${label}, main loop delay max during lists`, 'ms', loopLagMaxMs)
  await client.end()
  await server.stop()
}

/** Processor use of an idle server (polls, heartbeats, retention), percent of one core. */
async function measureIdle({plan, figures, say}: Bench, server: ServerProcess, label: string) {
  say(`${label}: idle`)
  const beganAt = performance.now()
  const before = processorTimeMs(server.pid)
  await new Promise((resolve) => setTimeout(resolve, plan.idleMs))
  const after = processorTimeMs(server.pid)
  if (before === null || after === null) return
  const share = (after - before) / (performance.now() - beganAt)
  figures.add(`${label}, processor use when idle`, '%', share * PERCENT)
}

function lists(jobs: number): Readonly<Record<string, string>> {
  const first = `_start=0&_end=${PAGE}`
  return {
    'first page by name': `${first}&_sort=name&_order=ASC`,
    'search, page by next': `${first}&_sort=next&_order=DESC&q=invoice`,
    'last page by last_success': `_start=${jobs - PAGE}&_end=${jobs}&_sort=last_success&_order=ASC`,
  }
}

async function measureOutage(
  {scratch, figures, say}: Bench,
  {schedule, catchUp}: (typeof OUTAGES)[number],
): Promise<void> {
  const label = `${schedule}, off for a week, catch_up ${catchUp}`
  say(label)
  const child = Link.start<typeof Passes>(scratch, 'passes.ts')
  const dataDir = await scratch.folder()
  const cost = await child.ask('outage', {dataDir, schedule, catchUp})
  await child.end()
  figures.add(`${label}: all passes`, 'ms', cost.ms)
  figures.add(`${label}: rows`, '', cost.rows)
  figures.add(`${label}: of them launched`, '', cost.launched)
  figures.add(`${label}: planned times covered`, '', cost.plannedTimes)
  await scratch.remove(dataDir)
}
