/**
 * Our server beside another one with the same HTTP interface, measured alternately: submits, a page of the
 * job list, every-second jobs, and jobs due in the same second. In every ratio more is better for our
 * server. Work that a server does not finish within its limit is noted, and counts as the limit.
 */
import type {handlers as Client} from '../children/http-client.ts'
import {Contender} from '../contender.ts'
import {nextSecond, SECOND_MS, until} from '../due.ts'
import {Link} from '../link.ts'
import type {Bench, Section} from '../section.ts'
import {ServerProcess} from '../server-process.ts'
import {StartWatch} from '../start-watch.ts'

const NEVER = '@every 8760h'
const TRUE = {command: 'true', shell: 'true'}
const PAGE = 20
/** A command of each server must start within this time before anything is measured. */
const FIRST_START_MS = 20_000
const AHEAD_MS = 2_000
/** Jobs of a burst are created before they are due: at the measured rate, with this reserve. */
const AHEAD_RESERVE = 2
const AHEAD_MS_MAX = 120_000
const BURST_LIMIT_MS = 60_000
const SETTLE_MS = 2_000
/** Nothing has started for this time: the backlog is done. */
const QUIET_MS = 1_000
const QUIET_LIMIT_MS = 60_000

interface Match {
  readonly bench: Bench
  readonly client: Link<typeof Client>
  readonly ours: Contender
  readonly peer: Contender
}

export function peerSection(api: string): Section {
  return {
    name: 'peer',
    measure: async (bench) => {
      const {scratch, say} = bench
      const server = await ServerProcess.start(scratch, {dataDir: await scratch.folder()})
      const ours = new Contender('Belfry', `${server.url}/v1`)
      const peer = new Contender('peer', api)
      const client = Link.start<typeof Client>(scratch, 'http-client.ts')
      const match = {bench, client, ours, peer}
      scratch.after(() =>
        peer.remove().catch((error: unknown) => {
          say(`jobs ${peer.prefix}* could not be deleted from the peer: ${String(error)}`)
        }),
      )
      for (const contender of [ours, peer]) await firstStart(match, contender)
      await compareSubmits(match)
      await compareLists(match)
      await compareEverySecond(match)
      for (const jobs of bench.plan.peer.burstsDue) await compareBursts(match, jobs)
    },
  }
}

/** Measures both in turn, and adds the ratio: ours to the peer's for rates, the reverse for times. */
async function alternate(
  {bench, ours, peer}: Match,
  {
    name,
    unit,
    rounds,
  }: {readonly name: string; readonly unit: '/s' | 'ms'; readonly rounds: number},
  measure: (contender: Contender, round: number) => Promise<number>,
): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    const measured = new Map<Contender, number>()
    const order = round % 2 === 0 ? [ours, peer] : [peer, ours]
    for (const contender of order) {
      bench.say(`${name}: ${contender.label}`)
      const value = await measure(contender, round).catch(async (cause: unknown) => {
        const state = (await contender.isAnswering()) ? 'failed' : 'died or hangs'
        const [why] = (cause instanceof Error ? cause.message : String(cause)).split('\n')
        throw new Error(`${name}: ${contender.label} ${state}: ${why}`, {cause})
      })
      measured.set(contender, value)
      bench.figures.add(`${name}: ${contender.label}`, unit, value)
    }
    const [own, other] = [measured.get(ours)!, measured.get(peer)!]
    const ratio = unit === 'ms' ? other / own : own / other
    const direction = unit === 'ms' ? 'peer / Belfry' : 'Belfry / peer'
    bench.figures.add(`${name}: ${direction}`, '×', ratio)
  }
}

/** Fails early, with the reason, where the commands of a server cannot be watched. */
async function firstStart({bench}: Match, contender: Contender): Promise<void> {
  const watch = await StartWatch.open(bench.scratch)
  await contender.create([everySecond(0, watch)])
  if ((await watch.until(1, FIRST_START_MS)) === 0)
    throw new Error(
      `${contender.label} must start a command within ${FIRST_START_MS} ms that can write to ` +
        `${watch.file}: it did not. Start it on this machine, as this user.`,
    )
  await contender.remove()
}

async function compareSubmits(match: Match): Promise<void> {
  const {client, bench} = match
  const {submitMs: ms, submitClients, peer} = bench.plan
  for (const clients of [submitClients, 1]) {
    const name = `submits, ${clients} ${clients === 1 ? 'client' : 'clients'}`
    await alternate(match, {name, unit: '/s', rounds: peer.rounds}, async (contender, round) => {
      const prefix = `${contender.prefix}submit-${clients}-${round}`
      const url = `${contender.api}/jobs`
      const {perSecond} = await client.ask('submit', {url, clients, ms, prefix})
      await contender.remove()
      return perSecond
    })
  }
}

async function compareLists(match: Match): Promise<void> {
  const {client, ours, peer, bench} = match
  const {listRequests: count} = bench.plan
  const {listed, rounds} = bench.plan.peer
  const name = `first page of ${listed.toLocaleString('en-GB')} jobs`
  const jobs = Array.from({length: listed}, (_, index) => {
    return {name: `listed-${index}`, schedule: NEVER, config: TRUE}
  })
  bench.say(`${name}: creating them`)
  for (const contender of [ours, peer]) await contender.create(jobs)
  await alternate(match, {name, unit: 'ms', rounds}, async ({api}) => {
    const urls = [`${api}/jobs?_start=0&_end=${PAGE}&_sort=name&_order=ASC`]
    return (await client.ask('walk', {urls, count})).p50Ms
  })
  for (const contender of [ours, peer]) await contender.remove()
}

/** More and more jobs that fire every second, until fewer commands start than planned. */
async function compareEverySecond(match: Match): Promise<void> {
  const {startRounds: rounds} = match.bench.plan.peer
  const choice = {name: 'every-second jobs kept up with', unit: '/s', rounds} as const
  await alternate(match, choice, (contender) => ramp(match, contender))
}

async function ramp({bench}: Match, contender: Contender): Promise<number> {
  const {rampFirst, rampGrowth, rampLimitMs} = bench.plan.peer
  const watch = await StartWatch.open(bench.scratch)
  const beganAt = performance.now()
  let kept = 0
  let jobs = 0
  for (let isKeptUp = true; isKeptUp;) {
    const more = jobs === 0 ? rampFirst : Math.ceil(jobs * rampGrowth)
    await contender.create(
      Array.from({length: more}, (_, index) => everySecond(jobs + index, watch)),
    )
    jobs += more
    await wait(SETTLE_MS)
    // A short window may fall into a pause of the machine, so a failed step is measured once more.
    isKeptUp = (await keepsUp(bench, watch, jobs)) || (await keepsUp(bench, watch, jobs))
    if (isKeptUp) kept = jobs
    if (isKeptUp && performance.now() - beganAt > rampLimitMs) {
      bench.note(`${contender.label} still kept up with ${kept} every-second jobs: the ramp ended`)
      break
    }
  }
  await removeAndDrain(bench, contender, watch)
  if (kept === 0) throw new Error(`${contender.label} does not keep up with ${jobs} jobs a second`)
  return kept
}

async function keepsUp({plan}: Bench, watch: StartWatch, jobs: number): Promise<boolean> {
  const {windowMs, keptUpShare} = plan.peer
  const before = watch.starts.length
  const beganAt = performance.now()
  await wait(windowMs)
  const planned = (jobs * (performance.now() - beganAt)) / SECOND_MS
  return watch.starts.length - before >= planned * keptUpShare
}

/** Jobs due at one instant; the time until the last command has started. */
async function compareBursts(match: Match, jobs: number): Promise<void> {
  const {bench} = match
  const name = `${jobs.toLocaleString('en-GB')} due at once, last command started`
  const choice = {name, unit: 'ms', rounds: bench.plan.peer.startRounds} as const
  await alternate(match, choice, async (contender, round) => {
    const burst = {jobs, name: `burst-${jobs}-${round}`}
    const {watch, dueAt} = await createBurst(bench, contender, burst)
    await until(dueAt)
    const started = await watch.until(jobs, BURST_LIMIT_MS)
    const lastMs = Math.max(...watch.starts.map(({atMs}) => atMs - dueAt))
    await removeAndDrain(bench, contender, watch)
    if (started > jobs) throw new Error(`${contender.label} started ${started} of ${jobs} commands`)
    if (started === jobs) return lastMs
    bench.note(
      `${contender.label} fell behind: it started ${started} of ${jobs} commands within ` +
        `${BURST_LIMIT_MS} ms of their planned time, which counts as its time`,
    )
    return BURST_LIMIT_MS
  })
}

/** Creates jobs before they are due. Takes more time if that was too short. */
async function createBurst(
  bench: Bench,
  contender: Contender,
  {jobs, name}: {readonly jobs: number; readonly name: string},
): Promise<{readonly watch: StartWatch; readonly dueAt: number}> {
  const atFirstMs = AHEAD_MS + jobs * contender.createMs * AHEAD_RESERVE
  for (let aheadMs = atFirstMs; aheadMs <= AHEAD_MS_MAX; aheadMs *= AHEAD_RESERVE) {
    const watch = await StartWatch.open(bench.scratch)
    const dueAt = nextSecond(aheadMs)
    const schedule = `@at ${new Date(dueAt).toISOString()}`
    await contender.create(
      Array.from({length: jobs}, (_, index) => {
        return {name: `${name}-${index}`, schedule, config: watch.command(index)}
      }),
    )
    if (Date.now() < dueAt) return {watch, dueAt}
    await removeAndDrain(bench, contender, watch)
  }
  throw new Error(`${contender.label} needs more than ${AHEAD_MS_MAX} ms to create ${jobs} jobs`)
}

/** Deletes the jobs and waits until the last of their commands has started. */
async function removeAndDrain(
  bench: Bench,
  contender: Contender,
  watch: StartWatch,
): Promise<void> {
  await contender.remove()
  const beganAt = performance.now()
  for (;;) {
    const before = watch.starts.length
    await wait(QUIET_MS)
    if (watch.starts.length === before) return
    if (performance.now() - beganAt < QUIET_LIMIT_MS) continue
    bench.note(
      `${contender.label} still starts commands of deleted jobs after ${QUIET_LIMIT_MS} ms`,
    )
    return
  }
}

function everySecond(number: number, watch: StartWatch) {
  return {name: `every-${number}`, schedule: '@every 1s', config: watch.command(number)}
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
