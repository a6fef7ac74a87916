/**
 * The listener of a server: operations, routes and metrics put together, and the address they answer
 * under.
 */
import type {AddressInfo} from 'node:net'
import type {FastifyInstance} from 'fastify'
import {AgentHub} from '../agents/server/hub.ts'
import type {Config} from '../config/server.ts'
import {matchTargets} from '../core/target.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {createHttpServer} from '../http/server.ts'
import {announceFinished} from '../node/finisher.ts'
import {returnNode} from '../node/recover.ts'
import {createOperations} from '../operations/operations.ts'
import {VERSION} from '../platform/version.ts'
import type {Events} from '../ports/events.ts'
import type {Clock, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {openMetrics} from '../telemetry/metrics.ts'
import {StartRefused} from './start-refused.ts'
import type {StoreParts} from './store.ts'

export interface ListenerParts extends StoreParts {
  readonly store: Store
  readonly wakeup: Wakeup
  readonly executors: ExecutorRegistry
  readonly processors: ProcessorRegistry
  readonly nodeId: string
  readonly zone: string
  /** ms since the epoch. */
  readonly startedAt: number
  readonly leads: () => boolean
  readonly leave: () => void
}

export interface Listener {
  readonly url: string
  readonly address: string
  readonly port: number
  /** Resolves when no request is being answered any more. */
  close(): Promise<void>
}

/** Throws `StartRefused` when the address cannot be had. */
export async function listen(parts: ListenerParts): Promise<Listener> {
  const {config, clock, random, events, log, store} = parts
  const metrics = openMetrics({events, totals: () => store.totals(), version: VERSION})
  const readiness = new Readiness(clock, events)
  const agents = await startAgentHub(parts)
  const http = createHttpServer(operationsOf(parts), {
    nodeName: config.nodeName,
    version: VERSION,
    token: config.token,
    allowHosts: config.allowHosts,
    tls: config.tls,
    ui: config.ui,
    clock,
    random,
    events,
    ready: () => readiness.check(store, parts.leads()),
    metrics: async () => ({contentType: metrics.contentType, body: await metrics.text()}),
    onFault: (error, request) => log.logger.error({err: error, ...request}, 'a request failed'),
    onReply: (reply) => metrics.answered(reply),
    agents,
    bodyBytesMax: config.limits.bodyBytesMax,
    restoreBytesMax: config.limits.restoreBytesMax,
  })
  const close = async () => {
    await http.close()
    metrics.stop()
  }
  try {
    return {...(await bind(http, config)), close}
  } catch (error) {
    await close()
    throw error
  }
}

function operationsOf(parts: ListenerParts) {
  const {config, store, zone, startedAt, nodeId} = parts
  return createOperations({
    store,
    clock: parts.clock,
    random: parts.random,
    wakeup: parts.wakeup,
    events: parts.events,
    executors: parts.executors,
    processors: parts.processors,
    node: {id: nodeId, name: config.nodeName, version: VERSION, startedAt, tags: config.tags},
    settings: {
      defaultTimezone: () => zone,
      dataDirectory: config.dataDirectory,
      jobBytesMax: config.limits.bodyBytesMax,
      tokenConfigured: config.token !== null,
      runsAsRoot: process.geteuid?.() === 0,
    },
    hasTarget: async (tags) =>
      matchTargets(tags, await store.candidates(), config.defaultTarget).nodes.length > 0,
    isLeader: parts.leads,
    announce: (outcomes) => announceFinished(outcomes, parts),
    leave: parts.leave,
  })
}

async function bind(
  http: FastifyInstance,
  config: Config,
): Promise<{url: string; address: string; port: number}> {
  const asked = config.http
  try {
    await http.listen({host: asked.host, port: asked.port})
  } catch (error) {
    throw new StartRefused(whyNotListening(error, asked), {cause: error})
  }
  const {address, port} = http.server.address() as AddressInfo
  const host = asked.host.includes(':') ? `[${asked.host}]` : asked.host
  const scheme = config.tls === null ? 'http' : 'https'
  return {url: `${scheme}://${host}:${port}`, address, port}
}

function whyNotListening(error: unknown, http: {host: string; port: number}): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  const where = `${http.host}:${http.port}`
  if (code === 'EADDRINUSE') {
    return `Port ${http.port} on ${http.host} is taken; stop what uses it or choose another with --http.`
  }
  if (code === 'EACCES')
    return `This user may not listen on ${where}; choose a port above 1023 with --http.`
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
    return `${http.host} is no address of this machine; choose another with --http.`
  }
  return `Cannot listen on ${where} (${code || String(error)}); choose another with --http.`
}

/* Whether this server can do its work now: the store answers, and on the leader the launch loop turns. */

/** The launch loop polls every second; twice that and it does not turn. */
const PASS_AGE_MAX_MS = 2_000
/** An answer younger than this is given again, so that probes cost one write a second at the most. */
const FRESH_MS = 1_000

interface Answer {
  readonly ok: boolean
  readonly checks: Readonly<Record<string, string>>
}

export class Readiness {
  readonly #clock: Clock
  #passedAt: number
  #known: {answer: Promise<Answer>; at: number} | null = null

  constructor(clock: Clock, events: Events) {
    this.#clock = clock
    this.#passedAt = clock.monotonicMs()
    events.listen(({name}) => {
      // A term begins with its first pass; until then its own age counts.
      if (name === 'launch_pass_done' || name === 'term_began') this.#passedAt = clock.monotonicMs()
    })
  }

  /** Never rejects. */
  check(store: Pick<Store, 'probe'>, leads: boolean): Promise<Answer> {
    const now = this.#clock.monotonicMs()
    if (this.#known === null || now - this.#known.at >= FRESH_MS) {
      this.#known = {answer: this.#probe(store, leads), at: now}
    }
    return this.#known.answer
  }

  async #probe(store: Pick<Store, 'probe'>, leads: boolean): Promise<Answer> {
    const checks: Record<string, string> = {store: 'ok'}
    try {
      await store.probe()
    } catch (error) {
      checks['store'] =
        `not readable and writable: ${error instanceof Error ? error.message : String(error)}`
    }
    if (leads) {
      const ageMs = this.#clock.monotonicMs() - this.#passedAt
      checks['launch'] = ageMs <= PASS_AGE_MAX_MS ? 'ok' : `no pass for ${Math.round(ageMs)} ms`
    }
    return {ok: Object.values(checks).every((check) => check === 'ok'), checks}
  }
}

/* The agents' side of a server, wired: what connected agents ask goes to this server's store. */

export interface AgentParts extends StoreParts {
  readonly store: Store
  readonly wakeup: Wakeup
}

/** Started; `stop` sends the agents to other servers. */
export async function startAgentHub(parts: AgentParts): Promise<AgentHub> {
  const {config, store, clock, random, events, wakeup} = parts
  const {clusterId} = await store.info()
  const {limits} = config
  const hub = new AgentHub({
    store,
    clock,
    random,
    events,
    wakeup,
    clusterId,
    nodeName: config.nodeName,
    freshMs: limits.failedAfterMs,
    silentMs: limits.failedAfterMs,
    endPreviousIncarnations: (node, earlier) =>
      returnNode({store, random, wakeup, events}, node, earlier),
    announce: (outcomes) => announceFinished(outcomes, {wakeup, events}),
  })
  hub.start()
  return hub
}
