/**
 * Composition root of a server: names every adapter and holds the order of start and stop. It decides nothing
 * about jobs. `Server.start` and `Server.#stop` list the order.
 */
import type {Config, LoadedConfig} from '../config/server.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {ClockWatch} from '../node/clock-watch.ts'
import {recordIncarnation} from '../node/incarnations.ts'
import {announceFinished, Finisher} from '../node/finisher.ts'
import {aliveSentence, joinMember} from '../node/join.ts'
import {Membership, replacedSentence} from '../node/membership.ts'
import {recoverNode} from '../node/recover.ts'
import {claimUpkeep} from '../node/stored-claims.ts'
import {Runner, type RunnerOptions} from '../node/runner.ts'
import {systemClock} from '../platform/clock.ts'
import type {HeldLock} from '../platform/directory-lock.ts'
import {systemRandom} from '../platform/random.ts'
import {VERSION} from '../platform/version.ts'
import type {BelfryEvent} from '../core/events.ts'
import type {Events} from '../ports/events.ts'
import type {JoinRequest} from '../ports/node-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {Leadership} from '../scheduler/leadership.ts'
import {localEvents} from '../telemetry/event-bus.ts'
import type {Log} from '../telemetry/log.ts'
import {Closers, settleBoth} from './closers.ts'
import {listen, type Listener} from './http.ts'
import {
  createClockGuard,
  type Identity,
  leaderServices,
  memberOf,
  openDataDirectory,
  openExecutors,
  openNodeLog,
  openProcessors,
  openStartLog,
  recoverPreviousIncarnations,
  type ServerParts,
  warnIfRoot,
} from './node.ts'
import {createReload} from './reload.ts'
import {StartRefused} from './start-refused.ts'
import {agreeZone, openStore, type OpenedStore, type StoreParts} from './store.ts'

export interface RunningServer {
  /** `http://host:port` */
  readonly url: string
  /** Graceful shutdown: nothing new starts, running executions get the grace period. Idempotent. */
  stop(): Promise<void>
  /** Kills running executions at once, also during `stop`. */
  forceStop(): void
  /** Takes over what can change while it runs. Never throws. */
  reload(loaded: LoadedConfig): void
  /** The exit code, when everything has ended. */
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
    throw server.damage === null ? asRefusal(error) : new StartRefused(server.damage)
  }
  out.ready(`belfry ${VERSION} is ready on ${server.url}`)
  return server
}

/** Turns an outage of the store during the start into a refusal: the supervisor starts the server again. */
function asRefusal(error: unknown): unknown {
  if (!(error instanceof StoreUnavailable || error instanceof OutcomeUnknown)) return error
  const problem = `The server cannot start: the store stopped answering (${error.message}).`
  return new StartRefused(`${problem} Start it again when the store accepts writes.`, {
    cause: error,
  })
}

class Server implements RunningServer {
  readonly #config: Config
  readonly #clock = systemClock()
  readonly #random = systemRandom()
  readonly #events = localEvents(this.#clock)
  readonly #log: Log
  readonly #base: StoreParts
  readonly reload: (loaded: LoadedConfig) => void
  readonly #startedAt: number
  readonly #started = Promise.withResolvers<void>()
  readonly #done = Promise.withResolvers<number>()
  /** Called by a start that fails; `#stop` has an order of its own. */
  readonly #closers = new Closers()
  #identity!: Identity
  #opened!: OpenedStore
  #zone = ''
  #executors!: ExecutorRegistry
  #processors!: ProcessorRegistry
  #listener!: Listener
  #membership: Membership | null = null
  #runner: Runner | null = null
  #clockWatch: ClockWatch | null = null
  readonly #clockGuard: ReturnType<typeof createClockGuard>
  #leadership: Leadership | null = null
  #stopping: Promise<void> | null = null
  #exitCode = 0
  /** Set when this process ends at once: the store is damaged, or another incarnation has joined. */
  #announcesNothing = false
  #damage: string | null = null

  constructor(config: Config) {
    this.#config = config
    this.#clockGuard = createClockGuard(config)
    this.#log = openNodeLog(config, this.#loggedEvents())
    this.#base = {
      config,
      clock: this.#clock,
      random: this.#random,
      events: this.#events,
      log: this.#log,
      onDamage: (sentence) => {
        this.#damage = sentence
        // A start in progress fails with its next call of the store.
        void this.#started.promise.then(() => this.#endNow(sentence))
      },
    }
    this.#startedAt = this.#clock.now()
    this.reload = createReload({
      ...this.#base,
      fields: ['tls', 'token'],
      apply: (next) => this.#listener.reload(next),
    })
  }

  get url(): string {
    return this.#listener.url
  }

  /** Why the store cannot be used any more, for the operator; `null` = it can. */
  get damage(): string | null {
    return this.#damage
  }

  get done(): Promise<number> {
    return this.#done.promise
  }

  async start(): Promise<void> {
    for (const warning of this.#config.warnings) this.#log.logger.warn(warning)
    const lock = await this.#openDirectory()
    await settleBoth(
      this.#openStore(lock),
      this.#openExecutors(), // ends processes of a previous incarnation
    )
    await this.#listen() // HTTP API, agents, metrics
    await this.#join() // from here on heartbeats are sent
    await this.#recover() // releases or ends claims of previous incarnations
    if (this.#config.run) this.#startRunner()
    this.#startClockWatch()
    this.#startLeadership()
    this.#started.resolve()
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  async #stop(): Promise<void> {
    // Drain and resignation begin together. Nothing new is claimed from the first moment on, so a force stop
    // finds everything that runs.
    const drained = this.#runner?.drain(this.#config.graceMs)
    await Promise.all([drained, this.#resign()])
    await this.#announce('left')
    await this.#clockWatch?.stop()
    await this.#membership?.stop()
    await this.#listener.close()
    await this.#executors.stop()
    await this.#opened.close()
    this.#log.logger.info('stopped')
    this.#log.flush()
    this.#done.resolve(this.#exitCode)
  }

  forceStop(): void {
    this.#runner?.killAll()
  }

  /** Undoes a start that failed. */
  async abandon(): Promise<void> {
    await this.#closers.closeAll()
    this.#log.flush()
  }

  /** Locked from the first moment on: it holds the identity of the node and the files of its executions. */
  async #openDirectory(): Promise<HeldLock> {
    const {lock, identity} = await openDataDirectory(this.#base)
    this.#closers.add(() => lock.release())
    this.#identity = await identity()
    return lock
  }

  async #openStore(lock: HeldLock): Promise<void> {
    this.#opened = await openStore(this.#base, lock, this.#identity.id)
    this.#closers.add(() => this.#opened.close())
    this.#zone = await agreeZone(this.#opened.store, this.#base)
  }

  async #openExecutors(): Promise<void> {
    this.#executors = await openExecutors({
      ...this.#base,
      nodeId: this.#identity.id,
      environment: process.env,
    })
    this.#closers.add(() => this.#executors.stop())
    const {clock, log} = this.#base
    this.#processors = openProcessors(this.#config, {clock, log, executors: this.#executors})
  }

  async #listen(): Promise<void> {
    this.#listener = await listen({
      ...this.#parts,
      ...this.#opened,
      log: this.#log,
      executors: this.#executors,
      processors: this.#processors,
      nodeId: this.#identity.id,
      zone: this.#zone,
      startedAt: this.#startedAt,
      isLeader: () => this.#leadership?.term != null,
      // A request to leave that arrives during the start waits for its end.
      leave: () => void this.#started.promise.then(() => this.stop()),
    })
    this.#closers.add(() => this.#listener.close())
  }

  async #join(): Promise<void> {
    const {limits} = this.#config
    const {store, clock, events} = this.#parts
    const member = memberOf(this.#config, this.#identity, this.#listener)
    // Another incarnation is fresh for at most this time without a heartbeat.
    const waitMs = limits.failedAfterMs + limits.heartbeatMs
    const options = {store, clock, limits, waitMs}
    const joined = await joinMember(options, {member, ...this.#endedIncarnations()})
    if (joined.kind === 'alive') throw new StartRefused(aliveSentence(joined.member))
    if (joined.kind !== 'joined') {
      throw new StartRefused(
        `The node name ${member.name} cannot be used: another node with this name is alive. ` +
          'Set another --name.',
      )
    }
    const membership = new Membership({
      store,
      clock,
      events,
      limits,
      member,
      rejoin: () => store.join({member, ended: []}, limits.failedAfterMs),
      onReplaced: (why) => this.#endNow(replacedSentence(why, member.name)),
      onReachability: (problem) => this.#logReachability(problem),
    })
    this.#membership = membership
    this.#closers.add(() => membership.stop())
    membership.start()
  }

  /** Empty on SQLite: no other process can have this identity in the store of this data directory. */
  #endedIncarnations(): Pick<JoinRequest, 'ended'> {
    const {store, dataDirectory} = this.#config
    if (store.engine === 'sqlite') return {}
    return {ended: recordIncarnation(dataDirectory, this.#identity.incarnation)}
  }

  async #recover(): Promise<void> {
    const {id: nodeId, incarnation} = this.#identity
    await recoverPreviousIncarnations(this.#directory, (previous) =>
      recoverNode(this.#parts, {nodeId, incarnation}, previous),
    )
  }

  #startRunner(): void {
    warnIfRoot(this.#log)
    const {limits, slots} = this.#config
    const parts = {...this.#parts, limits}
    const {id: nodeId, incarnation} = this.#identity
    const runner = new Runner({
      ...parts,
      ...claimUpkeep(parts, this.#identity),
      ...this.#disconnection(),
      nodeId,
      incarnation,
      slots,
      executors: this.#executors,
      processors: this.#processors,
      finisher: new Finisher({
        ...parts,
        announce: (outcomes) => announceFinished(outcomes, parts),
      }),
      startLog: openStartLog(this.#directory, incarnation),
    })
    this.#closers.add(() => runner.stop())
    this.#runner = runner
    runner.start()
  }

  /** Empty on SQLite: the store is in the data directory, so it cannot be unreachable for this node alone. */
  #disconnection(): Pick<RunnerOptions, 'disconnection'> {
    if (this.#config.store.engine === 'sqlite') return {}
    const forMs = () => this.#membership?.silentMs ?? 0
    return {disconnection: {forMs, mayLeave: () => false}}
  }

  #startClockWatch(): void {
    const {clock, events} = this.#base
    const watch = new ClockWatch({
      clock,
      events,
      limits: this.#config.limits,
      storeOffsetMs: () => this.#clockGuard.storeOffsetMs,
    })
    this.#closers.add(() => watch.stop())
    this.#clockWatch = watch
    watch.start()
  }

  #startLeadership(): void {
    const {limits, nodeName} = this.#config
    const parts = this.#parts
    const {store, wakeup, clock, events} = parts
    const leadership = new Leadership({
      store,
      wakeup,
      clock,
      events,
      nodeId: this.#identity.id,
      nodeName,
      holder: this.#identity.incarnation,
      limits,
      onStoreTime: (now) => void this.#clockGuard.trustedNow(now, clock.monotonicMs()),
      services: (term, onTermOver) => leaderServices(parts, term, onTermOver, this.#clockGuard),
    })
    this.#closers.add(() => leadership.stop())
    this.#leadership = leadership
    leadership.start()
  }

  get #parts(): ServerParts {
    const {config, clock, random, events} = this.#base
    const {store, wakeup} = this.#opened
    return {config, clock, random, events, store, wakeup}
  }

  get #directory() {
    return {dataDirectory: this.#config.dataDirectory, log: this.#log}
  }

  /** Ends everything at once: the executions may run elsewhere already, or their ends cannot be stored. */
  #endNow(why: string): void {
    this.#log.logger.error(why)
    this.#exitCode = 1
    this.#announcesNothing = true
    void this.stop()
    this.forceStop()
  }

  async #resign(): Promise<void> {
    await this.#leadership?.stop()
    await this.#announce('leaving')
  }

  /** Best effort: without it the failure detector finds out. */
  async #announce(status: 'leaving' | 'left'): Promise<void> {
    if (this.#announcesNothing) return
    try {
      await this.#membership?.become(status)
    } catch (error) {
      this.#log.logger.warn({err: error}, `cannot store that this node is ${status}`)
    }
  }

  #logReachability(problem: Error | null): void {
    const {logger} = this.#log
    if (problem === null) return logger.info('the store answers again')
    logger.warn(`the store is unavailable: ${problem.message}; retrying until it answers`)
  }

  /** Hides failed steps while the store is away: every step that needs it fails, and one line says why. */
  #loggedEvents(): Events {
    const isKnown = ({name}: BelfryEvent) =>
      name === 'step_failed' && this.#membership?.isUnreachable === true
    return {
      emit: (name, data) => this.#events.emit(name, data),
      listen: (onEvent) => this.#events.listen((event) => isKnown(event) || onEvent(event)),
    }
  }
}
