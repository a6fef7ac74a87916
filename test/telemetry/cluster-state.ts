/** State of a store at a scrape, for tests of metrics. */
import type {ClusterState} from '../../src/telemetry/cluster-metrics.ts'

export const CLUSTER: ClusterState = {
  jobs: 3,
  running: 2,
  pending: 1,
  undecided: 5,
  disabled: 1,
  outputBytes: 4_096,
  storeBytes: 65_536,
  noticesWaiting: 4,
  incidentsOpen: 6,
  isPaused: false,
  firingPaused: 0,
  backups: {lastAt: 1_795_300_000_000, hasProblem: false},
  members: {alive: 2, leaving: 0, left: 0, failed: 1},
  nodes: [
    {name: 'a', slots: 8, isCordoned: false, running: 2, pending: 1},
    {name: 'b', slots: 8, isCordoned: true, running: 0, pending: 0},
  ],
  nodesOmitted: 0,
  listedJobs: [
    {
      name: 'new',
      createdAt: 1_795_366_000_000,
      lastSuccessAt: null,
      lastDurationMs: null,
      hasSucceeded: null,
    },
    {
      name: 'nightly',
      createdAt: 1_795_000_000_000,
      lastSuccessAt: 1_795_366_790_500,
      lastDurationMs: 1_500,
      hasSucceeded: false,
    },
  ],
  jobsOmitted: 7,
}
