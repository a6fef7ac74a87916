/** Cluster of three servers and two agents for all tests of a process, and helpers they share. */
import assert from 'node:assert/strict'
import {after, before} from 'node:test'
import {isOver, type Answer, type Owner, type ServerProcess} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {ClusterProcess, type ClusterOptions} from '../../tools/faults/cluster-process.ts'

export const SERVERS = ['north', 'east', 'west'] as const
/** Flags of each agent; keys: names of agents. */
const AGENTS = {
  press: ['--tag', 'room=printing', '--tag', 'host=printer:9100'],
  oven: ['--tag', 'room=kitchen'],
}
export const NODES = [...SERVERS, ...Object.keys(AGENTS)]

/** Tests count launches. */
export const KEEPING_LAUNCHES: ClusterOptions = {
  flags: ['--keep-executions', '1000', '--keep-launches', '1000'],
}

const shared = new Map<ClusterOptions, () => ClusterProcess>()

/** The cluster with these options, started before the first test; call the returned function inside tests. */
export function sharedCluster(options: ClusterOptions): () => ClusterProcess {
  const known = shared.get(options) ?? clusterOf(options)
  shared.set(options, known)
  return known
}

function clusterOf(options: ClusterOptions): () => ClusterProcess {
  let cluster: ClusterProcess | null = null
  const cleanups: (() => unknown)[] = []
  const owner: Owner = {after: (cleanup) => void cleanups.push(cleanup)}
  before(async () => {
    const started = await ClusterProcess.start(owner, {servers: SERVERS, ...options})
    const agents = Object.entries(AGENTS)
    await Promise.all(agents.map(([name, flags]) => started.startAgent(name, {flags})))
    cluster = started
  })
  after(async () => {
    for (const cleanup of cleanups) await cleanup()
  })
  return () => {
    if (cluster === null) throw new Error('the cluster has not started yet')
    return cluster
  }
}

/** Shell job without a schedule; `more` replaces fields. */
export function byHand(
  name: string,
  command = 'true',
  more: Readonly<Record<string, unknown>> = {},
) {
  const executor_config = {shell: 'true', command}
  return {name, schedule: '@manually', executor: 'shell', executor_config, ...more}
}

/** The three servers, rotated by `turn`. */
export function turns(cluster: ClusterProcess, turn: number) {
  const servers = SERVERS.map((name) => cluster.server(name))
  const at = (offset: number) => servers[(turn + offset) % servers.length]!
  return {first: at(0), others: [at(1), at(2)] as const}
}

/** Replies of all three servers to a read, in the order of `SERVERS`. */
export function askAll(cluster: ClusterProcess, path: string): Promise<Answer[]> {
  return Promise.all(SERVERS.map((name) => cluster.server(name).get(path)))
}

/** Asserts that all three servers reply with the same bytes; returns the JSON. */
export async function sameOnAll(cluster: ClusterProcess, path: string): Promise<Answer['json']> {
  const [one, ...others] = await askAll(cluster, path)
  for (const other of others) assert.equal(other.text, one!.text, path)
  return one!.json
}

/** Waits until a launch is decided and has no pending or running execution. */
export function settled(
  server: ServerProcess,
  job: string,
  group: number,
  withinMs?: number,
): Promise<Answer['json']> {
  return until(
    `launch ${group} of ${job} is over`,
    async () => {
      const {json} = await server.get(`/jobs/${job}/launches/${group}`)
      return json.decision !== 'pending' && json.executions.every(isOver) && json
    },
    withinMs,
  )
}

/** Names of the nodes on which a launch ran, sorted. */
export function nodesOf(launch: Answer['json']): string[] {
  return launch.executions.map(({node_name}: Answer['json']) => node_name).toSorted()
}
