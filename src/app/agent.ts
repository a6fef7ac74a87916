/**
 * Composition root of an agent: names every adapter and holds the order of start and stop. The run step works
 * over a store that is a client of a server. It decides nothing about jobs. `Agent.#start` and `Agent.#stop`
 * list the order.
 */
import type {AgentLink} from '../agents/client/link.ts'
import {KEEP_RESULT, loggedFinisher, ResultLog} from '../agents/client/result-log.ts'
import type {RemoteNodeStore} from '../agents/client/store.ts'
import type {FinishJson} from '../agents/protocol.ts'
import type {AgentConfig, LoadedAgentConfig} from '../config/agent.ts'
import type {MemberStatus} from '../core/node.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {messageOf} from '../lib/error.ts'
import {pause} from '../lib/pause.ts'
import {ClockWatch} from '../node/clock-watch.ts'
import {Finisher} from '../node/finisher.ts'
import {Membership, replacedSentence} from '../node/membership.ts'
import {Runner} from '../node/runner.ts'
import {systemClock} from '../platform/clock.ts'
import {systemRandom} from '../platform/random.ts'
import {localWakeup} from '../platform/wakeup.ts'
import type {BelfryEvent} from '../core/events.ts'
import type {Events} from '../ports/events.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import {localEvents} from '../telemetry/event-bus.ts'
import type {Log} from '../telemetry/log.ts'
import {joinCluster} from './agent-join.ts'
import {Closers} from './closers.ts'
import {
  type Identity,
  openDataDirectory,
  openExecutors,
  openNodeLog,
  openProcessors,
  openStartLog,
  recoverPreviousIncarnations,
  warnIfRoot,
} from './node.ts'
import {type AgentMetrics, openAgentMetrics} from './agent-metrics.ts'
import {createReload} from './reload.ts'
import {StartRefused} from './start-refused.ts'

export interface RunningAgent {
  /** Graceful shutdown: nothing new starts, running executions get the grace period. Idempotent. */
  stop(): Promise<void>
  /** Kills running executions at once, also during `stop`. */
  forceStop(): void
  /** Takes over what can change while it runs. Never throws. */
  reload(loaded: LoadedAgentConfig): void
  /** The exit code, when everything has ended. Rejects with `StartRefused`. */
  readonly done: Promise<number>
}

export interface AgentSurroundings {
  /** Called once, with the line for standard output. */
  ready(line: string): void
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** Begins the start and returns at once; `done` reports the outcome. */
export function startAgent(config: AgentConfig, surroundings: AgentSurroundings): RunningAgent {
  const agent = new Agent(config, surroundings)
  void agent.run()
  return agent
}

/** Retry interval of the start while no server answers. */
const RETRY_MS = 500

class Agent implements RunningAgent {
  readonly #config: AgentConfig
  readonly #surroundings: AgentSurroundings
  readonly #clock = systemClock()
  readonly #random = systemRandom()
  readonly #wakeup = localWakeup()
  readonly #events = localEvents(this.#clock)
  readonly #log: Log
  readonly #done = Promise.withResolvers<number>()
  readonly reload: (loaded: LoadedAgentConfig) => void
  /** Credentials of the next connection. */
  #credentials: Pick<AgentConfig, 'token' | 'ca'>
  #metrics: AgentMetrics | null = null
  readonly #closers = new Closers()
  #identity!: Identity
  #results!: ResultLog
  #executors!: ExecutorRegistry
  #link: AgentLink | null = null
  #store!: RemoteNodeStore
  #membership: Membership | null = null
  #runner: Runner | null = null
  #status: MemberStatus = 'alive'
  #isReplaced = false
  #stopping: Promise<void> | null = null
  #exitCode = 0

  constructor(config: AgentConfig, surroundings: AgentSurroundings) {
    this.#config = config
    this.#surroundings = surroundings
    this.#log = openNodeLog(config, this.#loggedEvents())
    this.#credentials = config
    this.reload = createReload({
      config,
      log: this.#log,
      events: this.#events,
      fields: ['token', 'ca', 'metricsToken', 'metricsTls'],
      apply: (next) => {
        this.#metrics?.configure(next)
        this.#credentials = {token: next.token, ca: next.ca}
      },
    })
  }

  get done(): Promise<number> {
    return this.#done.promise
  }

  /** Never rejects; `done` reports a failed start. */
  async run(): Promise<void> {
    try {
      await this.#start()
    } catch (error) {
      if (this.#stopping !== null) return
      this.#stopping = this.#close()
      await this.#stopping
      this.#done.reject(error)
    }
  }

  async #start(): Promise<void> {
    for (const warning of this.#config.warnings) this.#log.logger.warn(warning)
    await this.#openDirectory()
    const undelivered = await this.#openResultLog()
    await this.#openMetrics() // also before it has joined: health checks see that it waits
    await this.#openExecutors() // ends processes of a previous incarnation
    const url = await this.#join()
    await this.#deliver(undelivered) // before the rest of that incarnation ends as lost
    await this.#recover() // releases or ends claims of previous incarnations
    this.#startMembership()
    this.#startRunner()
    this.#surroundings.ready(`belfry agent ${this.#config.nodeName} joined ${url}`)
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  async #stop(): Promise<void> {
    this.#link?.leaving()
    if (this.#runner !== null) {
      // The drain claims nothing from its first moment on, so a force stop finds everything that runs.
      await Promise.all([this.#runner.drain(this.#config.graceMs), this.#announce('leaving')])
      const {waitingCount} = this.#results
      // An agent with results does not leave: a leader would end their executions as `lost`.
      if (waitingCount === 0) await this.#announce('left')
      else
        this.#log.logger.warn(
          {results: waitingCount},
          'no server took these results; the next start delivers them',
        )
      await this.#membership?.stop()
    }
    this.#log.logger.info('stopped')
    await this.#close()
    this.#done.resolve(this.#exitCode)
  }

  forceStop(): void {
    this.#runner?.killAll()
  }

  async #close(): Promise<void> {
    await this.#closers.closeAll()
    this.#log.flush()
  }

  async #openDirectory(): Promise<void> {
    const parts = {config: this.#config, random: this.#random, log: this.#log}
    const {lock, identity} = await openDataDirectory(parts)
    this.#closers.add(() => lock.release())
    this.#identity = await identity()
  }

  /** Returns the results that previous incarnations could not deliver. */
  async #openResultLog(): Promise<readonly FinishJson[]> {
    const {dataDirectory} = this.#config
    try {
      const {results, left, unreadable} = await ResultLog.open(dataDirectory, this.#clock)
      this.#results = results
      this.#closers.add(() => results.close())
      if (unreadable > 0)
        this.#log.logger.warn(
          {lines: unreadable},
          'results of a previous incarnation cannot be read: torn by a crash or a full disk, or ' +
            'damaged; the undelivered ones become lost',
        )
      return left
    } catch (error) {
      throw new StartRefused(
        `The undelivered results in ${dataDirectory} cannot be opened: ${messageOf(error)}. ` +
          'Repair the files, or choose another --data.',
        {cause: error},
      )
    }
  }

  async #openMetrics(): Promise<void> {
    this.#metrics = await openAgentMetrics({
      config: this.#config,
      clock: this.#clock,
      events: this.#events,
      log: this.#log,
      state: () => ({
        isConnected: this.#link?.isConnected === true,
        slots: this.#config.slots,
        running: this.#runner?.runningCount ?? 0,
        resultsWaiting: this.#results.waitingCount,
      }),
    })
    this.#closers.add(() => this.#metrics?.close())
  }

  async #openExecutors(): Promise<void> {
    this.#executors = await openExecutors({
      config: this.#config,
      nodeId: this.#identity.id,
      clock: this.#clock,
      log: this.#log,
      environment: this.#surroundings.environment,
    })
    this.#closers.add(() => this.#executors.stop())
  }

  /** Returns the URL of the server that took this agent in. */
  async #join(): Promise<string> {
    const {link, store, joined, serverOffsetMs} = await joinCluster({
      config: this.#config,
      clock: this.#clock,
      random: this.#random,
      wakeup: this.#wakeup,
      log: this.#log,
      node: this.#identity,
      credentials: () => this.#credentials,
      status: () => this.#status,
      onReplaced: (why) => this.#endReplaced(why),
    })
    this.#closers.add(() => link.stop())
    this.#link = link
    this.#store = store
    this.#startClockWatch(serverOffsetMs)
    return await joined
  }

  #startClockWatch(storeOffsetMs: () => number | null): void {
    const {limits} = this.#config
    const watch = new ClockWatch({clock: this.#clock, events: this.#events, limits, storeOffsetMs})
    this.#closers.add(() => watch.stop())
    watch.start()
  }

  async #deliver(results: readonly FinishJson[]): Promise<void> {
    if (results.length === 0) return
    await this.#retry(() => this.#store.finish(results))
    await this.#results.delivered(results)
    this.#log.logger.info({results: results.length}, 'delivered results of a previous incarnation')
  }

  async #recover(): Promise<void> {
    await recoverPreviousIncarnations(this.#directory, (previous) =>
      this.#retry(() => this.#store.endPreviousIncarnations(previous)),
    )
  }

  /** Retries until a server answers. Throws `StartRefused` when this agent stops. */
  async #retry<Result>(work: () => Promise<Result>): Promise<Result> {
    while (this.#stopping === null) {
      try {
        return await work()
      } catch (error) {
        if (!(error instanceof StoreUnavailable) && !(error instanceof OutcomeUnknown)) throw error
        await pause(this.#clock, RETRY_MS)
      }
    }
    throw new StartRefused('The agent was stopped before it had joined.')
  }

  #startMembership(): void {
    const {limits, nodeName} = this.#config
    this.#membership = new Membership({
      store: this.#store,
      clock: this.#clock,
      events: this.#events,
      member: {...this.#identity, name: nodeName},
      limits,
      onReplaced: (why) => this.#endReplaced(replacedSentence(why, nodeName)),
    })
    this.#membership.start()
  }

  #startRunner(): void {
    warnIfRoot(this.#log)
    const {limits, slots} = this.#config
    const {id: nodeId, incarnation} = this.#identity
    const clock = this.#clock
    const events = this.#events
    const executors = this.#executors
    const store = this.#store
    const link = this.#link!
    const parts = {clock, events, store, limits}
    const finisher = new Finisher(parts)
    this.#runner = new Runner({
      ...parts,
      random: this.#random,
      wakeup: this.#wakeup,
      // Agents poll less often than servers: their server notifies them.
      limits: {...limits, pollMs: limits.agentPollMs},
      nodeId,
      incarnation,
      slots,
      executors,
      processors: openProcessors(this.#config, {clock, log: this.#log, executors}),
      finisher: loggedFinisher(this.#results, events, finisher),
      startLog: openStartLog(this.#directory, incarnation),
      disconnection: {forMs: () => link.disconnectedMs, mayLeave: () => !link.isConnected},
      // Each heartbeat lists the executions running here; its reply lists the revoked ones.
      revoked: () => store.revokedClaims(),
      release: (claims) => store.releaseClaims(claims),
    })
    this.#runner.start()
  }

  get #directory() {
    return {dataDirectory: this.#config.dataDirectory, log: this.#log}
  }

  /** Ends everything at once: the executions of this incarnation may already run elsewhere. */
  #endReplaced(why: string): void {
    this.#log.logger.error(why)
    this.#exitCode = 1
    this.#isReplaced = true
    void this.stop()
    this.forceStop()
  }

  /** Best effort: otherwise the failure detector finds out. A replaced incarnation announces nothing. */
  async #announce(status: 'leaving' | 'left'): Promise<void> {
    this.#status = status
    if (this.#isReplaced) return
    try {
      await this.#membership?.become(status)
    } catch (error) {
      this.#log.logger.warn({err: error}, `cannot tell a server that this node is ${status}`)
    }
  }

  /** Hides failed steps while disconnected: every step that needs a server fails, and the link logs why. */
  #loggedEvents(): Events {
    const isKnown = (event: BelfryEvent) =>
      event.name === 'step_failed' &&
      event.data.step !== KEEP_RESULT &&
      this.#link?.isConnected !== true
    return {
      emit: (name, data) => this.#events.emit(name, data),
      listen: (onEvent) => this.#events.listen((event) => isKnown(event) || onEvent(event)),
    }
  }
}
