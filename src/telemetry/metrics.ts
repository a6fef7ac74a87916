/**
 * Metrics for Prometheus, from the catalogue of events and from gauges read at each scrape. Label values come
 * from fixed sets (decisions, statuses, routes) and never from job names: a hundred thousand jobs must not
 * create a hundred thousand series. docs/reference/metrics.md lists every metric.
 */
import {Counter, Gauge, Histogram, Registry} from 'prom-client'
import type {BelfryEvent, EventPayloads, Events} from '../ports/events.ts'
import {registerProcessMetrics} from './process-metrics.ts'

const MS_PER_SECOND = 1000

/** From an on-time launch to one that waited minutes for a node. */
const LAG_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
/** From `true` to a nightly export. */
const DURATION_BUCKETS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400]
/** A commit is an fsync: a fraction of a millisecond on flash, tens of milliseconds on a busy disk. */
const COMMIT_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5]
const COMMIT_ITEM_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1000]
const PASS_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5]
const HTTP_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5]

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** Totals that the store can read cheaply. */
export interface StoreTotals {
  readonly jobs: number
  readonly running: number
  readonly pending: number
  readonly undecided: number
  /** 1 if planned times of some jobs do not run, else 0. */
  readonly firingPaused: number
}

export interface MetricsOptions {
  readonly events: Events
  /** Called at every scrape. If it rejects, `belfry_store_up` is 0 and the gauges of totals are absent. */
  readonly totals: () => Promise<StoreTotals>
  readonly version: string
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
  const unsubscribe = options.events.listen(countEvents(registry))
  const stopProcessMetrics = registerProcessMetrics(registry, options.version)
  const readTotals = storeGauges(registry, options.totals)
  const answered = countRequests(registry)
  return {
    contentType: registry.contentType,
    text: async () => {
      await readTotals()
      return registry.metrics()
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

function countEvents(registry: Registry): (event: BelfryEvent) => void {
  const handlers: Handlers = {
    ...launchHandlers(registry),
    ...executionHandlers(registry),
    ...leaderHandlers(registry),
    ...storeHandlers(registry),
  }
  return (event) => {
    const handler = handlers[event.name] as ((data: BelfryEvent['data']) => void) | undefined
    handler?.(event.data)
  }
}

function launchHandlers(registry: Registry): Handlers {
  const launches = new Counter({
    name: 'belfry_launches_total',
    help: 'Decisions by decision and cause; missed times that are decided together count as one',
    labelNames: ['decision', 'cause'],
    registers: [registry],
  })
  const lag = new Histogram({
    name: 'belfry_start_lag_seconds',
    help: 'From the planned time to the commit of its launch, for launches by schedule',
    buckets: LAG_BUCKETS,
    registers: [registry],
  })
  const behind = new Counter({
    name: 'belfry_launches_behind_total',
    help: 'Decisions that skipped planned times because too many earlier launches wait for a slot',
    registers: [registry],
  })
  const pass = new Histogram({
    name: 'belfry_launch_pass_seconds',
    help: 'Duration of launch passes that found due work',
    buckets: PASS_BUCKETS,
    registers: [registry],
  })
  return {
    launch_decided: (data) => {
      // A pending launch is counted when it is decided, so it does not count twice.
      if (data.decision === 'pending') return
      // Not by `count`: a growing row is emitted again with its total count.
      launches.inc({decision: data.decision, cause: data.cause})
      if (data.reason === 'behind') behind.inc()
      if (data.decision === 'launched' && data.cause === 'schedule')
        lag.observe(Math.max(0, data.decided_at - data.scheduled_at) / MS_PER_SECOND)
    },
    launch_pass_done: (data) => {
      if (data.due + data.requests > 0) pass.observe(data.duration_ms / MS_PER_SECOND)
    },
  }
}

function executionHandlers(registry: Registry): Handlers {
  const started = new Counter({
    name: 'belfry_executions_started_total',
    help: 'Executions started on this node',
    registers: [registry],
  })
  const finished = new Counter({
    name: 'belfry_executions_total',
    help: 'Executions that ended, by final status',
    labelNames: ['status'],
    registers: [registry],
  })
  const retried = new Counter({
    name: 'belfry_executions_retried_total',
    help: 'Ended executions that are followed by another attempt',
    registers: [registry],
  })
  const duration = new Histogram({
    name: 'belfry_execution_duration_seconds',
    help: 'From claim to end, by final status',
    labelNames: ['status'],
    buckets: DURATION_BUCKETS,
    registers: [registry],
  })
  return {
    execution_started: () => started.inc(),
    execution_finished: (data) => {
      finished.inc({status: data.status})
      duration.observe({status: data.status}, data.duration_ms / MS_PER_SECOND)
      if (data.retried) retried.inc()
    },
  }
}

function leaderHandlers(registry: Registry): Handlers {
  const leader = new Gauge({
    name: 'belfry_leader',
    help: '1 while this node leads, else 0',
    registers: [registry],
  })
  const term = new Gauge({
    name: 'belfry_term',
    help: 'The newest term that this node led; 0 if it never led',
    registers: [registry],
  })
  const steps = new Counter({
    name: 'belfry_steps_failed_total',
    help: 'Steps of the flow that failed and will be retried, by step',
    labelNames: ['step'],
    registers: [registry],
  })
  const clockSteps = new Counter({
    name: 'belfry_clock_steps_total',
    help: 'Steps of the wall clock against the monotonic clock',
    registers: [registry],
  })
  return {
    term_began: (data) => {
      leader.set(1)
      term.set(data.term)
    },
    term_ended: () => leader.set(0),
    step_failed: (data) => steps.inc({step: data.step}),
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

/** Gauges read from the store. Returns the function that updates them. */
function storeGauges(registry: Registry, totals: () => Promise<StoreTotals>): () => Promise<void> {
  const gauge = (name: string, help: string) => new Gauge({name, help, registers: [registry]})
  const up = gauge('belfry_store_up', '1 if the store replied to this scrape, else 0')
  const gauges: Readonly<Record<keyof StoreTotals, Gauge>> = {
    jobs: gauge('belfry_jobs', 'Jobs stored'),
    running: gauge('belfry_executions_running', 'Executions running in the whole cluster'),
    pending: gauge('belfry_executions_waiting', 'Executions that wait for a slot or a backoff'),
    undecided: gauge('belfry_launches_undecided', 'Requests and planned times without a decision'),
    firingPaused: gauge(
      'belfry_firing_paused',
      '1 if firing of some or all jobs is paused, else 0',
    ),
  }
  return async () => {
    const read = await totals().catch(() => null)
    up.set(read === null ? 0 : 1)
    for (const key of Object.keys(gauges) as (keyof StoreTotals)[]) {
      // An absent series is better than a stale value: it can trigger an alert.
      if (read === null) gauges[key].remove()
      else gauges[key].set(read[key])
    }
  }
}

function countRequests(registry: Registry): (request: AnsweredRequest) => void {
  const requests = new Counter({
    name: 'belfry_http_requests_total',
    help: 'HTTP requests, by route pattern, method and status class',
    labelNames: ['route', 'method', 'status'],
    registers: [registry],
  })
  const seconds = new Histogram({
    name: 'belfry_http_request_seconds',
    help: 'Duration of HTTP requests, by route pattern and method',
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
    requests.inc({...labels, status: `${Math.floor(status / 100)}xx`})
    seconds.observe(labels, durationMs / MS_PER_SECOND)
  }
}
