/**
 * Metrics of the process: memory, processor time and event loop lag, read at each scrape. Names follow the
 * conventions of Prometheus clients where there are any.
 */
import {readdirSync, readFileSync} from 'node:fs'
import {monitorEventLoopDelay} from 'node:perf_hooks'
import {Counter, Gauge, type Registry} from 'prom-client'

const MS_PER_SECOND = 1000
/** Fine enough to show a stall of 20 ms, coarse enough to be free. */
const RESOLUTION_MS = 10
const NS_PER_MS = 1_000_000
const US_PER_SECOND = 1_000_000

/** Registers the metrics. Returns the function that stops the event loop monitor. */
export function registerProcessMetrics(registry: Registry, version: string): () => void {
  new Gauge({
    name: 'belfry_build_info',
    help: 'Always 1; the labels hold the versions',
    labelNames: ['version', 'node_version'],
    registers: [registry],
  }).set({version, node_version: process.versions.node}, 1)
  new Gauge({
    name: 'process_start_time_seconds',
    help: 'Start of the process, in seconds since the epoch',
    registers: [registry],
  }).set(performance.timeOrigin / MS_PER_SECOND)
  memoryGauges(registry)
  descriptorGauges(registry)
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

/** Linux only, like the names: elsewhere there is no cheap way to count. */
function descriptorGauges(registry: Registry): void {
  const limit = descriptorLimit()
  if (limit === null) return
  new Gauge({
    name: 'process_open_fds',
    help: 'Open file descriptors. Linux only',
    registers: [registry],
    collect() {
      this.set(openDescriptors() ?? limit)
    },
  })
  new Gauge({
    name: 'process_max_fds',
    help: 'Limit of open file descriptors. Linux only',
    registers: [registry],
  }).set(limit)
}

/** `null` = the limit is reached: the folder itself takes one. */
function openDescriptors(): number | null {
  try {
    return readdirSync('/proc/self/fd').length
  } catch {
    return null
  }
}

/** The soft limit; `null` = there is no /proc. */
function descriptorLimit(): number | null {
  try {
    const limit = /^Max open files +(\d+|unlimited)/m.exec(
      readFileSync('/proc/self/limits', 'utf8'),
    )
    return limit === null ? null : limit[1] === 'unlimited' ? Infinity : Number(limit[1])
  } catch {
    return null // not Linux, or /proc is hidden
  }
}

function processorCounter(registry: Registry): void {
  new Counter({
    name: 'process_cpu_seconds_total',
    help: 'CPU time used, user and system',
    registers: [registry],
    collect() {
      const {user, system} = process.cpuUsage()
      this.reset()
      this.inc((user + system) / US_PER_SECOND)
    },
  })
}

/** Node's histogram counts its sampling interval as delay, so the interval is subtracted. */
function watchEventLoop(registry: Registry): () => void {
  const delays = monitorEventLoopDelay({resolution: RESOLUTION_MS})
  delays.enable()
  const lagSeconds = (ns: number) => Math.max(0, ns / NS_PER_MS - RESOLUTION_MS) / MS_PER_SECOND
  new Gauge({
    name: 'belfry_event_loop_lag_seconds',
    help: 'Event loop delay since the previous scrape: p50, p99 and max',
    // The label is not `quantile`, which is reserved for summaries.
    labelNames: ['stat'],
    registers: [registry],
    collect() {
      this.set({stat: 'p50'}, lagSeconds(delays.percentile(50)))
      this.set({stat: 'p99'}, lagSeconds(delays.percentile(99)))
      this.set({stat: 'max'}, lagSeconds(delays.max))
      delays.reset()
    },
  })
  return () => void delays.disable()
}
