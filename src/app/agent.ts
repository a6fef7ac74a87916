/**
 * Composition root of an agent: names every adapter and holds the order of start and stop. The run step works
 * over a store that is a client of a server. It decides nothing about jobs. `Agent.#start` lists the order.
 */
import type {AgentLink} from '../agents/client/link.ts'
import {KEEP_RESULT, loggedFinisher, ResultLog} from '../agents/client/result-log.ts'
import type {RemoteNodeStore} from '../agents/client/store.ts'
import type {FinishJson} from '../agents/protocol.ts'
import type {AgentConfig, LoadedAgentConfig} from '../config/agent.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {messageOf} from '../lib/error.ts'
import {pause} from '../lib/pause.ts'
import {Finisher} from '../node/finisher.ts'
import {localWakeup} from '../platform/wakeup.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import {joinCluster} from './agent-join.ts'
import {
  type Identity,
  openDataDirectory,
  openExecutors,
  openProcessors,
  openStartLog,
  recoverPreviousIncarnations,
} from './node.ts'
import {type AgentMetrics, openAgentMetrics} from './agent-metrics.ts'
import {Lifecycle, type RunningNode} from './lifecycle.ts'
import {createReload} from './reload.ts'
import {StartRefused} from './start-refused.ts'

/** `done` rejects with `StartRefused` if the start fails. */
export interface RunningAgent extends RunningNode {
  /** Takes over what can change while it runs. Never throws. */
  reload(loaded: LoadedAgentConfig): void
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
  readonly #wakeup = localWakeup()
  readonly #life: Lifecycle
  readonly reload: (loaded: LoadedAgentConfig) => void
  /** Credentials of the next connection. */
  #credentials: Pick<AgentConfig, 'token' | 'ca'>
  #metrics: AgentMetrics | null = null
  #identity!: Identity
  #results!: ResultLog
  #executors!: ExecutorRegistry
  #link: AgentLink | null = null
  #store!: RemoteNodeStore

  constructor(config: AgentConfig, surroundings: AgentSurroundings) {
    this.#config = config
    this.#surroundings = surroundings
    this.#life = new Lifecycle({
      config,
      // The link logs why every step that needs a server fails.
      isExplained: (step) => step !== KEEP_RESULT && this.#link?.isConnected !== true,
      leaving: () => this.#link?.leaving(),
      mayLeave: () => this.#mayLeave(),
    })
    this.#credentials = config
    this.reload = createReload({
      config,
      log: this.#life.log,
      events: this.#life.events,
      fields: ['token', 'ca', 'metricsToken', 'metricsTls'],
      apply: (next) => {
        this.#metrics?.configure(next)
        this.#credentials = {token: next.token, ca: next.ca}
      },
    })
  }

  get done(): Promise<number> {
    return this.#life.done
  }

  stop(): Promise<void> {
    return this.#life.stop()
  }

  forceStop(): void {
    this.#life.forceStop()
  }

  /** Never rejects; `done` reports a failed start. */
  async run(): Promise<void> {
    try {
      await this.#start()
    } catch (error) {
      await this.#life.fail(error)
    }
  }

  async #start(): Promise<void> {
    for (const warning of this.#config.warnings) this.#life.log.logger.warn(warning)
    await this.#openDirectory()
    const undelivered = await this.#openResultLog()
    await this.#openMetrics() // also before it has joined: health checks see that it waits
    await this.#openExecutors() // ends processes of a previous incarnation
    const url = await this.#join()
    await this.#deliver(undelivered) // before the rest of that incarnation ends as lost
    await this.#recover() // releases or ends claims of previous incarnations
    this.#life.startMembership({
      store: this.#store,
      member: {...this.#identity, name: this.#config.nodeName},
    })
    this.#startRunner()
    this.#surroundings.ready(`belfry agent ${this.#config.nodeName} joined ${url}`)
  }

  /** An agent with results does not leave: a leader would end their executions as `lost`. */
  #mayLeave(): boolean {
    const {waitingCount: results} = this.#results
    if (results === 0) return true
    const warning = 'no server took these results; the next start delivers them'
    this.#life.log.logger.warn({results}, warning)
    return false
  }

  async #openDirectory(): Promise<void> {
    const {lock, identity} = await openDataDirectory({config: this.#config, ...this.#ports})
    this.#life.onClose(() => lock.release())
    this.#identity = await identity()
  }

  /** Returns the results that previous incarnations could not deliver. */
  async #openResultLog(): Promise<readonly FinishJson[]> {
    const {dataDirectory} = this.#config
    try {
      const {results, left, unreadable} = await ResultLog.open(dataDirectory, this.#life.clock)
      this.#results = results
      this.#life.onClose(() => results.close())
      if (unreadable > 0)
        this.#life.log.logger.warn(
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
      ...this.#ports,
      state: () => ({
        isConnected: this.#link?.isConnected === true,
        slots: this.#config.slots,
        running: this.#life.runningCount,
        resultsWaiting: this.#results.waitingCount,
      }),
    })
    this.#life.onClose(() => this.#metrics?.close())
  }

  async #openExecutors(): Promise<void> {
    this.#executors = await openExecutors({
      config: this.#config,
      nodeId: this.#identity.id,
      ...this.#ports,
      environment: this.#surroundings.environment,
    })
    this.#life.onClose(() => this.#executors.stop())
  }

  /** Returns the URL of the server that took this agent in. */
  async #join(): Promise<string> {
    const {link, store, joined, serverOffsetMs} = await joinCluster({
      config: this.#config,
      ...this.#ports,
      wakeup: this.#wakeup,
      node: this.#identity,
      credentials: () => this.#credentials,
      status: () => this.#life.status,
      onReplaced: (why) => this.#life.endNow(why),
    })
    this.#life.onClose(() => link.stop())
    this.#link = link
    this.#store = store
    this.#life.startClockWatch(serverOffsetMs)
    return await joined
  }

  async #deliver(results: readonly FinishJson[]): Promise<void> {
    if (results.length === 0) return
    await this.#retry(() => this.#store.finish(results))
    await this.#results.delivered(results)
    this.#life.log.logger.info(
      {results: results.length},
      'delivered results of a previous incarnation',
    )
  }

  async #recover(): Promise<void> {
    await recoverPreviousIncarnations(this.#recovery, (previous) =>
      this.#retry(() => this.#store.endPreviousIncarnations(previous)),
    )
  }

  /** Retries until a server answers. Throws `StartRefused` when this agent stops. */
  async #retry<Result>(work: () => Promise<Result>): Promise<Result> {
    while (!this.#life.isStopping) {
      try {
        return await work()
      } catch (error) {
        if (!(error instanceof StoreUnavailable) && !(error instanceof OutcomeUnknown)) throw error
        await pause(this.#life.clock, RETRY_MS)
      }
    }
    throw new StartRefused('The agent was stopped before it had joined.')
  }

  #startRunner(): void {
    const {limits} = this.#config
    const {id: nodeId, incarnation} = this.#identity
    const {clock, events, log} = this.#ports
    const executors = this.#executors
    const store = this.#store
    const link = this.#link!
    const finisher = new Finisher({clock, events, limits, store})
    this.#life.startRunner({
      store,
      wakeup: this.#wakeup,
      // Agents poll less often than servers: their server notifies them.
      limits: {...limits, pollMs: limits.agentPollMs},
      nodeId,
      incarnation,
      executors,
      processors: openProcessors(this.#config, {clock, log, executors}),
      finisher: loggedFinisher(this.#results, events, finisher),
      startLog: openStartLog(this.#recovery, incarnation),
      disconnection: {forMs: () => link.disconnectedMs, mayLeave: () => !link.isConnected},
      // Each heartbeat lists the executions running here; its reply lists the revoked ones.
      revoked: () => store.revokedClaims(),
      release: (claims) => store.releaseClaims(claims),
    })
  }

  get #ports() {
    const {clock, random, events, log} = this.#life
    return {clock, random, events, log}
  }

  get #recovery() {
    return {config: this.#config, log: this.#life.log}
  }
}
