/**
 * The composition root of a server: names every adapter, wires the flow, and holds the order of starting
 * and stopping. It decides nothing about jobs.
 *
 * Starting: data directory, store, orphans of an earlier life, listener, membership, that life's executions
 * given back or rescued, and only then work and leadership. Stopping is the reverse, with running work let
 * finish in between.
 */
import type {Config} from '../config/server.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {ClockWatch} from '../node/clock-watch.ts'
import {Membership, replacedSentence} from '../node/membership.ts'
import {returnNode} from '../node/recover.ts'
import type {Runner} from '../node/runner.ts'
import {systemClock} from '../platform/clock.ts'
import {nodeIdentity, prepareDataDirectory} from '../platform/data-directory.ts'
import {systemRandom} from '../platform/random.ts'
import {VERSION} from '../platform/version.ts'
import type {JoinRequest} from '../ports/node-store.ts'
import type {Wakeup} from '../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import type {Store} from '../ports/store.ts'
import {createProcessors} from '../processors/registry.ts'
import {Leadership} from '../scheduler/leadership.ts'
import {localEvents} from '../telemetry/event-bus.ts'
import {type Log, logEvents, openLog} from '../telemetry/log.ts'
import {listen, type Listener} from './http.ts'
import {
  type FlowParts,
  type Identity,
  leaderServices,
  memberOf,
  previousIncarnations,
  type NodeRun,
  openExecutors,
  createRunner,
} from './node.ts'
import {StartRefused} from './start-refused.ts'
import {agreeZone, openStore} from './store.ts'

export interface RunningServer {
  /** `http://host:port` */
  readonly url: string
  /** Leaves in good order: no new work, running work finishes up to the grace period. Repeatable. */
  stop(): Promise<void>
  /** Ends running work at once, also while stopping. */
  forceStop(): void
  /** The exit code, once everything has ended. */
  readonly done: Promise<number>
}

/** Throws `StartRefused`. `ready` is called once, with the line for standard output. */
export async function startServer(
  config: Config,
  out: {ready(line: string): void},
): Promise<RunningServer> {
  const server = new Server(config)
  try {
    await server.start()
  } catch (error) {
    await server.abandon()
    throw whyRefused(error)
  }
  out.ready(`belfry ${VERSION} is ready on ${server.url}`)
  return server
}

/** A store that goes away meanwhile is no fault of the program; whoever supervises it starts it again. */
function whyRefused(error: unknown): unknown {
  if (!(error instanceof StoreUnavailable || error instanceof OutcomeUnknown)) return error
  const problem = `The store stopped answering while this server started (${error.message})`
  return new StartRefused(`${problem}; start it again when the store takes writes.`, {cause: error})
}

class Server implements RunningServer {
  readonly #config: Config
  readonly #clock = systemClock()
  readonly #random = systemRandom()
  readonly #events = localEvents(this.#clock)
  readonly #log: Log
  readonly #done = Promise.withResolvers<number>()
  readonly #started = Promise.withResolvers<void>()
  /** What was started, newest last; ended in reverse when a start is refused. */
  readonly #opened: (() => Promise<unknown>)[] = []
  #store!: Store
  #wakeup!: Wakeup
  #executors!: ExecutorRegistry
  #listener!: Listener
  #membership!: Membership
  #leadership: Leadership | null = null
  #run: Runner | null = null
  #clockWatch: ClockWatch | null = null
  #closeStore!: () => Promise<void>
  #stopping: Promise<void> | null = null
  #exitCode = 0
  #isReplaced = false
  url = ''

  constructor(config: Config) {
    this.#config = config
    this.#log = openLog({
      level: config.logLevel,
      pretty: process.stderr.isTTY,
      colours: process.stderr.isTTY,
      node: config.nodeName,
    })
    logEvents(this.#events, this.#log.logger)
  }

  get done(): Promise<number> {
    return this.#done.promise
  }

  async start(): Promise<void> {
    const config = this.#config
    const startedAt = this.#clock.now()
    for (const warning of config.warnings) this.#log.logger.warn(warning)
    const directory = await prepareDataDirectory(config.dataDirectory)
    if (!directory.ok) throw new StartRefused(directory.problem)
    const base = {
      config,
      clock: this.#clock,
      random: this.#random,
      events: this.#events,
      log: this.#log,
    }
    const opened = await openStore(base)
    this.#store = opened.store
    this.#wakeup = opened.wakeup
    this.#closeStore = opened.close
    this.#opened.push(opened.close)
    const identity = await nodeIdentity(config.dataDirectory, this.#random)
    if (!identity.ok) throw new StartRefused(identity.problem)
    const node: Identity = {id: identity.id, incarnation: this.#random.id()}
    const zone = await agreeZone(this.#store, base)
    this.#executors = await openExecutors({...base, nodeId: node.id, environment: process.env})
    this.#opened.push(() => this.#executors.stop())
    const processors = createProcessors({
      dataDir: config.dataDirectory,
      nodeName: config.nodeName,
      clock: this.#clock,
      logRoot: config.logRoot,
      syslogUrl: config.syslogUrl,
      writeLog: (record) => this.#log.logger.info(record, 'output'),
      runProgram: (argv, input) => this.#executors.runProgram(argv, input),
    })
    this.#listener = await listen({
      ...base,
      store: this.#store,
      wakeup: this.#wakeup,
      executors: this.#executors,
      processors,
      nodeId: node.id,
      zone,
      startedAt,
      leads: () => this.#leadership?.term != null,
      // Asked for before there is anything to end, it waits until there is.
      leave: () => void this.#started.promise.then(() => this.stop()),
    })
    this.#opened.push(() => this.#listener.close())
    this.url = this.#listener.url
    const member = memberOf(config, node, this.#listener)
    await this.#join(member)
    const rescue = {
      random: this.#random,
      wakeup: this.#wakeup,
      events: this.#events,
      store: this.#store,
    }
    const lives = previousIncarnations({dataDirectory: config.dataDirectory, log: this.#log})
    const {id: nodeId, incarnation} = node
    lives.told(await returnNode(rescue, {nodeId, incarnation}, lives.earlier))
    const parts: FlowParts = {...rescue, config, clock: this.#clock}
    if (config.run) {
      const begun = lives.begin(incarnation)
      this.#run = createRunner(parts, node, this.#executors, processors, {...this.#cutOff(), begun})
      this.#opened.push(() => this.#run!.stop())
      this.#run.start()
    }
    this.#watchClock()
    this.#lead(parts, node, zone)
    this.#started.resolve()
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  forceStop(): void {
    this.#run?.killAll()
  }

  /** Undoes a start that did not succeed. */
  async abandon(): Promise<void> {
    for (const close of this.#opened.toReversed()) await close()
    this.#log.flush()
  }

  async #join(member: JoinRequest['member']): Promise<void> {
    const {limits} = this.#config
    const joined = await this.#store.join({member}, limits.failedAfterMs)
    if (joined.kind === 'taken') {
      throw new StartRefused(
        `The node name ${member.name} cannot be used: another node with this name is alive. ` +
          'Set another --name.',
      )
    }
    this.#membership = new Membership({
      store: this.#store,
      clock: this.#clock,
      events: this.#events,
      member,
      heartbeatMs: limits.heartbeatMs,
      rejoin: () => this.#store.join({member}, limits.failedAfterMs),
      replaced: (why) => this.#replaced(replacedSentence(why, member.name)),
    })
    this.#opened.push(() => this.#membership.stop())
    this.#membership.start()
  }

  /** A store of its own, in its data directory, cannot be out of reach for this server alone. */
  #cutOff(): NodeRun {
    const {store, limits} = this.#config
    if (store.engine === 'sqlite') return {}
    const forMs = () => this.#membership.silentMs
    return {cutOff: {forMs, limitMs: limits.disconnectedMs, mayLeave: () => false}}
  }

  #watchClock(): void {
    const {clockStepMs, clockLookMs} = this.#config.limits
    const watch = new ClockWatch({
      clock: this.#clock,
      events: this.#events,
      stepMinMs: clockStepMs,
      lookEveryMs: clockLookMs,
    })
    this.#opened.push(() => watch.stop())
    this.#clockWatch = watch
    watch.start()
  }

  #lead(parts: FlowParts, node: Identity, zone: string): void {
    const {limits, nodeName} = this.#config
    this.#leadership = new Leadership({
      store: this.#store,
      wakeup: this.#wakeup,
      clock: this.#clock,
      events: this.#events,
      nodeId: node.id,
      nodeName,
      holder: node.incarnation,
      leaseTtlMs: limits.leaseTtlMs,
      renewEveryMs: limits.leaseRenewMs,
      standEveryMs: limits.leaseAcquireEveryMs,
      trustMarginMs: limits.leaseMarginMs,
      services: (term, over) => leaderServices(parts, zone, term, over),
    })
    this.#opened.push(() => this.#leadership!.stop())
    this.#leadership.start()
  }

  /** Nothing of this life may go on, not even under another name: what runs here is run elsewhere. */
  #replaced(why: string): void {
    this.#log.logger.error(why)
    this.#exitCode = 1
    this.#isReplaced = true
    void this.stop()
    this.forceStop()
  }

  async #stop(): Promise<void> {
    // From the first moment on nothing new is taken, so that a second signal finds all there is to end.
    const drained = this.#run?.drain(this.#config.graceMs)
    await Promise.all([drained, this.#resign()])
    await this.#tell('left')
    await this.#clockWatch?.stop()
    await this.#membership.stop()
    await this.#listener.close()
    await this.#executors.stop()
    await this.#closeStore()
    this.#log.logger.info('stopped')
    this.#log.flush()
    this.#done.resolve(this.#exitCode)
  }

  async #resign(): Promise<void> {
    await this.#leadership?.stop()
    await this.#tell('leaving')
  }

  /** The cluster finds out by silence what it could not be told; of a life that was replaced, nothing. */
  async #tell(status: 'leaving' | 'left'): Promise<void> {
    if (this.#isReplaced) return
    try {
      await this.#membership.become(status)
    } catch (error) {
      this.#log.logger.warn({err: error}, `could not tell the store that this node is ${status}`)
    }
  }
}
