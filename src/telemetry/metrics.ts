/**
 * Metrics for Prometheus, from the catalogue of events and from gauges read at each scrape. Label values come
 * from fixed sets (decisions, statuses, routes) and never from events: a hundred thousand jobs must not
 * create a hundred thousand series. Series of fixed labels exist from the start with 0, because a counter
 * that appears with its first event hides this event from `increase()`. docs/reference/metrics.md lists every
 * metric.
 */
import {Counter, Gauge, Histogram, Registry} from 'prom-client'
import {FINAL_STATUSES} from '../core/execution.ts'
import {REASON_ROWS, reasonCode} from '../core/launch-reasons.ts'
import {LAUNCH_CAUSES} from '../core/launch-record.ts'
import {MESSAGE_KINDS} from '../core/notice-message.ts'
import {AGENT_STEPS, SERVER_STEPS, type Step} from '../core/steps.ts'
import type {BelfryEvent, EventPayloads} from '../core/events.ts'
import type {Events} from '../ports/events.ts'
import {type ClusterState, registerClusterMetrics} from './cluster-metrics.ts'
import {registerProcessMetrics} from './process-metrics.ts'

const MS_PER_SECOND = 1000

/** Range: an on-time launch to one that waited minutes for a node. */
const LAG_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
/** Range: `true` to a nightly export. */
const DURATION_BUCKETS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400]
/** A commit is an fsync: a fraction of a millisecond on flash, tens of milliseconds on a busy disk. */
const COMMIT_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5]
const COMMIT_ITEM_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1000]
const PASS_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5]
const HTTP_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5]

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** Status classes of replies that have a series with the first reply of a route. */
const STATUS_CLASSES = ['2xx', '4xx', '5xx']

export interface MetricsOptions {
  readonly events: Events
  readonly version: string
  /** State of a server. */
  readonly server?: {
    /** Called at every scrape. If it rejects, `belfry_store_up` is 0 and the gauges of the store absent. */
    readonly cluster: () => Promise<ClusterState>
    readonly agentsConnected: () => number
  }
  /** State of an agent; called at every scrape. */
  readonly agent?: () => AgentState
  /** End of the certificate of the address, in ms since the epoch; `null` = there is none. */
  readonly certificateExpiresAt?: () => number | null
}

export interface AgentState {
  readonly isConnected: boolean
  readonly slots: number
  readonly running: number
  /** Results that no server has acknowledged yet. */
  readonly resultsWaiting: number
}

/** `route` is the pattern from the route table, `''` when none matched. */
export interface AnsweredRequest {
  readonly method: string
  readonly route: string
  readonly status: number
  readonly durationMs: number
}

export interface Metrics {
  readonly contentType: string
  /** The exposition text. It does not reject when the store is down. */
  text(): Promise<string>
  /** Names of all metrics; a test compares them with the documentation. */
  names(): readonly string[]
  answered(request: AnsweredRequest): void
  stop(): void
}

export function openMetrics(options: MetricsOptions): Metrics {
  const registry = new Registry()
  const {events, version, server, agent} = options
  const unsubscribe = events.listen(countEvents(registry, server !== undefined))
  const stopProcessMetrics = registerProcessMetrics(registry, version)
  const readCluster = server && registerClusterMetrics(registry, server.cluster)
  if (server !== undefined)
    gaugeOf(
      registry,
      'belfry_agents_connected',
      'Agents connected to this server',
      server.agentsConnected,
    )
  if (agent !== undefined) registerAgentMetrics(registry, agent)
  certificateGauge(registry, options.certificateExpiresAt ?? (() => null))
  const answered = server === undefined ? () => undefined : countRequests(registry)
  return {
    contentType: registry.contentType,
    text: async () => {
      await readCluster?.()
      return await registry.metrics()
    },
    names: () => registry.getMetricsAsArray().map((metric) => metric.name),
    answered,
    stop: () => {
      unsubscribe()
      stopProcessMetrics()
    },
  }
}

type Handlers = {
  readonly [Name in keyof EventPayloads]?: (data: EventPayloads[Name]) => void
}

function countEvents(registry: Registry, isServer: boolean): (event: BelfryEvent) => void {
  const handlers: Handlers = {
    ...executionHandlers(registry, isServer),
    ...stepHandlers(registry, isServer ? SERVER_STEPS : AGENT_STEPS),
    ...(isServer && {
      ...launchHandlers(registry),
      ...leaderHandlers(registry),
      ...backupHandlers(registry),
      ...storeHandlers(registry),
      ...noticeHandlers(registry),
    }),
  }
  return (event) => {
    const handler = handlers[event.name] as ((data: BelfryEvent['data']) => void) | undefined
    handler?.(event.data)
  }
}

function noticeHandlers(registry: Registry): Handlers {
  const notices = new Counter({
    name: 'belfry_notices_total',
    help: 'Attempts of this server to deliver a notice over a channel, by the kind of the message',
    labelNames: ['kind', 'outcome'],
    registers: [registry],
  })
  for (const kind of MESSAGE_KINDS)
    for (const outcome of ['sent', 'failed']) notices.inc({kind, outcome}, 0)
  return {
    notice_sent: ({kind}) => notices.inc({kind, outcome: 'sent'}),
    notice_failed: ({kind}) => notices.inc({kind, outcome: 'failed'}),
  }
}

function launchHandlers(registry: Registry): Handlers {
  const launches = new Counter({
    name: 'belfry_launches_total',
    help:
      'Decisions that this server made as leader, with the reason code of those that did not ' +
      'launch; other is one of a later release. Not the number of planned times: times skipped ' +
      'or missed together count as one, and times passed over by a change of the definition do ' +
      'not count',
    labelNames: ['decision', 'cause', 'reason'],
    registers: [registry],
  })
  for (const cause of LAUNCH_CAUSES) launches.inc({decision: 'launched', cause, reason: ''}, 0)
  for (const [reason, {decides}] of REASON_ROWS)
    for (const cause of decides?.causes ?? [])
      launches.inc({decision: decides!.decision, cause, reason}, 0)
  const lag = new Histogram({
    name: 'belfry_start_lag_seconds',
    help:
      'From the planned time to the commit of its launch, for scheduled launches. The command ' +
      'starts after that',
    buckets: LAG_BUCKETS,
    registers: [registry],
  })
  const behind = new Counter({
    name: 'belfry_launches_behind_total',
    help:
      'Decisions that skipped planned times of a job because 100 of its launches wait for a ' +
      'slot: its nodes start them too slowly',
    registers: [registry],
  })
  const pass = new Histogram({
    name: 'belfry_launch_pass_seconds',
    help: 'Duration of a pass of the launch loop that found something due',
    buckets: PASS_BUCKETS,
    registers: [registry],
  })
  return {
    launch_decided: (data) => {
      // A pending launch is counted when it is decided, so it does not count twice.
      if (data.decision === 'pending') return
      // A row counts once: a growing one is emitted again with its total `count`. A row of another release
      // may have another code.
      const reason = data.reason === '' ? '' : (reasonCode(data.reason) ?? 'other')
      launches.inc({decision: data.decision, cause: data.cause, reason})
      if (reason === 'behind') behind.inc()
      if (data.decision === 'launched' && data.cause === 'schedule')
        lag.observe(Math.max(0, data.decided_at - data.scheduled_at) / MS_PER_SECOND)
    },
    launch_pass_done: (data) => {
      if (data.due + data.requests > 0) pass.observe(data.duration_ms / MS_PER_SECOND)
    },
  }
}

/**
 * An end is counted by the server that stored it and by the agent on which it ended: under different names,
 * so that a sum over all processes counts it once.
 */
function executionHandlers(registry: Registry, isServer: boolean): Handlers {
  const prefix = isServer ? 'belfry_' : 'belfry_agent_'
  const started = new Counter({
    name: 'belfry_executions_started_total',
    help: 'Executions started on this node',
    registers: [registry],
  })
  const finished = new Counter({
    name: `${prefix}executions_total`,
    help: isServer
      ? 'Executions that ended, by final status. The server that stored the end counts it'
      : 'On an agent: its executions that ended, by final status. A server counts them too',
    labelNames: ['status'],
    registers: [registry],
  })
  const retried = isServer
    ? new Counter({
        name: 'belfry_executions_retried_total',
        help: 'Ended executions that are followed by another attempt',
        registers: [registry],
      })
    : null
  const duration = new Histogram({
    name: `${prefix}execution_duration_seconds`,
    help: isServer
      ? 'From claim to end, by final status'
      : 'On an agent: from claim to end, by final status',
    labelNames: ['status'],
    buckets: DURATION_BUCKETS,
    registers: [registry],
  })
  for (const status of FINAL_STATUSES) {
    finished.inc({status}, 0)
    duration.zero({status})
  }
  return {
    execution_started: () => started.inc(),
    execution_finished: (data) => {
      finished.inc({status: data.status})
      duration.observe({status: data.status}, data.duration_ms / MS_PER_SECOND)
      if (data.retried === true) retried?.inc()
    },
  }
}

function leaderHandlers(registry: Registry): Handlers {
  const leader = new Gauge({
    name: 'belfry_leader',
    help: '1 while this node is the leader, else 0',
    registers: [registry],
  })
  const term = new Gauge({
    name: 'belfry_term',
    help: 'The newest term in which this node was the leader; 0 if there was none',
    registers: [registry],
  })
  return {
    term_began: (data) => {
      leader.set(1)
      term.set(data.term)
    },
    term_ended: () => leader.set(0),
  }
}

function backupHandlers(registry: Registry): Handlers {
  const backups = new Counter({
    name: 'belfry_backups_total',
    help: 'Scheduled backups by this server: made or failed',
    labelNames: ['result'],
    registers: [registry],
  })
  for (const result of ['made', 'failed']) backups.inc({result}, 0)
  return {
    backup_made: () => backups.inc({result: 'made'}),
    backup_failed: () => backups.inc({result: 'failed'}),
  }
}

function stepHandlers(registry: Registry, steps: readonly Step[]): Handlers {
  const failed = new Counter({
    name: 'belfry_steps_failed_total',
    help: 'Internal steps that failed and will be retried, by step',
    labelNames: ['step'],
    registers: [registry],
  })
  for (const step of steps) failed.inc({step}, 0)
  const clockSteps = new Counter({
    name: 'belfry_clock_steps_total',
    help: 'Jumps of the wall clock relative to the monotonic clock',
    registers: [registry],
  })
  return {
    step_failed: ({step}) => failed.inc({step}),
    clock_stepped: () => clockSteps.inc(),
  }
}

function storeHandlers(registry: Registry): Handlers {
  const seconds = new Histogram({
    name: 'belfry_store_commit_seconds',
    help: 'Duration of a commit of the store',
    buckets: COMMIT_BUCKETS,
    registers: [registry],
  })
  const items = new Histogram({
    name: 'belfry_store_commit_items',
    help: 'Writes that shared one commit',
    buckets: COMMIT_ITEM_BUCKETS,
    registers: [registry],
  })
  return {
    store_committed: (data) => {
      seconds.observe(data.duration_ms / MS_PER_SECOND)
      items.observe(data.items)
    },
  }
}

function registerAgentMetrics(registry: Registry, read: () => AgentState): void {
  const gauge = (name: string, help: string, valueOf: (state: AgentState) => number) =>
    gaugeOf(registry, name, `On an agent: ${help}`, () => valueOf(read()))
  gauge('belfry_agent_connected', '1 while it is connected to a server, else 0', (state) =>
    Number(state.isConnected),
  )
  gauge('belfry_agent_slots', 'its slots', ({slots}) => slots)
  gauge('belfry_agent_slots_used', 'executions running on it', ({running}) => running)
  gauge(
    'belfry_agent_results_waiting',
    'results on its disk that no server has acknowledged',
    ({resultsWaiting}) => resultsWaiting,
  )
}

/** Absent without a certificate: 0 would be an end long ago. */
function certificateGauge(registry: Registry, read: () => number | null): void {
  new Gauge({
    name: 'belfry_certificate_expires_timestamp_seconds',
    help:
      'End of the TLS certificate of this server (--tls-cert), or of the metrics of this agent ' +
      '(--metrics-tls-cert), in seconds since the epoch. Absent without one. Those of the ' +
      'authorities in the same file do not count',
    registers: [registry],
    collect() {
      const expiresAt = read()
      if (expiresAt === null) this.remove()
      else this.set(expiresAt / MS_PER_SECOND)
    },
  })
}

/** A gauge that is read at each scrape. */
function gaugeOf(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read())
    },
  })
}

function countRequests(registry: Registry): (request: AnsweredRequest) => void {
  const requests = new Counter({
    name: 'belfry_http_requests_total',
    help: 'Requests answered, by route pattern, method and status class',
    labelNames: ['route', 'method', 'status'],
    registers: [registry],
  })
  const seconds = new Histogram({
    name: 'belfry_http_request_seconds',
    help: 'Time to answer, by route pattern and method',
    labelNames: ['route', 'method'],
    buckets: HTTP_BUCKETS,
    registers: [registry],
  })
  return ({method, route, status, durationMs}) => {
    const labels = {
      route: route === '' ? 'unmatched' : route,
      // Clients can send any method, but must not create series.
      method: METHODS.has(method) ? method : 'other',
    }
    for (const known of STATUS_CLASSES) requests.inc({...labels, status: known}, 0)
    requests.inc({...labels, status: `${Math.floor(status / 100)}xx`})
    seconds.observe(labels, durationMs / MS_PER_SECOND)
  }
}
