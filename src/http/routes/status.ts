/** Route of the status of this server and of the cluster. */
import type {FastifyInstance} from 'fastify'
import type {BackupState} from '../../core/backup.ts'
import {isPresent, type MemberRecord, type MemberStatus} from '../../core/node.ts'
import {formatOptionalTime, formatTime} from '../../lib/rfc3339.ts'
import type {ClusterStatus} from '../../operations/cluster.ts'
import type {Operations} from '../../operations/operations.ts'
import type {StoreInfo} from '../../ports/store.ts'
import {encodeTags} from '../../wire/member.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {Status, type StatusJson} from '../../wire/status.ts'
import {reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'

export function routeStatus(app: FastifyInstance, operations: Operations): void {
  app.get('/', {
    ...describeRoute({
      access: reads('/v1'),
      operationId: 'getStatus',
      isOfContract: true,
      summary: 'Status of this node and of the cluster',
      description:
        'All values are strings. `health` under `gossip` is `healthy`, `degraded` or `down`, as in ' +
        '[`belfry status`](cli.md#health).',
      tag: 'cluster',
      reply: schemaRef(Status),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, encodeStatus(await operations.status())),
  })
}

const STATUSES: readonly MemberStatus[] = ['alive', 'leaving', 'left', 'failed']

/** All values are strings: every client reads them as such. */
function encodeStatus(status: ClusterStatus): StatusJson {
  const {node, health, members, lease, store, totals} = status
  const own = members.find((member) => member.id === node.id)
  const counts = STATUSES.map((name): [string, string] => [
    name,
    String(members.filter((member) => member.status === name).length),
  ])
  const gossip: Record<string, string> = {
    health: health.status,
    health_sentence: health.sentence,
    members: String(members.length),
    ...Object.fromEntries(counts),
    ...nodeTotals(members),
    leader: lease?.leaderName ?? '',
    term: lease === null ? '' : String(lease.term),
    ...storeFields(store),
    store_read_ms: String(Math.round(status.storeMs)),
    store_warnings: store.warnings.join(' '),
    jobs: String(totals.jobs),
    running: String(totals.running),
    pending: String(totals.pending),
    undecided: String(totals.undecided),
    paused: String(status.submissionsPaused),
    firing: status.firing,
    default_timezone: status.defaultTimezone,
    notices_failing: status.notices.failing.join(','),
    notices_dead: String(status.notices.dead),
    ...backupFields(status.backups),
  }
  return {
    agent: {
      name: node.name,
      id: node.id,
      version: node.version,
      server: 'true',
      leader: String(status.isLeader),
      started_at: formatTime(node.startedAt),
      time: formatTime(status.now),
      token_configured: String(status.tokenConfigured),
      runs_as_root: String(status.runsAsRoot),
      executors: status.executors.join(','),
      processors: status.processors.join(','),
    },
    gossip,
    serf: {...gossip},
    tags: own === undefined ? {...node.tags} : encodeTags(own),
  }
}

function nodeTotals(members: readonly MemberRecord[]) {
  const present = members.filter(isPresent)
  const running = present.filter(({runs}) => runs)
  return {
    cordoned: String(present.filter(({cordonedAt}) => cordonedAt !== null).length),
    slots: String(running.reduce((sum, {slots}) => sum + slots, 0)),
  }
}

function storeFields(info: StoreInfo) {
  const durability = Object.entries(info.durability)
  return {
    store: info.engine,
    store_version: info.engineVersion,
    schema_version: String(info.schemaVersion),
    cluster_id: info.clusterId,
    ...Object.fromEntries(durability.map(([key, value]) => [`store_${key}`, value])),
  }
}

/** `null`: this server schedules no backups. */
function backupFields(found: {readonly state: BackupState | null} | null) {
  return {
    backups: found === null ? 'off' : 'on',
    last_backup: formatOptionalTime(found?.state?.lastAt ?? null) ?? '',
    last_backup_file: found?.state?.file ?? '',
  }
}
