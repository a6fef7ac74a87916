/**
 * The figures for Prometheus. A listener over the catalogue of events, plus what is read when scraped. Labels
 * only ever take values from fixed sets (decisions, statuses, routes of the table): never a job's name, so
 * that a hundred thousand jobs do not make a hundred thousand series. Every metric stands in
 * docs/reference/metrics.md.
 */
import {monitorEventLoopDelay} from 'node:perf_hooks'
import {Counter, Gauge, Histogram, Registry} from 'prom-client'
import type {BelfryEvent, EventPayloads, Events} from '../ports/events.ts'

const MS_PER_SECOND = 1000

/** From a launch that is on time to one that waited for a node for minutes. */
const LAG_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
/** From `true` to a nightly export. */
const DURATION_BUCKETS = [0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400]
/** A commit is an fsync: a fraction of a millisecond on flash, tens on a busy disk. */
const COMMIT_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5]
const COMMIT_ITEM_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 1000]
const PASS_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5]
const HTTP_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5]

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** What the store can say cheaply when it is asked. */
export interface StoreTotals {
  readonly jobs: number
  readonly running: number
  readonly pending: number
  readonly undecided: number
}

export interface MetricsOptions {
  readonly events: Events
  /** Asked at every scrape; when it rejects, `belfry_store_up` is 0 and the gauges it feeds are absent. */
  readonly totals: () => Promise<StoreTotals>
  readonly version: string
}

/** One answered request. `route` is the pattern from the route table, `''` when none matched. */
export interface AnsweredRequest {
  readonly method: string
  readonly route: string
  readonly status: number
  readonly durationMs: number
}

export interface Metrics {
  readonly contentType: string
  /** The text Prometheus reads. Never rejects because the store is away. */
  text(): Promise<string>
  /** Names of all metrics, for the test of the documentation. */
  names(): readonly string[]
  answered(request: AnsweredRequest): void
  stop(): void
}

export function openMetrics(options: MetricsOptions): Metrics {
  const registry = new Registry()
  const hear = countEvents(registry)
  const stopListening = options.events.listen(hear)
  const stopWatching = watchProcess(registry, options.version)
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
      stopListening()
      stopWatching()
    },
  }
}

type Hearers = {
  readonly [Name in keyof EventPayloads]?: (data: EventPayloads[Name]) => void
}

function countEvents(registry: Registry): (event: BelfryEvent) => void {
  const hearers: Hearers = {
    ...launchHearers(registry),
    ...executionHearers(registry),
    ...leaderHearers(registry),
    ...storeHearers(registry),
  }
  return (event) => {
    const heard = hearers[event.name] as ((data: BelfryEvent['data']) => void) | undefined
    heard?.(event.data)
  }
}

function launchHearers(registry: Registry): Hearers {
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
  const pass = new Histogram({
    name: 'belfry_launch_pass_seconds',
    help: 'Duration of one pass of the launch loop that found something due',
    buckets: PASS_BUCKETS,
    registers: [registry],
  })
  return {
    launch_decided: (data) => {
      // A row that still waits is counted when it is decided, else it would count twice.
      if (data.decision === 'pending') return
      // Not by `count`: a row that grows is told again with all it stands for.
      launches.inc({decision: data.decision, cause: data.cause})
      if (data.decision === 'launched' && data.cause === 'schedule')
        lag.observe(Math.max(0, data.decided_at - data.scheduled_at) / MS_PER_SECOND)
    },
    launch_pass_done: (data) => {
      if (data.due + data.requests > 0) pass.observe(data.duration_ms / MS_PER_SECOND)
    },
  }
}

function executionHearers(registry: Registry): Hearers {
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

function leaderHearers(registry: Registry): Hearers {
  const leader = new Gauge({
    name: 'belfry_leader',
    help: '1 while this node leads, else 0',
    registers: [registry],
  })
  const term = new Gauge({
    name: 'belfry_term',
    help: 'The newest term this node led; 0 when it never led',
    registers: [registry],
  })
  const steps = new Counter({
    name: 'belfry_steps_failed_total',
    help: 'Steps of the flow that failed and will be tried again, by step',
    labelNames: ['step'],
    registers: [registry],
  })
  const clockSteps = new Counter({
    name: 'belfry_clock_steps_total',
    help: 'Jumps of the wall clock against the monotonic clock',
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

function storeHearers(registry: Registry): Hearers {
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

/** Gauges whose truth is in the store. Answers the function that brings them up to date. */
function storeGauges(registry: Registry, totals: () => Promise<StoreTotals>): () => Promise<void> {
  const gauge = (name: string, help: string) => new Gauge({name, help, registers: [registry]})
  const up = gauge('belfry_store_up', '1 when the store answered this scrape, else 0')
  const gauges: Readonly<Record<keyof StoreTotals, Gauge>> = {
    jobs: gauge('belfry_jobs', 'Jobs stored'),
    running: gauge('belfry_executions_running', 'Executions running in the whole cluster'),
    pending: gauge('belfry_executions_waiting', 'Executions that wait for a slot or a backoff'),
    undecided: gauge('belfry_launches_undecided', 'Requests and planned times not decided yet'),
  }
  return async () => {
    const read = await totals().catch(() => null)
    up.set(read === null ? 0 : 1)
    for (const key of Object.keys(gauges) as (keyof StoreTotals)[]) {
      // Nothing is better than yesterday's figure: an absent series can be alerted on.
      if (read === null) gauges[key].remove()
      else gauges[key].set(read[key])
    }
  }
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
      // A client may invent methods; it must not invent series.
      method: METHODS.has(method) ? method : 'other',
    }
    requests.inc({...labels, status: `${Math.floor(status / 100)}xx`})
    seconds.observe(labels, durationMs / MS_PER_SECOND)
  }
}

/*
 * What the process itself can say when it is scraped: memory, processor time, and how late its event loop
 * ran. Names follow the usual ones of the Prometheus world where there are any.
 */

/** Fine enough to see a 20 ms stall, coarse enough to cost nothing. */
const RESOLUTION_MS = 10
const NS_PER_MS = 1_000_000
const US_PER_SECOND = 1_000_000

/**
 * Registers the figures; they are read at each scrape. Returns the function that stops watching the event
 * loop.
 */
export function watchProcess(registry: Registry, version: string): () => void {
  new Gauge({
    name: 'belfry_build_info',
    help: 'Always 1; the labels say what runs',
    labelNames: ['version', 'node_version'],
    registers: [registry],
  }).set({version, node_version: process.versions.node}, 1)
  new Gauge({
    name: 'process_start_time_seconds',
    help: 'Start of the process, in seconds since the epoch',
    registers: [registry],
  }).set(performance.timeOrigin / MS_PER_SECOND)
  memoryGauges(registry)
  processorCounter(registry)
  return watchEventLoop(registry)
}

function memoryGauges(registry: Registry): void {
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(read())
      },
    })
  gauge('process_resident_memory_bytes', 'Resident memory', () => process.memoryUsage.rss())
  gauge('nodejs_heap_size_used_bytes', 'Heap in use', () => process.memoryUsage().heapUsed)
  gauge(
    'nodejs_external_memory_bytes',
    'Memory of buffers outside the heap',
    () => process.memoryUsage().external,
  )
}

function processorCounter(registry: Registry): void {
  new Counter({
    name: 'process_cpu_seconds_total',
    help: 'Processor time used, user and system',
    registers: [registry],
    collect() {
      const {user, system} = process.cpuUsage()
      this.reset()
      this.inc((user + system) / US_PER_SECOND)
    },
  })
}

/** The histogram of the platform counts its own sampling interval as delay; what is reported is beyond it. */
function watchEventLoop(registry: Registry): () => void {
  const delays = monitorEventLoopDelay({resolution: RESOLUTION_MS})
  delays.enable()
  const beyond = (ns: number) => Math.max(0, ns / NS_PER_MS - RESOLUTION_MS) / MS_PER_SECOND
  new Gauge({
    name: 'belfry_event_loop_lag_seconds',
    help: 'How late the event loop ran since the scrape before, by quantile; 1 is the maximum',
    labelNames: ['quantile'],
    registers: [registry],
    collect() {
      this.set({quantile: '0.5'}, beyond(delays.percentile(50)))
      this.set({quantile: '0.99'}, beyond(delays.percentile(99)))
      this.set({quantile: '1'}, beyond(delays.max))
      delays.reset()
    },
  })
  return () => void delays.disable()
}
