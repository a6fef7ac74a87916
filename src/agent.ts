/**
 * The composition root of an agent: names every adapter, wires the run step over a store that is asked
 * through a server, and holds the order of starting and stopping. It decides nothing about jobs.
 *
 * Starting: data directory, orphans of an earlier life, the link, results of that life that no server has,
 * the word that nothing else of it is left, and only then work. Stopping is the reverse, with running work
 * let finish in between.
 */
import {Membership} from './cluster/membership.ts'
import type {AgentConfig} from './config-agent.ts'
import type {MemberStatus} from './core/node.ts'
import {createExecutors, type ExecutorRegistry} from './executors/registry.ts'
import type {RunService} from './flow/run.ts'
import type {BelfryEvent, Events} from './ports/events.ts'
import type {FinishItem} from './ports/node-store.ts'
import {OutcomeUnknown, StoreUnavailable} from './ports/store-failure.ts'
import {createProcessors} from './processors/registry.ts'
import {runService} from './server-flow.ts'
import {StartRefused} from './start-refused.ts'
import {knownCluster, rememberCluster} from './stores/remote/cluster-id.ts'
import {webSocketDial} from './stores/remote/dial.ts'
import {HeldExecutions} from './stores/remote/held.ts'
import {AgentLink} from './stores/remote/link.ts'
import {ResultJournal} from './stores/remote/result-journal.ts'
import {RemoteNodeStore} from './stores/remote/store.ts'
import {prepareDataDirectory} from './system/data-directory.ts'
import {lockDirectory} from './system/directory-lock.ts'
import {localEvents} from './system/local-events.ts'
import {localWakeup} from './system/local-wakeup.ts'
import {logEvents, openLog, type Log} from './system/log.ts'
import {nodeIdentity} from './system/node-identity.ts'
import {systemClock} from './system/system-clock.ts'
import {systemRandom} from './system/system-random.ts'
import {VERSION} from './system/version.ts'

export interface RunningAgent {
  /** Leaves in good order: no new work, running work finishes up to the grace period. Repeatable. */
  stop(): Promise<void>
  /** Ends running work at once, also while stopping. */
  hurry(): void
  /** The exit code, once everything has ended. Rejects with `StartRefused`. */
  readonly done: Promise<number>
}

export interface AgentSurroundings {
  /** Called once, with the line for standard output. */
  ready(line: string): void
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** Begins to start; what comes of it, `done` tells. */
export function startAgent(config: AgentConfig, surroundings: AgentSurroundings): RunningAgent {
  const agent = new Agent(config, surroundings)
  void agent.live()
  return agent
}

/** Results of an earlier life are offered again this often, while no server takes them. */
const AGAIN_MS = 500
/** From dialling to the upgrade. */
const DIAL_MS = 5_000

class Agent implements RunningAgent {
  readonly #config: AgentConfig
  readonly #surroundings: AgentSurroundings
  readonly #clock = systemClock()
  readonly #random = systemRandom()
  readonly #wakeup = localWakeup()
  readonly #events = localEvents(this.#clock)
  readonly #log: Log
  readonly #done = Promise.withResolvers<number>()
  readonly #incarnation = this.#random.id()
  readonly #held = new HeldExecutions()
  /** What was opened, newest last; closed in reverse. */
  readonly #opened: (() => unknown)[] = []
  #link: AgentLink | null = null
  #store!: RemoteNodeStore
  #journal!: ResultJournal
  #executors!: ExecutorRegistry
  #membership: Membership | null = null
  #run: RunService | null = null
  #status: MemberStatus = 'alive'
  #joinedUrl: string | null = null
  #stopping: Promise<void> | null = null
  #exitCode = 0

  constructor(config: AgentConfig, surroundings: AgentSurroundings) {
    this.#config = config
    this.#surroundings = surroundings
    this.#log = openLog({
      level: config.logLevel,
      pretty: process.stderr.isTTY,
      colours: process.stderr.isTTY,
      node: config.nodeName,
    })
    logEvents(this.#loggedEvents(), this.#log.logger)
  }

  get done(): Promise<number> {
    return this.#done.promise
  }

  /** Never rejects; what goes wrong, `done` tells. */
  async live(): Promise<void> {
    try {
      await this.#start()
    } catch (error) {
      if (this.#stopping !== null) return
      this.#stopping = this.#close()
      await this.#stopping
      this.#done.reject(error)
    }
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  hurry(): void {
    this.#run?.killAll()
  }

  async #start(): Promise<void> {
    const config = this.#config
    for (const warning of config.warnings) this.#log.logger.warn(warning)
    const nodeId = await this.#openDirectory()
    const opened = await ResultJournal.open(config.dataDirectory, this.#clock)
    this.#journal = opened.journal
    this.#opened.push(() => opened.journal.close())
    await this.#openExecutors(nodeId)
    const url = await this.#join(nodeId)
    await this.#deliver(opened.left)
    await this.#insist(() => this.#store.earlierOver())
    this.#work(nodeId)
    this.#surroundings.ready(`belfry agent ${config.nodeName} joined ${url}`)
  }

  /** Answers this node's identity. */
  async #openDirectory(): Promise<string> {
    const {dataDirectory} = this.#config
    const directory = await prepareDataDirectory(dataDirectory)
    if (!directory.ok) throw new StartRefused(directory.problem)
    const lock = lockDirectory(dataDirectory)
    if (!lock.ok) throw new StartRefused(lock.problem)
    this.#opened.push(() => lock.release())
    const identity = await nodeIdentity(dataDirectory, this.#random)
    if (!identity.ok) throw new StartRefused(identity.problem)
    return identity.id
  }

  async #openExecutors(nodeId: string): Promise<void> {
    const {dataDirectory, limits, suAllow, netAllow, netDeny} = this.#config
    this.#executors = createExecutors({
      dataDir: dataDirectory,
      nodeId,
      clock: this.#clock,
      environment: this.#surroundings.environment,
      suAllowed: suAllow,
      cwdAllowed: null,
      netAllow,
      netDeny,
      killAfterMs: limits.killAfterMs,
      drainMs: limits.drainMs,
      spawn: 'auto',
      report: (sentence) => this.#log.logger.warn(sentence),
    })
    const {ended} = await this.#executors.endOrphans()
    for (const execution of ended) {
      this.#log.logger.warn({execution}, 'ended what an earlier life of this node had left running')
    }
    await this.#executors.start()
    this.#opened.push(() => this.#executors.stop())
  }

  /** Resolves with the URL of the first server that takes the agent in, however long that takes. */
  async #join(nodeId: string): Promise<string> {
    const {nodeName, tags, slots, servers, token, ca, limits, dataDirectory} = this.#config
    const clusterId = await knownCluster(dataDirectory).catch((error: Error) => {
      throw new StartRefused(`${error.message}.`, {cause: error})
    })
    const node = {id: nodeId, incarnation: this.#incarnation, name: nodeName, tags: {...tags}}
    const first = Promise.withResolvers<string>()
    this.#link = new AgentLink({
      dial: webSocketDial({token, ca, handshakeMs: DIAL_MS, version: VERSION}),
      urls: servers,
      clock: this.#clock,
      random: this.#random,
      introduction: () => ({
        node: {...node, slots, version: VERSION},
        status: this.#status,
        ...this.#held.inHand(),
      }),
      clusterId,
      remember: (id) => rememberCluster(dataDirectory, id),
      silenceMs: limits.linkSilenceMs,
      rang: (bell) => this.#wakeup.ring(bell),
      joined: (url) => {
        if (this.#joinedUrl !== null) this.#log.logger.info({url}, 'joined again')
        this.#joinedUrl = url
        this.#wakeup.ring('run')
        first.resolve(url)
      },
      report: (sentence) => this.#log.logger.warn(sentence),
      refused: (sentence, kind) => {
        if (kind === 'fenced' && this.#joinedUrl !== null) this.#fenced(sentence)
        else first.reject(new StartRefused(sentence))
      },
    })
    this.#store = new RemoteNodeStore(this.#link, this.#held, () => this.#wakeup.ring('cancel'))
    this.#opened.push(() => this.#link?.stop())
    this.#link.start()
    return await first.promise
  }

  /** Results that an earlier life could not deliver: before the rest of that life is declared lost. */
  async #deliver(left: readonly FinishItem[]): Promise<void> {
    if (left.length === 0) return
    await this.#insist(() => this.#store.finish(left))
    await this.#journal.delivered(left.map(({key}) => key))
    this.#log.logger.info({results: left.length}, 'delivered results of an earlier life')
  }

  /** Until a server has done it, or this agent ends. */
  async #insist(work: () => Promise<unknown>): Promise<void> {
    while (this.#stopping === null) {
      try {
        await work()
        return
      } catch (error) {
        if (!(error instanceof StoreUnavailable) && !(error instanceof OutcomeUnknown)) throw error
        await new Promise<void>((resolve) => this.#clock.after(AGAIN_MS, resolve))
      }
    }
    throw new StartRefused('The agent was stopped before it had joined.')
  }

  #work(nodeId: string): void {
    const {limits, nodeName, dataDirectory, logRoot, syslogUrl} = this.#config
    const events = this.#events
    const node = {id: nodeId, incarnation: this.#incarnation}
    this.#membership = new Membership({
      store: this.#store,
      clock: this.#clock,
      events,
      member: {...node, name: nodeName},
      heartbeatMs: limits.heartbeatMs,
      fenced: () => this.#fenced('another process has joined as this node; this one ends'),
    })
    this.#membership.start()
    const processors = createProcessors({
      dataDir: dataDirectory,
      nodeName,
      clock: this.#clock,
      logRoot,
      syslogUrl,
      writeLog: (record) => this.#log.logger.info(record, 'output'),
      runProgram: (argv, input) => this.#executors.runProgram(argv, input),
    })
    const parts = {
      config: this.#config,
      store: this.#store,
      clock: this.#clock,
      random: this.#random,
      wakeup: this.#wakeup,
      events,
    }
    this.#run = runService(parts, node, this.#executors, processors, {
      cutOff: {forMs: () => this.#link?.cutOffMs ?? 0, limitMs: limits.cutOffMs},
      pollMs: limits.agentPollMs,
      finishing: (item, finish) => this.#finishing(item, finish),
    })
    this.#run.start()
  }

  /**
   * On disk before it is offered. A crash between the two, or before the answer, leaves the result for the
   * next life; one after the answer delivers it twice, which changes nothing.
   */
  async #finishing(item: FinishItem, finish: () => Promise<unknown>): Promise<void> {
    try {
      await this.#journal.keep(item)
    } catch (error) {
      // A full disk must not keep a result from a server that would take it.
      this.#events.emit('step_failed', {step: 'keep_result', message: String(error)})
    }
    await finish()
    await this.#journal.delivered([item.key])
  }

  /** Another life of this node has joined: nothing of this one may go on. */
  #fenced(why: string): void {
    this.#log.logger.error(why)
    this.#exitCode = 1
    this.#run?.killAll()
    void this.stop()
  }

  async #stop(): Promise<void> {
    if (this.#run !== null) {
      await this.#tell('leaving')
      await this.#run.drain(this.#config.graceMs)
      await this.#tell('left')
      await this.#membership?.stop()
      const {waitingCount} = this.#journal
      if (waitingCount > 0)
        this.#log.logger.warn({results: waitingCount}, 'no server took these; the next start will')
    }
    this.#log.logger.info('stopped')
    await this.#close()
    this.#done.resolve(this.#exitCode)
  }

  async #close(): Promise<void> {
    for (const close of this.#opened.splice(0).toReversed()) await close()
    this.#log.flush()
  }

  /** The cluster finds out by silence what it could not be told. */
  async #tell(status: 'leaving' | 'left'): Promise<void> {
    this.#status = status
    try {
      await this.#membership?.become(status)
    } catch (error) {
      this.#log.logger.warn({err: error}, `could not tell a server that this node is ${status}`)
    }
  }

  /** Without a link every step fails, and the link has already said why. */
  #loggedEvents(): Events {
    const isKnown = ({name}: BelfryEvent) => name === 'step_failed' && !this.#link?.isConnected
    return {
      emit: (name, data) => this.#events.emit(name, data),
      listen: (heard) => this.#events.listen((event) => isKnown(event) || heard(event)),
    }
  }
}
