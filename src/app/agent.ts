/**
 * The composition root of an agent: names every adapter, wires the run step over a store that is asked
 * through a server, and holds the order of starting and stopping. It decides nothing about jobs.
 *
 * Starting: data directory, orphans of an earlier life, the link, results of that life that no server has,
 * the word that nothing else of it is left, with what it never started, and only then work. Stopping is the
 * reverse, with running work let finish in between.
 */
import type {AgentLink} from '../agents/client/link.ts'
import {type OpenedResultLog, ResultLog} from '../agents/client/result-log.ts'
import type {RemoteNodeStore} from '../agents/client/store.ts'
import type {AgentConfig} from '../config/agent.ts'
import type {MemberStatus} from '../core/node.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {Membership, replacedSentence} from '../node/membership.ts'
import type {Runner} from '../node/runner.ts'
import type {StartLog} from '../node/start-log.ts'
import {systemClock} from '../platform/clock.ts'
import {nodeIdentity, prepareDataDirectory} from '../platform/data-directory.ts'
import {lockDirectory} from '../platform/directory-lock.ts'
import {systemRandom} from '../platform/random.ts'
import {localWakeup} from '../platform/wakeup.ts'
import type {BelfryEvent, Events} from '../ports/events.ts'
import type {FinishItem} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../ports/store-errors.ts'
import {createProcessors} from '../processors/registry.ts'
import {localEvents} from '../telemetry/event-bus.ts'
import {type Log, logEvents, openLog} from '../telemetry/log.ts'
import {joinCluster} from './agent-join.ts'
import {previousIncarnations, type NodeRun, openExecutors, createRunner} from './node.ts'
import {StartRefused} from './start-refused.ts'

export interface RunningAgent {
  /** Leaves in good order: no new work, running work finishes up to the grace period. Repeatable. */
  stop(): Promise<void>
  /** Ends running work at once, also while stopping. */
  forceStop(): void
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
  /** What was opened, newest last; closed in reverse. */
  readonly #opened: (() => unknown)[] = []
  #link: AgentLink | null = null
  #store!: RemoteNodeStore
  #results!: ResultLog
  #membership: Membership | null = null
  #run: Runner | null = null
  #status: MemberStatus = 'alive'
  #isFenced = false
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

  forceStop(): void {
    this.#run?.killAll()
  }

  async #start(): Promise<void> {
    const config = this.#config
    for (const warning of config.warnings) this.#log.logger.warn(warning)
    const node = {id: await this.#openDirectory(), incarnation: this.#incarnation}
    const base = {config, clock: this.#clock, log: this.#log}
    const {results, left} = await openResults({...base, dataDirectory: config.dataDirectory})
    this.#results = results
    this.#opened.push(() => results.close())
    const {environment} = this.#surroundings
    const executors = await openExecutors({...base, nodeId: node.id, environment})
    this.#opened.push(() => executors.stop())
    const {link, store, joined} = await joinCluster({
      ...base,
      random: this.#random,
      wakeup: this.#wakeup,
      node,
      status: () => this.#status,
      fenced: (why) => this.#fenced(why),
    })
    this.#opened.push(() => link.stop())
    this.#link = link
    this.#store = store
    const url = await joined
    await this.#deliver(left)
    const lives = previousIncarnations({dataDirectory: config.dataDirectory, log: this.#log})
    lives.told(await this.#insist(() => store.endPreviousIncarnations(lives.earlier)))
    const begun = lives.begin(node.incarnation)
    this.#work(node, link, executors, begun)
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

  /** Results that an earlier life could not deliver: before the rest of that life is declared lost. */
  async #deliver(left: readonly FinishItem[]): Promise<void> {
    if (left.length === 0) return
    await this.#insist(() => this.#store.finish(left))
    await this.#results.delivered(left.map(({key}) => key))
    this.#log.logger.info({results: left.length}, 'delivered results of an earlier life')
  }

  /** Until a server has done it, or this agent ends. */
  async #insist<Result>(work: () => Promise<Result>): Promise<Result> {
    while (this.#stopping === null) {
      try {
        return await work()
      } catch (error) {
        if (!(error instanceof StoreUnavailable) && !(error instanceof OutcomeUnknown)) throw error
        await new Promise<void>((resolve) => this.#clock.after(AGAIN_MS, resolve))
      }
    }
    throw new StartRefused('The agent was stopped before it had joined.')
  }

  #work(
    node: {readonly id: string; readonly incarnation: string},
    link: AgentLink,
    executors: ExecutorRegistry,
    begun: StartLog,
  ): void {
    const {limits, nodeName, dataDirectory, logRoot, syslogUrl} = this.#config
    const ports = {store: this.#store, clock: this.#clock, events: this.#events}
    this.#membership = new Membership({
      ...ports,
      member: {...node, name: nodeName},
      heartbeatMs: limits.heartbeatMs,
      replaced: (why) => this.#fenced(replacedSentence(why, nodeName)),
    })
    this.#membership.start()
    const processors = createProcessors({
      dataDir: dataDirectory,
      nodeName,
      clock: this.#clock,
      logRoot,
      syslogUrl,
      writeLog: (record) => this.#log.logger.info(record, 'output'),
      runProgram: (argv, input) => executors.runProgram(argv, input),
    })
    const parts = {...ports, config: this.#config, random: this.#random, wakeup: this.#wakeup}
    this.#run = createRunner(parts, node, executors, processors, {
      cutOff: {
        forMs: () => link.disconnectedMs,
        limitMs: limits.disconnectedMs,
        mayLeave: () => !link.isConnected,
      },
      pollMs: limits.agentPollMs,
      // Each heartbeat says what runs here, and its answer what of it is not this node's.
      verifyEveryMs: Infinity,
      takenAway: () => this.#store.revokedClaims(),
      begun,
      finishing: finishingKept(this.#results, this.#events),
    })
    this.#run.start()
  }

  /** Another life of this node has joined, or another node under its name: nothing of this one may go on. */
  #fenced(why: string): void {
    this.#log.logger.error(why)
    this.#exitCode = 1
    this.#isFenced = true
    void this.stop()
    this.forceStop()
  }

  async #stop(): Promise<void> {
    this.#link?.leaving()
    if (this.#run !== null) {
      // From the first moment on nothing new is taken, so that a second signal finds all there is to end.
      await Promise.all([this.#run.drain(this.#config.graceMs), this.#tell('leaving')])
      const {waitingCount} = this.#results
      // Once told that it left, a leader would end what these are the results of.
      if (waitingCount === 0) await this.#tell('left')
      else
        this.#log.logger.warn({results: waitingCount}, 'no server took these; the next start will')
      await this.#membership?.stop()
    }
    this.#log.logger.info('stopped')
    await this.#close()
    this.#done.resolve(this.#exitCode)
  }

  async #close(): Promise<void> {
    for (const close of this.#opened.splice(0).toReversed()) await close()
    this.#log.flush()
  }

  /** The cluster finds out by silence what it could not be told; of a life that was replaced, nothing. */
  async #tell(status: 'leaving' | 'left'): Promise<void> {
    this.#status = status
    if (this.#isFenced) return
    try {
      await this.#membership?.become(status)
    } catch (error) {
      this.#log.logger.warn({err: error}, `could not tell a server that this node is ${status}`)
    }
  }

  /** Without a link every step that needs a server fails, and the link has already said why. */
  #loggedEvents(): Events {
    const isKnown = (event: BelfryEvent) =>
      event.name === 'step_failed' &&
      event.data.step !== KEEP_RESULT &&
      this.#link?.isConnected !== true
    return {
      emit: (name, data) => this.#events.emit(name, data),
      listen: (heard) => this.#events.listen((event) => isKnown(event) || heard(event)),
    }
  }
}

/*
 * The results of an agent between a run's end and a server: on disk before they are offered, and gone from
 * there when a server has them. Stands apart from `agent.ts`, which holds the order of starting and stopping.
 */

/** The step that fails when the disk does not take a result. */
export const KEEP_RESULT = 'keep_result'

export interface ResultParts {
  readonly dataDirectory: string
  readonly clock: Clock
  readonly log: Log
}

/** `left` are the results that earlier lives could not deliver. Throws `StartRefused`. */
export async function openResults({
  dataDirectory,
  clock,
  log,
}: ResultParts): Promise<Pick<OpenedResultLog, 'results' | 'left'>> {
  try {
    const {results, left, unreadable} = await ResultLog.open(dataDirectory, clock)
    if (unreadable > 0)
      log.logger.warn(
        {lines: unreadable},
        'results of an earlier life could not be read: torn by a crash or a full disk, or damaged; ' +
          'what was not delivered of them becomes lost',
      )
    return {results, left}
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new StartRefused(
      `The results in ${dataDirectory} that no server has yet cannot be opened: ${why}; ` +
        'mend that, or choose another --data.',
      {cause: error},
    )
  }
}

/**
 * On disk before it is offered. A crash between the two, or before the answer, leaves the result for the
 * next life; one after the answer delivers it twice, which changes nothing.
 */
export function finishingKept(
  results: Pick<ResultLog, 'keep' | 'delivered'>,
  events: Events,
): NonNullable<NodeRun['finishing']> {
  return async (item: FinishItem, finish: () => Promise<unknown>) => {
    try {
      await results.keep(item)
    } catch (error) {
      // A full disk must not keep a result from a server that would take it.
      events.emit('step_failed', {step: KEEP_RESULT, message: String(error)})
    }
    await finish()
    await results.delivered([item.key])
  }
}
