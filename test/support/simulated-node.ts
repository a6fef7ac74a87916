/**
 * Simulated server without its HTTP side, one incarnation: membership, leadership, launcher, failure
 * detector, runner and finisher, wired as in a real one. The store outlives it. It can stop gracefully, or
 * crash: then its timers, calls and replies are dropped.
 */
import {checkedLimits, type Limits} from '../../src/config/limits.ts'
import {ClockGuard} from '../../src/core/clock-guard.ts'
import {Leadership} from '../../src/scheduler/leadership.ts'
import {Membership} from '../../src/node/membership.ts'
import {announceFinished, Finisher} from '../../src/node/finisher.ts'
import {ClusterPing} from '../../src/scheduler/cluster-ping.ts'
import {Launcher} from '../../src/scheduler/launcher.ts'
import {FailureDetectorService} from '../../src/scheduler/failure-detector.ts'
import {HistoryRetention} from '../../src/scheduler/retention.ts'
import {recoverNode} from '../../src/node/recover.ts'
import {claimUpkeep} from '../../src/node/stored-claims.ts'
import {Runner} from '../../src/node/runner.ts'
import {Reassigner} from '../../src/scheduler/reassigner.ts'
import type {NoticeChannels} from '../../src/ports/notice-channel.ts'
import type {Clock} from '../../src/ports/runtime.ts'
import type {Run} from '../../src/ports/executor.ts'
import type {Store} from '../../src/ports/store.ts'
import type {Service} from '../../src/lib/loop.ts'
import type {StartLogRecord} from './start-log-record.ts'
import {faultyStore, type StoreFault, type StoreMethod} from './faulty-store.ts'
import {aNode} from './fixtures.ts'
import {RecordedEvents} from './recorded-events.ts'
import {ScriptedExecutor, type Script} from './scripted-executor.ts'
import type {SeededRandom} from './seeded-random.ts'
import {TestWakeup} from './test-wakeup.ts'
import type {VirtualClock} from './virtual-clock.ts'

export interface SimulatedNodeSettings {
  readonly name: string
  readonly incarnation: string
  readonly slots: number
  readonly tags: Readonly<Record<string, string>>
  /** False: never a candidate for leadership. */
  readonly leads: boolean
  readonly runs: boolean
  readonly prunes: boolean
  readonly keepLaunches: number
  /** Age limit of the history; `null` = none. */
  readonly keepMs: number | null
  readonly targetWaitMs: number
  readonly lateAfterMs: number
  readonly catchUpMax: number
  readonly launchBatchMax: number
  readonly launchFirstMax: number
  readonly keepOutputBytes: number
  /** Version of its time zone data. */
  readonly zoneData: string
  /** An executor that outlives the node, as commands run by the helper may. `null` = a new one. */
  readonly executor: ScriptedExecutor | null
  /** Sends pings for the cluster; `null` = there are none. */
  readonly channels: Pick<NoticeChannels, 'send'> | null
  /** Behaviour of executions, by job name. */
  readonly scripts: Readonly<Record<string, Script | ((run: Run) => Script)>>
}

const SETTINGS: SimulatedNodeSettings = {
  name: 'node-a',
  incarnation: 'first-incarnation',
  slots: 16,
  tags: {},
  leads: true,
  runs: true,
  prunes: false,
  keepLaunches: 100,
  keepMs: null,
  targetWaitMs: 600_000,
  lateAfterMs: 30_000,
  catchUpMax: 100,
  launchBatchMax: 1_000,
  launchFirstMax: 1_000,
  keepOutputBytes: 256 * 1024,
  zoneData: '2026a',
  executor: null,
  channels: null,
  scripts: {},
}

const FRESH_MS = 10_000

export class SimulatedNode {
  readonly settings: SimulatedNodeSettings
  readonly nodeId: string
  readonly events = new RecordedEvents()
  readonly wakeup = new TestWakeup()
  readonly executor: ScriptedExecutor
  /** The world's store, with the faults and delays of this node. */
  readonly store: Store
  readonly clockGuard = new ClockGuard(checkedLimits())
  readonly calls = new Map<StoreMethod, number>()
  /** Fault of the next call of this node to the store. */
  fault: (method: StoreMethod) => StoreFault = () => 'none'
  delayMs: (method: StoreMethod) => number = () => 0
  replacedCount = 0
  /** Executions of previous incarnations that never started. */
  releasedCount = 0
  runner!: Runner
  leadership!: Leadership
  membership!: Membership
  #isDead = false
  readonly #clock: Clock
  readonly #random: SeededRandom
  readonly #record: StartLogRecord

  constructor(
    world: {
      readonly clock: VirtualClock
      readonly store: Store
      readonly random: SeededRandom
      recordOf(node: string): StartLogRecord
    },
    settings: Partial<SimulatedNodeSettings>,
  ) {
    this.settings = {...SETTINGS, ...settings}
    this.nodeId = `id-of-${this.settings.name}`
    this.#random = world.random
    this.#record = world.recordOf(this.settings.name)
    this.#clock = {
      now: () => world.clock.now(),
      monotonicMs: () => world.clock.monotonicMs(),
      after: (delayMs, callback) => world.clock.after(delayMs, () => this.#isDead || callback()),
    }
    this.executor = this.settings.executor ?? new ScriptedExecutor(this.#clock)
    for (const [job, script] of Object.entries(this.settings.scripts))
      this.executor.script(job, script)
    this.store = faultyStore(world.store, {
      fault: (method) => (this.#isDead ? 'dead' : this.fault(method)),
      delay: async (method) => {
        const ms = this.delayMs(method)
        if (ms > 0) await new Promise<void>((resolve) => void world.clock.after(ms, resolve))
      },
      called: (method) => this.calls.set(method, (this.calls.get(method) ?? 0) + 1),
    })
  }

  /** Joins, recovers the claims of previous incarnations, then starts the runner and leadership. */
  async start(): Promise<this> {
    const {name, incarnation, slots, tags, runs} = this.settings
    const ports = this.#ports()
    const {record} = aNode(name).with({incarnation, slots, tags, runs})
    const joined = await this.store.join({member: record}, FRESH_MS)
    if (joined.kind !== 'joined') throw new Error(`${name} cannot join: ${joined.kind}`)
    const node = {nodeId: this.nodeId, incarnation}
    this.releasedCount = await recoverNode(ports, node, this.#record.previous)
    this.membership = new Membership({
      ...ports,
      member: record,
      limits: this.#limits,
      onReplaced: () => (this.replacedCount += 1),
    })
    this.runner = this.#createRunner()
    this.leadership = new Leadership({
      ...ports,
      nodeId: this.nodeId,
      nodeName: name,
      holder: incarnation,
      limits: this.#limits,
      onStoreTime: (now) => void this.clockGuard.trustedNow(now, this.#clock.monotonicMs()),
      services: (term, onTermOver) => this.leaderServices(term, onTermOver),
    })
    this.membership.start()
    if (runs) this.runner.start()
    if (this.settings.leads) this.leadership.start()
    return this
  }

  /** Services of a term; also for a test with two leaders under terms of its own choice. */
  leaderServices(term: number, onTermOver: () => void): Service[] {
    const ports = {...this.#ports(), limits: this.#limits, term, onTermOver}
    const {targetWaitMs, lateAfterMs} = this.settings
    const services: Service[] = [
      new Launcher({
        ...ports,
        clockGuard: this.clockGuard,
        zoneData: this.settings.zoneData,
        defaultTarget: 'one',
        lateAfterMs,
        targetWaitMs,
        hasBursts: true,
      }),
      new FailureDetectorService(ports),
      new Reassigner({
        ...ports,
        clockGuard: this.clockGuard,
        defaultTarget: 'one',
        targetWaitMs,
      }),
    ]
    const {keepLaunches, keepMs, channels} = this.settings
    const {clockGuard} = this
    if (channels !== null) services.push(new ClusterPing({...ports, channels, clockGuard}))
    const keep = {keepLaunches, keepExecutions: keepLaunches, keepMs, keepOutputBytes: 2 ** 31}
    if (this.settings.prunes) services.push(new HistoryRetention({...ports, keep}))
    return services
  }

  /** Graceful shutdown. */
  async stop(graceMs = 0): Promise<void> {
    await this.leadership.stop()
    await this.membership.become('leaving')
    await this.runner.drain(graceMs)
    await this.membership.become('left')
    await this.membership.stop()
  }

  /** `kill -9` or power cut: no timer fires, no call reaches the store, no reply arrives. */
  crash(): void {
    this.#isDead = true
    for (const started of this.executor.running) started.endedAt = this.#clock.monotonicMs()
  }

  get isLeading(): boolean {
    return !this.#isDead && this.leadership.term !== null
  }

  #ports() {
    const {store, events, wakeup} = this
    return {store, events, wakeup, clock: this.#clock, random: this.#random}
  }

  /** Limits of a server, but for what a test sets, and shorter pauses under load. */
  get #limits(): Limits {
    const {catchUpMax, launchBatchMax, launchFirstMax, keepOutputBytes} = this.settings
    return {
      ...checkedLimits(),
      catchUpMax,
      launchBatchMax,
      launchFirstMax: Math.min(launchFirstMax, launchBatchMax),
      outputTailBytes: keepOutputBytes,
      leaseRenewMs: 2_000,
      burstMin: 100,
      commitPauseMs: 20,
      claimPauseMs: 20,
    }
  }

  #createRunner(): Runner {
    const ports = {...this.#ports(), limits: this.#limits}
    const {nodeId} = this
    const {incarnation, slots} = this.settings
    return new Runner({
      ...ports,
      ...claimUpkeep(ports, {id: nodeId, incarnation}),
      executors: {get: (name) => (name === 'scripted' ? this.executor : null)},
      processors: {get: () => null},
      finisher: new Finisher({
        ...ports,
        announce: (outcomes) => announceFinished(outcomes, ports),
      }),
      startLog: this.#record.open(incarnation, () => this.#isDead),
      nodeId,
      incarnation,
      slots,
    })
  }
}
