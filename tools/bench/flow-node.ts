/**
 * A server without HTTP: the real services, wired by the server's own `app/node.ts` over a real store on
 * disk, with a chosen executor and a clock that can be advanced, so that work planned for later is due now.
 */
import {availableParallelism} from 'node:os'
import {Membership} from '../../src/node/membership.ts'
import {ClockGuard} from '../../src/core/clock-guard.ts'
import {loadConfig, type Config} from '../../src/config/server.ts'
import type {JobSpec} from '../../src/core/job.ts'
import type {ExecutorRegistry} from '../../src/executors/registry.ts'
import {Runner} from '../../src/node/runner.ts'
import type {Clock} from '../../src/ports/runtime.ts'
import type {Events} from '../../src/ports/events.ts'
import type {Executor} from '../../src/ports/executor.ts'
import type {SubmitRequest} from '../../src/ports/job-store.ts'
import type {Store} from '../../src/ports/store.ts'
import {createProcessors} from '../../src/processors/registry.ts'
import {leaderServices, type ServerParts} from '../../src/app/node.ts'
import {announceFinished, Finisher} from '../../src/node/finisher.ts'
import type {Service} from '../../src/lib/loop.ts'
import {parseAddress} from '../../src/store/postgres/url.ts'
import {openPostgresStore, type PostgresStoreOptions} from '../../src/store/postgres/store.ts'
import type {ClosableWakeup} from '../../src/store/postgres/wakeup.ts'
import {openSqliteStore} from '../../src/store/sqlite/store.ts'
import {localEvents} from '../../src/telemetry/event-bus.ts'
import {localWakeup} from '../../src/platform/wakeup.ts'
import {openMetrics} from '../../src/telemetry/metrics.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {systemRandom} from '../../src/platform/random.ts'
import {PLAIN_SPEC} from '../../test/support/fixtures.ts'

const NODE = {id: 'id-of-bench', incarnation: 'first-incarnation'} as const
/** Exceeds any run, even with the clock advanced. */
const LEASE_MS = 50 * 365 * 86_400_000
const FRESH_MS = 10_000

/** The system clock with an offset. Durations and timers ignore the offset. */
export class SetClock implements Clock {
  readonly #clock = systemClock()
  #aheadMs = 0

  now(): number {
    return this.#clock.now() + this.#aheadMs
  }

  monotonicMs(): number {
    return this.#clock.monotonicMs()
  }

  after(delayMs: number, callback: () => void) {
    return this.#clock.after(delayMs, callback)
  }

  setTo(instant: number): void {
    this.#aheadMs += Math.max(0, instant - this.now())
  }

  /** Another clock's time plus this clock's offset. */
  ahead(instant: number): number {
    return instant + this.#aheadMs
  }
}

/** Believes every step of `SetClock`. */
const TRUSTING = new ClockGuard({clockFarMs: Infinity, clockConfirmMs: 1})

/** Executor that succeeds at once and starts no process. */
const NOTHING: Executor = {
  name: 'shell',
  runsCommands: false,
  takesAccount: false,
  fileParameters: [],
  parameters: {},
  check: () => ({problems: [], warnings: []}),
  start: () => ({
    cancel: () => undefined,
    kill: () => undefined,
    ended: Promise.resolve({outcome: 'succeeded', exitCode: 0, head: '', foot: ''}),
  }),
}

export const startsNothing: ExecutorRegistry = {
  all: [NOTHING],
  get: () => NOTHING,
  names: () => ['shell'],
  endOrphans: async () => ({ended: []}),
  start: async () => undefined,
  stop: async () => undefined,
  runProgram: async () => '',
  spawnUsed: () => null,
}

export interface FlowChoice {
  readonly dataDir: string
  /** Absent = the default. */
  readonly slots?: number | undefined
  /** Connection string of a PostgreSQL; absent = SQLite in the data directory. */
  readonly store?: string | undefined
}

interface Parts {
  readonly config: Config
  readonly clock: SetClock
  readonly events: Events
  readonly store: Store
  readonly wakeup: ClosableWakeup
}

export class FlowNode {
  readonly config: Config
  readonly clock: SetClock
  readonly events: Events
  readonly store: Store
  readonly wakeup: ClosableWakeup
  readonly #running: Service[] = []
  #metrics: {stop(): void} | null = null

  private constructor({config, clock, events, store, wakeup}: Parts) {
    this.config = config
    this.clock = clock
    this.events = events
    this.store = store
    this.wakeup = wakeup
  }

  /** Opens a node that does nothing yet. */
  static async open({dataDir, slots, store: url}: FlowChoice): Promise<FlowNode> {
    const config = configOf(dataDir, slots)
    const clock = new SetClock()
    const events = localEvents(clock)
    const options = {
      outputTailBytes: config.limits.outputTailBytes,
      commitItemsMax: config.limits.commitItemsMax,
      clock,
      random: systemRandom(),
      events,
    }
    const {store, wakeup} =
      url === undefined
        ? await openSqlite({...options, dataDir})
        : await openPostgres({...options, url, time: (serverNow) => clock.ahead(serverNow)})
    await store.agreeTimezone('UTC')
    return new FlowNode({config, clock, events, store, wakeup})
  }

  /** Joins, and starts everything a server runs except its API. */
  async start(executors: ExecutorRegistry): Promise<void> {
    const parts = this.#parts()
    const term = await this.lead()
    const {store, clock, events, config} = this
    // Counts events as a server does, and is never scraped.
    const cluster = () => Promise.reject(new Error('no scrapes'))
    this.#metrics = openMetrics({
      events,
      version: 'bench',
      server: {cluster, agentsConnected: () => 0},
    })
    const membership = new Membership({
      store,
      clock,
      events,
      member: this.#member(),
      limits: config.limits,
      onReplaced: () => undefined,
    })
    const processors = createProcessors({
      dataDir: config.dataDirectory,
      nodeName: config.nodeName,
      clock,
      logRoot: null,
      syslogUrl: null,
      warn: () => undefined,
      writeLog: () => undefined,
      runProgram: null,
    })
    const {limits, slots} = config
    const run = new Runner({
      ...parts,
      limits,
      nodeId: NODE.id,
      incarnation: NODE.incarnation,
      slots,
      executors,
      processors,
      finisher: new Finisher({
        ...parts,
        limits,
        announce: (outcomes) => announceFinished(outcomes, parts),
      }),
    })
    const services = [membership, run, ...leaderServices(parts, term, over, TRUSTING)]
    for (const service of services) service.start()
    this.#running.push(...services)
  }

  /** Starts only the launcher; a node to launch on exists, but runs nothing. */
  async startLaunching(): Promise<void> {
    const [launching] = leaderServices(this.#parts(), await this.lead(), over, TRUSTING)
    launching!.start()
    this.#running.push(launching!)
  }

  /** Joins as the only node and takes the lease; returns the term. */
  async lead(): Promise<number> {
    await this.store.join({member: this.#member()}, FRESH_MS)
    const lease = await this.store.acquireLease({
      holder: NODE.incarnation,
      nodeId: NODE.id,
      ttlMs: LEASE_MS,
    })
    if (lease === null) throw new Error('another holds the lease of a folder that is ours alone')
    return lease.term
  }

  async close(): Promise<void> {
    for (const service of this.#running.toReversed()) await service.stop()
    this.#metrics?.stop()
    await this.wakeup.close()
    await this.store.close()
  }

  #parts(): ServerParts {
    const {config, store, clock, wakeup, events} = this
    return {config, store, clock, wakeup, events, random: systemRandom()}
  }

  #member() {
    const {nodeName: name, slots} = this.config
    const place = {address: '127.0.0.1', port: 0, tags: {}, version: 'bench'}
    return {...NODE, ...place, name, slots, server: true, runs: true}
  }
}

interface OpenedStore {
  readonly store: Store
  readonly wakeup: ClosableWakeup
}

async function openSqlite(options: Parameters<typeof openSqliteStore>[0]): Promise<OpenedStore> {
  const opened = await openSqliteStore(options)
  if (!opened.ok) throw new Error(opened.problem)
  return {store: opened.store, wakeup: {...localWakeup(), close: async () => undefined}}
}

async function openPostgres(options: PostgresStoreOptions): Promise<OpenedStore> {
  const opened = await openPostgresStore(options)
  if (!opened.ok) throw new Error(opened.problem)
  return {store: opened.store, wakeup: opened.wakeupOver(localWakeup())}
}

function over(): never {
  throw new Error('the term of a node that is alone ended')
}

function configOf(dataDir: string, slots: number | undefined): Config {
  const argv = ['--data', dataDir, '--name', 'bench', '--timezone', 'UTC']
  if (slots !== undefined) argv.push('--slots', String(slots))
  const loaded = loadConfig(
    argv,
    {},
    {
      name: 'bench',
      cores: availableParallelism(),
      timezone: 'UTC',
      directory: process.cwd(),
      readFile: () => '',
    },
    parseAddress,
  )
  if (!loaded.ok) throw new Error(loaded.problem)
  return loaded.config
}

/** A definition as an accepted submit stores it. */
export function aSpec(name: string, changes: Partial<JobSpec> = {}): JobSpec {
  const shell = {executor: 'shell', executorConfig: {command: 'true'}}
  return {...PLAIN_SPEC, ...shell, name, schedule: '@manually', timezone: '', ...changes}
}

export function submitting(spec: JobSpec): SubmitRequest {
  return {spec, ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
}

/** Jobs in one transaction: a statement limits the number of its parameters. */
const STORED_AT_ONCE = 5_000
const NEVER_RUN = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

/** Stores new jobs. */
export async function storeAll(store: Store, specs: readonly JobSpec[]): Promise<void> {
  const entries = specs.map((spec) => ({spec, counters: NEVER_RUN}))
  for (let from = 0; from < entries.length; from += STORED_AT_ONCE) {
    const piece = entries.slice(from, from + STORED_AT_ONCE)
    const {kind} = await store.restore(piece, {disabled: false})
    if (kind !== 'restored') throw new Error(`${piece.length} jobs: ${kind}`)
  }
}
