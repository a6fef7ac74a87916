/**
 * Composition root of a server: names every adapter and holds the order of start and stop. It decides nothing
 * about jobs. `Server.start` lists the order.
 */
import type {Config, LoadedConfig} from '../config/server.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {recordIncarnation} from '../node/incarnations.ts'
import {announceFinished, Finisher} from '../node/finisher.ts'
import {aliveSentence, joinMember} from '../node/join.ts'
import {recoverNode} from '../node/recover.ts'
import {claimUpkeep} from '../node/stored-claims.ts'
import type {RunnerOptions} from '../node/runner.ts'
import type {HeldLock} from '../platform/directory-lock.ts'
import {NetworkGuard} from '../platform/network-guard.ts'
import {VERSION} from '../platform/version.ts'
import type {JoinRequest} from '../ports/node-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import type {NoticeChannels} from '../ports/notice-channel.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {PER_INCIDENT_KINDS} from '../notices/channels/kinds.ts'
import {openChannels} from '../notices/channels/open-channels.ts'
import {ClusterPing} from '../scheduler/cluster-ping.ts'
import {Leadership} from '../scheduler/leadership.ts'
import {Notices} from '../scheduler/notices.ts'
import {StoreWatch} from '../scheduler/store-watch.ts'
import {listen, type Listener} from './http.ts'
import {Lifecycle, type RunningNode, settleBoth} from './lifecycle.ts'
import {
  createClockGuard,
  type Identity,
  leaderServices,
  memberOf,
  openDataDirectory,
  openExecutors,
  openProcessors,
  openStartLog,
  recoverPreviousIncarnations,
  type ServerParts,
} from './node.ts'
import {createReload} from './reload.ts'
import {StartRefused} from './start-refused.ts'
import {agreeZone, openStore, type OpenedStore, type StoreParts} from './store.ts'

export interface RunningServer extends RunningNode {
  /** `http://host:port` */
  readonly url: string
  /** Takes over what can change while it runs. Never throws. */
  reload(loaded: LoadedConfig): void
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
    await server.life.abandon()
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
  readonly life: Lifecycle
  readonly #config: Config
  readonly #base: StoreParts
  readonly reload: (loaded: LoadedConfig) => void
  readonly #startedAt: number
  readonly #started = Promise.withResolvers<void>()
  #identity!: Identity
  #opened!: OpenedStore
  #zone = ''
  #executors!: ExecutorRegistry
  #processors!: ProcessorRegistry
  #listener!: Listener
  #channels!: NoticeChannels
  readonly #clockGuard: ReturnType<typeof createClockGuard>
  #leadership: Leadership | null = null
  #damage: string | null = null

  constructor(config: Config) {
    this.#config = config
    this.#clockGuard = createClockGuard(config)
    const life = new Lifecycle({
      config,
      isExplained: () => this.life.membership?.isUnreachable === true,
      leaving: () => this.#leadership?.stop(),
      mayLeave: () => true,
    })
    this.life = life
    const {clock, random, events, log} = life
    this.#base = {
      config,
      clock,
      random,
      events,
      log,
      onDamage: (sentence) => {
        this.#damage = sentence
        // A start in progress fails with its next call of the store.
        void this.#started.promise.then(() => life.endNow(sentence))
      },
    }
    this.#startedAt = clock.now()
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
    return this.life.done
  }

  async start(): Promise<void> {
    for (const warning of this.#config.warnings) this.life.log.logger.warn(warning)
    const lock = await this.#openDirectory()
    await settleBoth(
      this.#openStore(lock),
      this.#openExecutors(), // ends processes of a previous incarnation
    )
    await this.#listen() // HTTP API, agents, metrics
    await this.#join() // from here on heartbeats are sent
    await this.#recover() // releases or ends claims of previous incarnations
    if (this.#config.run) this.#startRunner()
    this.life.startClockWatch(() => this.#clockGuard.storeOffsetMs)
    this.#channels = this.#openChannels()
    this.#startLeadership()
    this.#startNotices()
    this.#started.resolve()
  }

  stop(): Promise<void> {
    return this.life.stop()
  }

  forceStop(): void {
    this.life.forceStop()
  }

  /** Locked from the first moment on: it holds the identity of the node and the files of its executions. */
  async #openDirectory(): Promise<HeldLock> {
    const {lock, identity} = await openDataDirectory(this.#base)
    this.life.onClose(() => lock.release())
    this.#identity = await identity()
    return lock
  }

  async #openStore(lock: HeldLock): Promise<void> {
    this.#opened = await openStore(this.#base, lock, this.#identity.id)
    this.life.onClose(() => this.#opened.close())
    this.#zone = await agreeZone(this.#opened.store, this.#base)
  }

  async #openExecutors(): Promise<void> {
    this.#executors = await openExecutors({
      ...this.#base,
      nodeId: this.#identity.id,
      environment: process.env,
    })
    this.life.onClose(() => this.#executors.stop())
    const {clock, log} = this.#base
    this.#processors = openProcessors(this.#config, {clock, log, executors: this.#executors})
  }

  async #listen(): Promise<void> {
    this.#listener = await listen({
      ...this.#parts,
      ...this.#opened,
      log: this.life.log,
      executors: this.#executors,
      processors: this.#processors,
      nodeId: this.#identity.id,
      zone: this.#zone,
      startedAt: this.#startedAt,
      isLeader: () => this.#leadership?.term != null,
      // A request to leave that arrives during the start waits for its end.
      leave: () => void this.#started.promise.then(() => this.stop()),
    })
    this.life.onClose(() => this.#listener.close())
  }

  async #join(): Promise<void> {
    const {limits} = this.#config
    const {store, clock} = this.#parts
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
    this.life.startMembership({
      store,
      member,
      rejoin: () => store.join({member, ended: []}, limits.failedAfterMs),
      onReachability: (problem) => this.#logReachability(problem),
    })
  }

  /** Empty on SQLite: no other process can have this identity in the store of this data directory. */
  #endedIncarnations(): Pick<JoinRequest, 'ended'> {
    const {store, dataDirectory} = this.#config
    if (store.engine === 'sqlite') return {}
    return {ended: recordIncarnation(dataDirectory, this.#identity.incarnation)}
  }

  async #recover(): Promise<void> {
    const {id: nodeId, incarnation} = this.#identity
    await recoverPreviousIncarnations(this.#base, (previous) =>
      recoverNode(this.#parts, {nodeId, incarnation}, previous),
    )
  }

  #startRunner(): void {
    const {limits} = this.#config
    const parts = {...this.#parts, limits}
    const {id: nodeId, incarnation} = this.#identity
    this.life.startRunner({
      ...parts,
      ...claimUpkeep(parts, this.#identity),
      ...this.#disconnection(),
      nodeId,
      incarnation,
      executors: this.#executors,
      processors: this.#processors,
      finisher: new Finisher({
        ...parts,
        announce: (outcomes) => announceFinished(outcomes, parts),
      }),
      startLog: openStartLog(this.#base, incarnation),
    })
  }

  /** Empty on SQLite: the store is in the data directory, so it cannot be unreachable for this node alone. */
  #disconnection(): Pick<RunnerOptions, 'disconnection'> {
    if (this.#config.store.engine === 'sqlite') return {}
    const forMs = () => this.life.membership?.silentMs ?? 0
    return {disconnection: {forMs, mayLeave: () => false}}
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
      services: (term, onTermOver) => {
        const [channels, clockGuard] = [this.#channels, this.#clockGuard]
        return [
          ...leaderServices(parts, term, onTermOver, clockGuard),
          new ClusterPing({...parts, limits, term, onTermOver, channels, clockGuard}),
        ]
      },
    })
    this.life.onClose(() => leadership.stop())
    this.#leadership = leadership
    leadership.start()
  }

  #openChannels(): NoticeChannels {
    const {netAllow, netDeny} = this.#config
    const {store, vault} = this.#opened
    const addresses = new NetworkGuard(netAllow, netDeny)
    return openChannels({...this.#parts, store, vault, addresses})
  }

  /** Evaluates and delivers notices; a stop waits for the messages that are being sent. */
  #startNotices(): void {
    const parts = this.#parts
    const {publicUrl, defaultTarget, targetWaitMs, limits} = this.#config
    const queuedMax = limits.queuedPerJobMax
    const channels = this.#channels
    const watch = new StoreWatch({...parts, limits, channels})
    const notices = new Notices({
      ...parts,
      limits,
      report: {
        publicUrl,
        defaultTarget,
        targetWaitMs,
        queuedMax,
        perIncidentKinds: PER_INCIDENT_KINDS,
      },
      channels,
      clockGuard: this.#clockGuard,
      onWatch: (watchesStore) => watch.watch(watchesStore),
      sender: this.#identity.incarnation,
      isLeader: () => this.#leadership?.term != null,
    })
    this.life.onClose(() => Promise.all([notices.stop(), watch.stop()]))
    notices.start()
    watch.start()
  }

  get #parts(): ServerParts {
    const {config, clock, random, events} = this.#base
    const {store, wakeup} = this.#opened
    return {config, clock, random, events, store, wakeup}
  }

  #logReachability(problem: Error | null): void {
    const {logger} = this.life.log
    if (problem === null) return logger.info('the store answers again')
    logger.warn(`the store is unavailable: ${problem.message}; retrying until it answers`)
  }
}
