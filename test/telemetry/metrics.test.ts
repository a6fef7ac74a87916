import assert from 'node:assert/strict'
import {afterEach, test} from 'node:test'
import {localEvents} from '../../src/telemetry/event-bus.ts'
import {openMetrics, type Metrics} from '../../src/telemetry/metrics.ts'
import {CLUSTER} from './cluster-state.ts'

const clock = {now: () => 0, monotonicMs: () => 0, after: () => ({cancel: () => {}})}
const opened: Metrics[] = []
afterEach(() => opened.splice(0).forEach((metrics) => metrics.stop()))

function open(cluster = () => Promise.resolve(CLUSTER)) {
  const events = localEvents(clock)
  const metrics = openMetrics({
    events,
    version: '1.2.3',
    server: {cluster, agentsConnected: () => 4},
  })
  opened.push(metrics)
  /** The samples of one metric as `labels value` lines. */
  const samples = async (name: string) =>
    (await metrics.text())
      .split('\n')
      .filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
      .map((line) => line.slice(name.length).trim())
  return {events, metrics, samples}
}

const launch = {
  job: 'a',
  group: 1,
  cause: 'schedule',
  decision: 'launched',
  reason: '',
  scheduled_at: 10_000,
  decided_at: 10_040,
  count: 1,
} as const

test('launches are counted by cause and reason; lag is observed for scheduled ones only', async () => {
  const {events, samples} = open()
  const missed = {decision: 'missed', reason: 'max_lateness', decided_at: 99_000} as const
  events.emit('launch_decided', launch)
  events.emit('launch_decided', {...launch, cause: 'manual', decided_at: 99_000})
  events.emit('launch_decided', {...launch, ...missed, count: 60})
  events.emit('launch_decided', {...launch, ...missed, count: 61})
  events.emit('launch_decided', {...launch, decision: 'pending'})
  events.emit('launch_decided', {...launch, decision: 'skipped', reason: 'forbid: 7 is open'})
  events.emit('launch_decided', {...launch, decision: 'skipped', reason: 'of a later release'})
  const counted = (await samples('belfry_launches_total')).filter((line) => !line.endsWith(' 0'))
  assert.deepEqual(counted.toSorted(), [
    '{decision="launched",cause="manual",reason=""} 1',
    '{decision="launched",cause="schedule",reason=""} 1',
    '{decision="missed",cause="schedule",reason="max_lateness"} 2',
    '{decision="skipped",cause="schedule",reason="forbid"} 1',
    '{decision="skipped",cause="schedule",reason="other"} 1',
  ])
  assert.deepEqual(await samples('belfry_start_lag_seconds_count'), ['1'])
  assert.deepEqual(await samples('belfry_start_lag_seconds_sum'), ['0.04'])
})

test('planned times of a job that is behind are counted apart', async () => {
  const {events, samples} = open()
  events.emit('launch_decided', {...launch, decision: 'skipped', reason: 'forbid'})
  events.emit('launch_decided', {...launch, decision: 'skipped', reason: 'behind'})
  assert.deepEqual(await samples('belfry_launches_behind_total'), ['1'])
})

test('executions are counted by status, with duration and retries', async () => {
  const {events, samples} = open()
  const end = {job: 'a', execution: '1-n-1', node: 'n', attempt: 1, duration_ms: 1500}
  events.emit('execution_started', {job: 'a', execution: '1-n-1', node: 'n', attempt: 1})
  events.emit('execution_finished', {...end, status: 'failed', retried: true})
  events.emit('execution_finished', {...end, status: 'succeeded', retried: false})
  assert.deepEqual(await samples('belfry_executions_started_total'), ['1'])
  assert.deepEqual(await samples('belfry_executions_total'), [
    '{status="succeeded"} 1',
    '{status="failed"} 1',
    '{status="timed_out"} 0',
    '{status="cancelled"} 0',
    '{status="lost"} 0',
  ])
  assert.deepEqual(await samples('belfry_executions_retried_total'), ['1'])
  const sums = await samples('belfry_execution_duration_seconds_sum')
  assert.deepEqual(sums.slice(0, 2), ['{status="succeeded"} 1.5', '{status="failed"} 1.5'])
})

test('commits, terms, failed steps and clock steps are counted', async () => {
  const {events, samples} = open()
  events.emit('store_committed', {items: 12, duration_ms: 3})
  events.emit('term_began', {term: 7, node: 'n'})
  assert.deepEqual(await samples('belfry_leader'), ['1'])
  events.emit('term_ended', {term: 7, node: 'n', reason: 'stopping'})
  events.emit('step_failed', {step: 'history_retention', message: 'x'})
  events.emit('clock_stepped', {by_ms: -70_000})
  assert.deepEqual(await samples('belfry_store_commit_items_sum'), ['12'])
  assert.deepEqual(await samples('belfry_store_commit_seconds_sum'), ['0.003'])
  assert.deepEqual(await samples('belfry_leader'), ['0'])
  assert.deepEqual(await samples('belfry_term'), ['7'])
  const failed = await samples('belfry_steps_failed_total')
  assert.ok(failed.includes('{step="history_retention"} 1') && failed.includes('{step="claim"} 0'))
  assert.deepEqual(await samples('belfry_clock_steps_total'), ['1'])
})

test('requests are counted by route pattern; unknown routes and methods add no series', async () => {
  const {metrics, samples} = open()
  metrics.answered({method: 'GET', route: '/v1/jobs/:name', status: 200, durationMs: 4})
  for (let i = 0; i < 100; i++)
    metrics.answered({method: `BREW${i}`, route: '', status: 404, durationMs: 1})
  assert.deepEqual(await samples('belfry_http_requests_total'), [
    '{route="/v1/jobs/:name",method="GET",status="2xx"} 1',
    '{route="/v1/jobs/:name",method="GET",status="4xx"} 0',
    '{route="/v1/jobs/:name",method="GET",status="5xx"} 0',
    '{route="unmatched",method="other",status="2xx"} 0',
    '{route="unmatched",method="other",status="4xx"} 100',
    '{route="unmatched",method="other",status="5xx"} 0',
  ])
})

test('gauges of the store are read at the scrape, and absent while the store is down', async () => {
  let answer = () => Promise.resolve(CLUSTER)
  const {samples} = open(() => answer())
  assert.deepEqual(await samples('belfry_store_up'), ['1'])
  assert.deepEqual(await samples('belfry_executions_running'), ['2'])
  assert.deepEqual(await samples('belfry_executions_waiting'), ['1'])
  assert.deepEqual(await samples('belfry_launches_undecided'), ['5'])
  assert.deepEqual(await samples('belfry_agents_connected'), ['4'])
  assert.deepEqual(await samples('belfry_members'), [
    '{status="alive"} 2',
    '{status="leaving"} 0',
    '{status="left"} 0',
    '{status="failed"} 1',
  ])
  assert.deepEqual(await samples('belfry_node_slots_used'), ['{node="a"} 2', '{node="b"} 0'])
  assert.deepEqual(await samples('belfry_node_cordoned'), ['{node="a"} 0', '{node="b"} 1'])
  answer = () => Promise.resolve({...CLUSTER, nodes: CLUSTER.nodes.slice(1)})
  assert.deepEqual(await samples('belfry_node_slots_used'), ['{node="b"} 0'])
  answer = () => Promise.reject(new Error('disk full'))
  assert.deepEqual(await samples('belfry_store_up'), ['0'])
  assert.deepEqual(await samples('belfry_jobs'), [])
  assert.deepEqual(await samples('belfry_members'), [])
})

test('the end of the certificate is shown in seconds; without a certificate it is absent', async () => {
  let expiresAt: number | null = 1_795_366_000_000
  const metrics = openMetrics({
    events: localEvents(clock),
    version: '1.2.3',
    certificateExpiresAt: () => expiresAt,
  })
  opened.push(metrics)
  const sample = /^belfry_certificate_expires_timestamp_seconds .+$/m
  assert.match((await metrics.text()).match(sample)![0], / 1795366000$/)
  expiresAt = null
  assert.doesNotMatch(await metrics.text(), sample)
})

test('listed jobs have series of their last run, in seconds; what is unknown is absent', async () => {
  const {samples} = open()
  assert.deepEqual(await samples('belfry_job_last_success_timestamp_seconds'), [
    '{job_name="nightly"} 1795366790.5',
  ])
  assert.deepEqual(await samples('belfry_job_created_timestamp_seconds'), [
    '{job_name="new"} 1795366000',
    '{job_name="nightly"} 1795000000',
  ])
  assert.deepEqual(await samples('belfry_job_last_duration_seconds'), ['{job_name="nightly"} 1.5'])
  assert.deepEqual(await samples('belfry_job_last_succeeded'), ['{job_name="nightly"} 0'])
  assert.deepEqual(await samples('belfry_series_omitted'), ['{of="nodes"} 0', '{of="jobs"} 7'])
})

test('process metrics report version, resource usage and event loop lag', async () => {
  const {samples} = open()
  assert.deepEqual(await samples('belfry_build_info'), [
    `{version="1.2.3",node_version="${process.versions.node}"} 1`,
  ])
  const [resident] = await samples('process_resident_memory_bytes')
  assert.ok(Number(resident) > 10_000_000)
  assert.ok(Number((await samples('process_cpu_seconds_total'))[0]) > 0)
  if (process.platform === 'linux') {
    const [open, most] = [await samples('process_open_fds'), await samples('process_max_fds')]
    assert.ok(Number(open[0]) > 2 && Number(open[0]) < Number(most[0]))
  }
  const lag = await samples('belfry_event_loop_lag_seconds')
  assert.deepEqual(
    lag.map((line) => line.split(' ')[0]),
    ['{stat="p50"}', '{stat="p99"}', '{stat="max"}'],
  )
  for (const line of lag) assert.ok(Number(line.split(' ')[1]) >= 0, line)
})

test('no metric but a summary has the label quantile, and no gauge a name of a counter', async () => {
  const {metrics} = open()
  const text = await metrics.text()
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
  assert.ok(types.length > 20)
  for (const [, name = '', type] of types) {
    const samples = text.split('\n').filter((line) => line.startsWith(`${name}{`))
    if (type !== 'summary') assert.ok(!samples.some((line) => line.includes('quantile=')), name)
    assert.equal(name.endsWith('_total'), type === 'counter', name)
  }
})

test('two registries in one process are independent', async () => {
  const one = open()
  const other = open()
  one.events.emit('clock_stepped', {by_ms: 70_000})
  assert.deepEqual(await one.samples('belfry_clock_steps_total'), ['1'])
  assert.deepEqual(await other.samples('belfry_clock_steps_total'), ['0'])
})

test('an agent counts ends under another name than the server that stores them', async () => {
  const events = localEvents(clock)
  const state = {isConnected: true, slots: 8, running: 2, resultsWaiting: 3}
  const metrics = openMetrics({events, version: '1.2.3', agent: () => state})
  opened.push(metrics)
  const end = {job: 'a', execution: '1-n-1', node: 'n', attempt: 1, duration_ms: 1500}
  events.emit('execution_finished', {...end, status: 'failed', retried: true})
  const text = await metrics.text()
  assert.match(text, /^belfry_agent_executions_total\{status="failed"\} 1$/m)
  assert.match(text, /^belfry_agent_results_waiting 3$/m)
  assert.doesNotMatch(text, /^belfry_(executions_total|launches_total|leader|jobs)\b/m)
})
