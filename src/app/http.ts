/**
 * The listener of a server: operations, routes and metrics put together, and the address they answer
 * under.
 */
import type {AddressInfo} from 'node:net'
import type {FastifyInstance} from 'fastify'
import type {Config} from '../config/server.ts'
import {matchTargets} from '../core/target.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {announceFinished} from '../node/finisher.ts'
import {createHttpServer} from '../http/server.ts'
import {createOperations} from '../operations/operations.ts'
import type {Wakeup} from '../ports/wakeup.ts'
import type {Store} from '../ports/store.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {startAgentHub} from './server-agents.ts'
import {Readiness} from './server-readiness.ts'
import type {StoreParts} from './store.ts'
import {StartRefused} from './start-refused.ts'
import {openMetrics} from '../telemetry/metrics.ts'
import {VERSION} from '../platform/version.ts'

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
    failed: (error, request) => log.logger.error({err: error, ...request}, 'a request failed'),
    answered: (answer) => metrics.answered(answer),
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
