/**
 * `npm run faults`: a real cluster under load, faults by seed for some minutes, and a report. Exit code 1
 * when anything is missing, doubled or otherwise not as promised. Ends all that it started, however it ends.
 */
import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {parseArgs} from 'node:util'
import {SeededRandom} from '../../test/support/seeded-random.ts'
import type {Owner} from '../../test/support/server-process.ts'
import {costsOf} from './costs.ts'
import {FaultPlan} from './plan.ts'
import {reportOf} from './report.ts'
import {RunningTrial} from './trial.ts'
import {isSound} from './verdict.ts'

const USAGE = `npm run faults -- [--minutes 5] [--seed 1] [--agents 5] [--minute-without-store]
                  [--logs folder]

  --minutes n               how long faults go on, 0.5 to 600
  --seed n                  draws the same faults as before
  --agents n                1 to 20
  --minute-without-store    begins with the store away for a minute
  --logs folder             keeps what every server and agent logged there`

const MINUTE_MS = 60_000
/** Starting, the last fault, what is left to do, and looking at all of it. */
const MARGIN_MS = 6 * MINUTE_MS
const REST_MS = 3 * MINUTE_MS
/** As a database is run that is meant to keep what it acknowledged. */
const DURABLE = {fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on'}

interface Asked {
  readonly minutes: number
  readonly seed: number
  readonly agents: number
  readonly minuteWithoutStore: boolean
  readonly logs: string | null
}

/** `null` when it makes no sense. */
function asked(): Asked | null {
  try {
    const {values} = parseArgs({
      options: {
        minutes: {type: 'string', default: '5'},
        seed: {type: 'string', default: '1'},
        agents: {type: 'string', default: '5'},
        'minute-without-store': {type: 'boolean', default: false},
        logs: {type: 'string'},
      },
    })
    const [minutes, seed, agents] = [values.minutes, values.seed, values.agents].map(Number)
    if (!(minutes! >= 0.5 && minutes! <= 600)) return null
    if (!Number.isSafeInteger(seed) || !(agents! >= 1 && agents! <= 20)) return null
    const minuteWithoutStore = values['minute-without-store']
    return {
      minutes: minutes!,
      seed: seed!,
      agents: Math.floor(agents!),
      minuteWithoutStore,
      logs: values.logs ?? null,
    }
  } catch {
    return null
  }
}

/** What is to be ended, newest last. */
class Ending implements Owner {
  readonly #cleanups: (() => unknown)[] = []

  after(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  async run(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).toReversed()) await cleanup()
  }
}

function say(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** True when all is as promised. */
async function faultRun(owner: Owner, options: Asked, stop: AbortSignal): Promise<boolean> {
  const {minutes, seed, logs} = options
  const agents = Array.from({length: options.agents}, (_, index) => `agent-${index + 1}`)
  say(`Seed ${seed}: 3 servers, ${agents.length} agents, 30 jobs a second, ${minutes} minutes`)
  const trial = await RunningTrial.start(owner, {agents, settings: DURABLE, restMs: REST_MS})
  const {cluster, faults, clients} = trial
  try {
    const random = new SeededRandom(seed)
    const plan = new FaultPlan(cluster, faults, random, stop)
    const beganAt = performance.now()
    const tell = (sentence: string) => {
      const minute = ((performance.now() - beganAt) / MINUTE_MS).toFixed(1)
      say(`${minute.padStart(6)} min  ${sentence}`)
    }
    if (options.minuteWithoutStore) await plan.minuteWithoutStore(tell)
    await plan.run(beganAt + minutes * MINUTE_MS, tell)
    if (stop.aborted) return false
    const {verdict} = await trial.end()
    say(`\n${reportOf(verdict, costsOf(faults.happened, verdict.rows))}`)
    say(`${clients.acknowledged} calls of clients acknowledged, ${clients.refused} not`)
    return isSound(verdict)
  } finally {
    if (logs !== null) keepLogs(logs, trial)
  }
}

function keepLogs(folder: string, {cluster, marks}: RunningTrial): void {
  mkdirSync(folder, {recursive: true})
  for (const [index, {name, program}] of cluster.lives.entries())
    writeFileSync(join(folder, `${String(index).padStart(3, '0')}-${name}.log`), program.stderr())
  writeFileSync(join(folder, 'marks.json'), JSON.stringify(marks.read(), null, 1))
}

const options = asked()
if (options === null) {
  process.stderr.write(`${USAGE}\n`)
  process.exitCode = 2
} else {
  const stop = new AbortController()
  const ending = new Ending()
  // Whatever hangs, it ends: what it started first, then it.
  const end = async (code: number) => {
    stop.abort()
    process.exitCode = code
    await ending.run()
    process.exit(code)
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => void end(signal === 'SIGINT' ? 130 : 143))
  const limitMs = options.minutes * MINUTE_MS + MARGIN_MS
  const timer = setTimeout(() => {
    process.stderr.write(`not done ${MARGIN_MS / MINUTE_MS} minutes after its time\n`)
    void end(1)
  }, limitMs)
  try {
    process.exitCode = (await faultRun(ending, options, stop.signal)) ? 0 : 1
  } catch (error) {
    if (!stop.signal.aborted) process.stderr.write(`${String((error as Error).stack ?? error)}\n`)
    process.exitCode ??= 1
  } finally {
    clearTimeout(timer)
    if (!stop.signal.aborted) await ending.run()
  }
}
