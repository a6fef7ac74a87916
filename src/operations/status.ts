/** What this server says about itself and the cluster, as texts: every client reads them as such. */
import type {MemberStatus} from '../core/node.ts'
import type {StatusJson} from '../wire/cluster.ts'
import {encodeMember} from '../wire/member.ts'
import {formatTime} from '../wire/time.ts'
import type {OperationsDependencies} from './context.ts'
import type {PatientStore} from './store-deadlines.ts'

const STATUSES: readonly MemberStatus[] = ['alive', 'leaving', 'left', 'failed']

export function createStatus(dependencies: OperationsDependencies, store: PatientStore) {
  const {node, settings} = dependencies

  async function status(): Promise<StatusJson> {
    const [members, lease, facts, totals, paused] = await store.read((data) =>
      Promise.all([data.members(), data.leader(), data.facts(), data.totals(), data.paused()]),
    )
    const leader = members.find((member) => member.id === lease?.nodeId)
    const own = members.find((member) => member.id === node.id)
    const counts = STATUSES.map((name): [string, string] => [
      name,
      String(members.filter((member) => member.status === name).length),
    ])
    const gossip: Record<string, string> = {
      members: String(members.length),
      ...Object.fromEntries(counts),
      leader: leader?.name ?? '',
      term: lease === null ? '' : String(lease.term),
      store: facts.engine,
      store_version: facts.engineVersion,
      schema_version: String(facts.schemaVersion),
      cluster_id: facts.clusterId,
      ...Object.fromEntries(
        Object.entries(facts.durability).map(([key, value]) => [`store_${key}`, value]),
      ),
      store_warnings: facts.warnings.join(' '),
      jobs: String(totals.jobs),
      running: String(totals.running),
      pending: String(totals.pending),
      undecided: String(totals.undecided),
      paused: String(paused),
      default_timezone: settings.defaultTimezone(),
    }
    return {
      agent: {
        name: node.name,
        id: node.id,
        version: node.version,
        server: 'true',
        leader: String(dependencies.isLeader()),
        started_at: formatTime(node.startedAt),
        time: formatTime(dependencies.clock.now()),
        token_configured: String(settings.tokenConfigured),
        runs_as_root: String(settings.runsAsRoot),
        executors: dependencies.executors.names().join(','),
        processors: dependencies.processors.names().join(','),
      },
      gossip,
      serf: {...gossip},
      tags: own === undefined ? {...node.tags} : encodeMember(own).Tags,
    }
  }

  return {status}
}
