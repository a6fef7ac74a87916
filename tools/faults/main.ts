/**
 * `npm run faults`: injects seeded faults into a real cluster under load for some minutes, then prints a
 * report. Exit code 1 if anything is missing, doubled or otherwise not as promised. Cleans up all processes
 * it started, also when it is interrupted.
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
import {isSound} from './audit.ts'

const USAGE = `npm run faults -- [--minutes 5] [--seed 1] [--agents 5] [--minute-without-store]
                  [--logs folder]

  --minutes n               duration of the faults, 0.5 to 600
  --seed n                  the same seed draws the same faults
  --agents n                1 to 20
  --minute-without-store    starts with a store outage of one minute
  --logs folder             keeps the logs of all servers and agents in this folder`

const MINUTE_MS = 60_000
/** Time for startup, the last fault, remaining work and the audit. */
const MARGIN_MS = 6 * MINUTE_MS
const REST_MS = 3 * MINUTE_MS
/** PostgreSQL settings of a durable production database. */
const DURABLE = {fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on'}

interface Options {
  readonly minutes: number
  readonly seed: number
  readonly agents: number
  readonly minuteWithoutStore: boolean
  readonly logs: string | null
}

/** Options of the command line; `null` if they are invalid. */
function readOptions(): Options | null {
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

/** Cleanup functions, run newest first. */
class Cleanups implements Owner {
  readonly #cleanups: (() => unknown)[] = []

  after(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  async run(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).toReversed()) await cleanup()
  }
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** Runs the faults and the audit; true if the audit is sound. */
async function faultRun(owner: Owner, options: Options, stop: AbortSignal): Promise<boolean> {
  const {minutes, seed, logs} = options
  const agents = Array.from({length: options.agents}, (_, index) => `agent-${index + 1}`)
  print(`Seed ${seed}: 3 servers, ${agents.length} agents, 30 jobs a second, ${minutes} minutes`)
  const trial = await RunningTrial.start(owner, {
    agents,
    settings: DURABLE,
    restMs: REST_MS,
    hasNotices: true,
  })
  const {faults, clients, operators} = trial
  try {
    const random = new SeededRandom(seed)
    const plan = new FaultPlan(trial, random, stop)
    const beganAt = performance.now()
    const report = (sentence: string) => {
      const minute = ((performance.now() - beganAt) / MINUTE_MS).toFixed(1)
      print(`${minute.padStart(6)} min  ${sentence}`)
    }
    if (options.minuteWithoutStore) await plan.minuteWithoutStore(report)
    await plan.run(beganAt + minutes * MINUTE_MS, report)
    if (stop.aborted) return false
    const {audit} = await trial.end()
    print(`\n${reportOf(audit, costsOf(faults.happened, audit.rows))}`)
    print(`${operators.cancelsAsked} cancels asked`)
    print(`${clients.acknowledged} client calls acknowledged, ${clients.refused} refused`)
    return isSound(audit)
  } finally {
    if (logs !== null) keepLogs(logs, trial)
  }
}

function keepLogs(folder: string, {cluster, marks}: RunningTrial): void {
  mkdirSync(folder, {recursive: true})
  for (const [index, {name, program}] of cluster.processes.entries())
    writeFileSync(join(folder, `${String(index).padStart(3, '0')}-${name}.log`), program.stderr())
  writeFileSync(join(folder, 'marks.json'), JSON.stringify(marks.read(), null, 1))
}

const options = readOptions()
if (options === null) {
  process.stderr.write(`${USAGE}\n`)
  process.exitCode = 2
} else {
  const stop = new AbortController()
  const ending = new Cleanups()
  // Ends even if something hangs: first the processes it started, then itself.
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
    process.stderr.write(
      `not finished ${MARGIN_MS / MINUTE_MS} minutes after the end of the faults\n`,
    )
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
