/**
 * What the process itself can say when it is scraped: memory, processor time, and how late its event loop
 * ran. Names follow the usual ones of the Prometheus world where there are any.
 */
import {monitorEventLoopDelay} from 'node:perf_hooks'
import {Counter, Gauge, type Registry} from 'prom-client'

/** Fine enough to see a 20 ms stall, coarse enough to cost nothing. */
const RESOLUTION_MS = 10
const NS_PER_MS = 1_000_000
const MS_PER_SECOND = 1000
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
