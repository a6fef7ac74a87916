/**
 * HTTP side of a server: wires operations, routes, metrics, readiness and the agents' connections, then
 * listens on the configured address.
 */
import {Server as TlsServer} from 'node:tls'
import {AGENT_PATH} from '../agents/protocol.ts'
import {atMostEvery} from '../lib/at-most-every.ts'
import {AgentHub} from '../agents/server/hub.ts'
import type {Config} from '../config/server.ts'
import {countTargets} from '../core/target.ts'
import type {ExecutorRegistry} from '../executors/registry.ts'
import {OidcSignIn, type SignInFailed} from '../http/security/oidc.ts'
import type {ReadyState, SentReply} from '../http/options.ts'
import {Readiness} from '../http/readiness.ts'
import {RefusalLog} from '../http/security/refusals.ts'
import {createHttpServer} from '../http/server.ts'
import {announceFinished} from '../node/finisher.ts'
import {recoverNode} from '../node/recover.ts'
import {AccessTable} from '../identity/token-cache.ts'
import {createOperations} from '../operations/operations.ts'
import {openChannels} from '../notices/channels/open-channels.ts'
import {NetworkGuard} from '../platform/network-guard.ts'
import type {SecretVault} from '../platform/secret-vault.ts'
import {VERSION} from '../platform/version.ts'
import type {Store} from '../ports/store.ts'
import type {ProcessorRegistry} from '../processors/registry.ts'
import {CertificateWatch} from '../telemetry/certificate-watch.ts'
import {boundedCount} from '../telemetry/bounded-count.ts'
import {clusterStateOf, type StateOptions} from '../telemetry/cluster-state.ts'
import {openMetrics} from '../telemetry/metrics.ts'
import {bind, type Bound} from './bind.ts'
import type {Log} from '../telemetry/log.ts'
import type {ServerParts} from './node.ts'

export interface ListenerParts extends ServerParts {
  readonly log: Log
  readonly executors: ExecutorRegistry
  readonly processors: ProcessorRegistry
  readonly nodeId: string
  readonly zone: string
  readonly vault: SecretVault
  /** ms since the epoch. */
  readonly startedAt: number
  readonly isLeader: () => boolean
  readonly leave: () => void
  /** See `OpenedStore.forClients`. */
  readonly forClients: Store
}

export interface Listener extends Bound {
  /** Puts another certificate and token into effect, for new connections and for every request. */
  reload(config: Pick<Config, 'tls' | 'token'>): void
  /** Resolves when no request is in progress. */
  close(): Promise<void>
}

/** Throws `StartRefused` if it cannot listen on the address. */
export async function listen(parts: ListenerParts): Promise<Listener> {
  const {config, clock, random, events, log, store, forClients} = parts
  const totals = boundedCount(forClients, clock, () => forClients.totals())
  // Scraped only when the server listens.
  const {metrics, certificate} = openServerMetrics(parts, totals, () => agents.agentCount)
  const readiness = new Readiness(clock, events, (state) => logReadiness(log, state))
  const oidc = await openSignIn(parts)
  const access = new AccessTable({
    ...parts,
    store: forClients,
    traits: {executors: parts.executors.all, processors: parts.processors.all},
    token: config.token,
    personOwnerPrefix: oidc?.owners,
  })
  await access.refresh()
  warnOfStoredToken(access, log)
  const refusals = new RefusalLog({store: forClients, clock, events})
  const agents = await startAgentHub(parts, access, refusals)
  const http = createHttpServer(
    operationsOf({...parts, forClients: {...forClients, totals}}, access),
    {
      nodeName: config.nodeName,
      version: VERSION,
      access,
      allowHosts: config.allowHosts,
      corsOrigins: config.corsOrigins,
      tls: config.tls,
      oidc,
      onSignInFailed: atMostEvery(clock, SIGN_IN_LOG_EVERY_MS, (failure: SignInFailed) =>
        log.logger.warn(`a sign-in failed: ${failure.reasons}`),
      ),
      onPoliciesMissing: (person, policies) =>
        log.logger.warn(
          {person, policies},
          'a person signed in whose groups are mapped to policies that are not stored, which grant nothing',
        ),
      ui: config.ui,
      clock,
      random,
      events,
      ready: () => readiness.check(store, parts.isLeader()),
      metrics: async () => ({contentType: metrics.contentType, body: await metrics.text()}),
      onFault: (error, request) => log.logger.error({err: error, ...request}, 'a request failed'),
      onRefused: (refused) => refusals.record(refused),
      onReply: replyReporter(metrics, log),
      onConnectionsFull: atMostEvery(clock, REFUSED_LOG_EVERY_MS, () => {
        const {connectionsMax: max, networkConnectionsPercent: percent} = config.limits
        const why = `${max} are open, or ${percent}% of them from one network`
        log.logger.warn(`connections without a valid token are closed for others: ${why}`)
      }),
      agents,
      limits: config.limits,
    },
  )
  access.start()
  refusals.start()
  const reload: Listener['reload'] = ({tls, token}) => {
    if (tls !== null && http.server instanceof TlsServer) http.server.setSecureContext(tls)
    certificate.use(tls)
    access.configure(token)
  }
  const close = async () => {
    certificate.stop()
    await http.close()
    await access.stop()
    await refusals.stop()
    metrics.stop()
  }
  try {
    const listen = () => http.listen({...config.http})
    return {...(await bind(http.server, config.http, '--http', listen)), reload, close}
  } catch (error) {
    await close()
    throw error
  }
}

/** The metrics, and the watch of the certificate whose end they show. */
function openServerMetrics(
  parts: ListenerParts,
  totals: () => ReturnType<Store['totals']>,
  agentsConnected: () => number,
) {
  const {config, clock, events} = parts
  const certificate = new CertificateWatch({clock, events, setting: '--tls-cert'})
  certificate.use(config.tls)
  const metrics = openMetrics({
    events,
    version: VERSION,
    server: {cluster: clusterStateOf(stateOptionsOf(parts), totals), agentsConnected},
    certificateExpiresAt: () => certificate.expiresAt,
  })
  return {metrics, certificate}
}

/** `undefined` = people sign in with tokens only. */
async function openSignIn({config: {oidc}, store, clock, random}: ServerParts) {
  if (oidc === null) return undefined
  // Any server ends a sign-in that another one began.
  const key = await store.agreeSignInKey(`${random.id()}${random.id()}`)
  return new OidcSignIn(oidc, {clock, random, key})
}

function operationsOf(parts: ListenerParts, access: AccessTable) {
  const {config, forClients: store, zone, startedAt, nodeId} = parts
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
      runsPerMinute: config.runsPerMinute,
      sessionIdleMs: config.sessionIdleMs,
      sessionMaxMs: config.sessionMaxMs,
      limits: config.limits,
      get tokenConfigured() {
        return access.isLocked
      },
      runsAsRoot: process.geteuid?.() === 0,
      targets: {defaultTarget: config.defaultTarget, targetWaitMs: config.targetWaitMs},
      keepLaunches: config.keepLaunches,
      makesBackups: config.backup.directory !== null,
    },
    countTargets: async (tags) =>
      countTargets(tags, await store.candidates(), config.defaultTarget),
    isLeader: parts.isLeader,
    channels: openChannels({
      ...parts,
      store,
      addresses: new NetworkGuard(config.netAllow, config.netDeny),
    }),
    vault: parts.vault,
    access,
    announce: (outcomes) => announceFinished(outcomes, parts),
    leave: parts.leave,
  })
}

/** A flood of connections must not become a flood of log lines. */
const REFUSED_LOG_EVERY_MS = 10_000

/** Callers need no token to fail. */
const SIGN_IN_LOG_EVERY_MS = 1_000

function logReadiness({logger}: Log, {ok, details}: ReadyState): void {
  if (ok) logger.info(details, 'ready again')
  else logger.warn(details, 'not ready')
}

function stateOptionsOf({forClients: store, clock, config}: ListenerParts): StateOptions {
  const {metricsJobs, limits, backup} = config
  const {metricsNodesMax: nodesMax, metricsJobsMax: jobsMax} = limits
  const usage = {nodesMax, jobPatterns: metricsJobs, jobsMax}
  return {store, clock, usage, makesBackups: backup.directory !== null}
}

/** Starts the hub of the agents connected to this server. Its `stop` sends them to other servers. */
async function startAgentHub(
  parts: ServerParts,
  access: AccessTable,
  refusals: RefusalLog,
): Promise<AgentHub> {
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
    onRefused: ({caller, address, node, why}) => {
      const request = {
        method: 'GET',
        route: AGENT_PATH,
        url: AGENT_PATH,
        code: 'not_allowed',
      } as const
      refusals.record({...request, principal: caller, address, joining: {node, why}})
    },
    isConfigured: (digest) => access.isConfigured(digest),
    nodeName: config.nodeName,
    limits,
    endPreviousIncarnations: (node, previous) =>
      recoverNode({store, random, wakeup, events}, node, previous),
    announce: (outcomes) => announceFinished(outcomes, {wakeup, events}),
  })
  hub.start()
  return hub
}

/** Counts replies, and logs who changed what: the audit log has the details. */
function replyReporter(metrics: {answered(reply: SentReply): void}, {logger}: Log) {
  return (reply: SentReply) => {
    metrics.answered(reply)
    const {method, status, change} = reply
    if (change === undefined) return
    const {actor, path, location} = change
    const fields = {by: actor.name, address: actor.address, method, path, status, location}
    const what = location === undefined ? '' : `, now ${location}`
    logger.info(fields, `changed by ${actor.name}: ${method} ${path}${what}`)
  }
}

/** Revoking such a token does not end its use as that of the configuration. */
function warnOfStoredToken(access: AccessTable, log: Log): void {
  if (access.isConfiguredTokenStored)
    log.logger.warn(
      'the token of --token or --token-file is also a stored one: here it may do everything, even ' +
        'after it is revoked. Give the server a token of its own',
    )
}
