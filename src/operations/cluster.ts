/** Who belongs to the cluster, who leads it, leaving it, and removing who will not come back. */
import {DomainError} from '../core/errors.ts'
import type {MemberRecord, MemberStatus} from '../core/node.ts'
import type {Events} from '../ports/events.ts'
import {encodeMember, type PauseStatusJson, type StatusJson} from '../wire/cluster.ts'
import {formatTime} from '../wire/time.ts'
import type {OperationsDependencies} from './context.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

/** Executions of a removed member ended in one transaction. */
const REMOVE_BATCH_MAX = 256
/** Of members with one name, whose ids a refusal lists. */
const IDS_TOLD_MAX = 10

export function createMembers(dependencies: OperationsDependencies, store: StoreWithDeadlines) {
  const {node} = dependencies

  /** By name. */
  async function members(): Promise<readonly MemberRecord[]> {
    const all = await store.members()
    return all.toSorted((one, other) => (one.name < other.name ? -1 : 1))
  }

  /** Throws `no_leader`. */
  async function leader(): Promise<MemberRecord> {
    const lease = await store.leader()
    const leading = (await members()).find((member) => member.id === lease?.nodeId)
    if (leading === undefined)
      throw new DomainError('no_leader', 'No server leads at the moment; try again shortly.', {
        retryAfterSeconds: 1,
      })
    return leading
  }

  function isLeader(): boolean {
    return dependencies.isLeader()
  }

  /** Begins leaving; answers the members with this node as `leaving` while work runs here, else as `left`. */
  async function leave(): Promise<readonly MemberRecord[]> {
    const all = await members()
    const running = await store.busy({start: 0, end: null, outputBytes: 0})
    const works = running.rows.some((execution) => execution.node === node.name)
    dependencies.leave()
    return all.map((member) =>
      member.id === node.id ? {...member, status: works ? 'leaving' : 'left'} : member,
    )
  }

  /**
   * Removes a member that left or failed, and answers it as it was; what it still ran is lost, what was
   * pending for it is given to others. `wanted` is an id, or a name that only one such member has. A crash on
   * the way leaves a member with less to run. Throws `member_unknown`, `member_present`, `member_ambiguous`.
   */
  async function removeMember(wanted: string): Promise<MemberRecord> {
    const {id} = memberToRemove(await members(), wanted)
    for (;;) {
      const jitter = dependencies.random.fraction()
      const removal = await store.removeMember({nodeId: id, limit: REMOVE_BATCH_MAX, jitter})
      if (removal.kind === 'unknown') throw unknownMember(wanted)
      if (removal.kind === 'present') throw presentMember(removal.member)
      dependencies.announce(removal.finished)
      if (removal.kind === 'ending') continue
      const {member} = removal
      dependencies.events.emit('member_changed', {node: member.name, status: 'removed'})
      return member
    }
  }

  return {members, leader, isLeader, leave, removeMember}
}

/** Of several with that name, the present one is not meant: it cannot be removed. */
function memberToRemove(all: readonly MemberRecord[], wanted: string): MemberRecord {
  const exact = all.find(({id}) => id === wanted)
  if (exact !== undefined) return exact
  const named = all.filter(({name}) => name === wanted)
  const gone = named.filter(({status}) => status === 'left' || status === 'failed')
  if (gone.length > 1) {
    const ids = gone.slice(0, IDS_TOLD_MAX).map(({id}) => id)
    const who = `${gone.length} members called ${wanted} have left or failed`
    const sentence = `${who}; give the id of one, such as ${ids.join(' or ')}.`
    throw new DomainError('member_ambiguous', sentence, {members: {ids}})
  }
  const [member] = [...gone, ...named]
  if (member === undefined) throw unknownMember(wanted)
  return member
}

function unknownMember(wanted: string): DomainError {
  return new DomainError('member_unknown', `There is no member ${JSON.stringify(wanted)}.`)
}

function presentMember({name, status}: MemberRecord): DomainError {
  const sentence = `${name} is ${status}; stop it first: only who has left or failed can be removed.`
  return new DomainError('member_present', sentence, {members: {member_status: status}})
}

/* What this server says about itself and the cluster, as texts: every client reads them as such. */

const STATUSES: readonly MemberStatus[] = ['alive', 'leaving', 'left', 'failed']

export function createStatus(dependencies: OperationsDependencies, store: StoreWithDeadlines) {
  const {node, settings} = dependencies

  async function status(): Promise<StatusJson> {
    const [members, lease, facts, totals, paused] = await Promise.all([
      store.members(),
      store.leader(),
      store.info(),
      store.totals(),
      store.paused(),
    ])
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

/* The switch that stops jobs from being created or changed. Running and scheduling go on. */

export function createPause({events}: {readonly events: Events}, store: StoreWithDeadlines) {
  async function paused(): Promise<PauseStatusJson> {
    return {paused: await store.paused()}
  }

  /** Durable and for the whole cluster; setting what is set already changes nothing. */
  async function setPaused(wanted: boolean): Promise<PauseStatusJson> {
    await store.setPaused(wanted)
    events.emit('submissions_paused', {paused: wanted})
    return {paused: wanted}
  }

  return {paused, setPaused}
}
