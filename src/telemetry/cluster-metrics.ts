/**
 * Gauges of the cluster that a server reads from the store at each scrape. Every server exports the same
 * values, so that a scrape of any of them is enough; queries take the maximum over the servers. The numbers
 * of nodes and of jobs with series are limited.
 */
import {Gauge, type Registry} from 'prom-client'
import type {JobUsage, Totals, Usage} from '../ports/history-store.ts'

const MS_PER_SECOND = 1000
/** Begins the help of each of these metrics: they have the same value on every server. */
const OF_CLUSTER = 'Of the cluster: '

/** State of the store at a scrape. Lists are complete but for those counted in `…Omitted`. */
export interface ClusterState extends Omit<Totals, 'lateMs' | 'waitingMs'>, Usage {
  readonly isPaused: boolean
  /** `null` = this server makes no scheduled backups. */
  readonly backups: {readonly lastAt: number | null; readonly hasProblem: boolean} | null
}

type Update = (state: ClusterState | null) => void

/** Registers the gauges. Returns the function that updates them. */
export function registerClusterMetrics(
  registry: Registry,
  read: () => Promise<ClusterState>,
): () => Promise<void> {
  const up = new Gauge({
    name: 'belfry_store_up',
    help: '1 if the store answered this scrape, else 0',
    registers: [registry],
  })
  const updates = [
    ...totals(registry),
    ...loads(registry),
    ...lastRuns(registry),
    ...backups(registry),
    series(registry, 'belfry_series_omitted', OMITTED_HELP, 'of', (state) => [
      ['nodes', state.nodesOmitted],
      ['jobs', state.jobsOmitted],
    ]),
  ]
  return async () => {
    const state = await read().catch(() => null)
    up.set(state === null ? 0 : 1)
    for (const update of updates) update(state)
  }
}

const OMITTED_HELP = 'nodes and listed jobs beyond the limit, which have no series of their own'

function totals(registry: Registry): Update[] {
  const gauge = (name: string, help: string, valueOf: (state: ClusterState) => number) =>
    total(registry, name, help, valueOf)
  return [
    gauge('belfry_jobs', 'jobs stored', ({jobs}) => jobs),
    gauge('belfry_jobs_disabled', 'stored jobs that are disabled', ({disabled}) => disabled),
    gauge('belfry_executions_running', 'executions that run', ({running}) => running),
    gauge(
      'belfry_executions_waiting',
      'executions that wait for a slot or a backoff',
      ({pending}) => pending,
    ),
    gauge(
      'belfry_launches_undecided',
      'requests and planned times not decided yet',
      ({undecided}) => undecided,
    ),
    gauge('belfry_submissions_paused', '1 while submissions are paused, else 0', ({isPaused}) =>
      Number(isPaused),
    ),
    gauge(
      'belfry_firing_paused',
      '1 while firing of some or all jobs is paused, else 0',
      ({firingPaused}) => firingPaused,
    ),
    gauge(
      'belfry_notices_waiting',
      'messages of notices that are due and not delivered yet',
      ({noticesWaiting}) => noticesWaiting,
    ),
    gauge('belfry_incidents_open', 'incidents of notices that are open', ({incidentsOpen}) => {
      return incidentsOpen
    }),
    gauge(
      'belfry_store_size_bytes',
      'size of the database, without its write-ahead log',
      ({storeBytes}) => storeBytes,
    ),
    gauge(
      'belfry_output_size_bytes',
      'stored output of all jobs, which --keep-output-bytes limits',
      ({outputBytes}) => outputBytes,
    ),
  ]
}

/** Members, and the load of those that run jobs. */
function loads(registry: Registry): Update[] {
  const ofNodes = (
    name: string,
    help: string,
    valueOf: (node: ClusterState['nodes'][number]) => number,
  ) =>
    series(registry, name, help, 'node', ({nodes}) =>
      nodes.map((node) => [node.name, valueOf(node)]),
    )
  return [
    series(registry, 'belfry_members', 'members by status', 'status', ({members}) =>
      Object.entries(members),
    ),
    ofNodes(
      'belfry_node_slots',
      'slots of each node that runs jobs, and is alive or leaving',
      ({slots}) => slots,
    ),
    ofNodes(
      'belfry_node_slots_used',
      'executions running on each such node',
      ({running}) => running,
    ),
    ofNodes(
      'belfry_node_cordoned',
      '1 for each such node that is cordoned and takes no new work, else 0',
      ({isCordoned}) => Number(isCordoned),
    ),
    ofNodes(
      'belfry_node_queue',
      'executions of each such node that wait for a slot or a backoff',
      ({pending}) => pending,
    ),
  ]
}

/** Absent on a server without `--backup-dir`, and the first while there is no backup. */
function backups(registry: Registry): Update[] {
  const gauge = (
    name: string,
    help: string,
    valueOf: (state: NonNullable<ClusterState['backups']>) => number | null,
  ): Update => {
    const own = new Gauge({name, help: `${OF_CLUSTER}${help}`, registers: [registry]})
    return (state) => {
      const value = state === null || state.backups === null ? null : valueOf(state.backups)
      if (value === null) own.remove()
      else own.set(value)
    }
  }
  return [
    gauge(
      'belfry_backup_last_success_timestamp_seconds',
      'start of the newest good scheduled backup. Absent without one, and on servers without ' +
        '--backup-dir',
      ({lastAt}) => (lastAt === null ? null : lastAt / MS_PER_SECOND),
    ),
    gauge(
      'belfry_backup_problem',
      '1 if the last scheduled backup failed, or is an hour older than its schedule requires, ' +
        'else 0. Absent on servers without --backup-dir',
      ({hasProblem}) => Number(hasProblem),
    ),
  ]
}

/** Last runs of enabled jobs that match `--metrics-jobs`. The label is not `job`: Prometheus sets that. */
function lastRuns(registry: Registry): Update[] {
  const ofJobs = (name: string, help: string, valueOf: (job: JobUsage) => number | null) =>
    series(registry, name, help, 'job_name', ({listedJobs}) =>
      listedJobs.flatMap((job) => {
        const value = valueOf(job)
        return value === null ? [] : [[job.name, value] as const]
      }),
    )
  const seconds = (ms: number | null) => (ms === null ? null : ms / MS_PER_SECOND)
  return [
    ofJobs(
      'belfry_job_created_timestamp_seconds',
      'creation of a listed job, in seconds since the epoch',
      ({createdAt}) => seconds(createdAt),
    ),
    ofJobs(
      'belfry_job_last_success_timestamp_seconds',
      'end of the last successful execution of a listed job, in seconds since the epoch',
      ({lastSuccessAt}) => seconds(lastSuccessAt),
    ),
    ofJobs(
      'belfry_job_last_duration_seconds',
      'from the first start to the last end of the last launch of a listed job that ended',
      ({lastDurationMs}) => seconds(lastDurationMs),
    ),
    ofJobs(
      'belfry_job_last_succeeded',
      '1 if the last launch of a listed job that ended succeeded, else 0',
      ({hasSucceeded}) => (hasSucceeded === null ? null : Number(hasSucceeded)),
    ),
  ]
}

/** A gauge without labels. While the store is down it is absent, which can trigger an alert: 0 would not. */
function total(
  registry: Registry,
  name: string,
  help: string,
  valueOf: (state: ClusterState) => number,
): Update {
  const gauge = new Gauge({name, help: `${OF_CLUSTER}${help}`, registers: [registry]})
  return (state) => {
    if (state === null) gauge.remove()
    else gauge.set(valueOf(state))
  }
}

/** A gauge with one label. */
function series(
  registry: Registry,
  name: string,
  help: string,
  label: string,
  valuesOf: (state: ClusterState) => readonly (readonly [string, number])[],
): Update {
  const gauge = new Gauge({
    name,
    help: `${OF_CLUSTER}${help}`,
    labelNames: [label],
    registers: [registry],
  })
  return (state) => {
    gauge.reset()
    if (state === null) return
    for (const [value, number] of valuesOf(state)) gauge.set({[label]: value}, number)
  }
}
