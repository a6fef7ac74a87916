/** Cluster: members, the leader, leaving, removing members, the status, and the pause switch. */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {ALL_JOBS, type FiringPause} from '../core/firing.ts'
import {backupProblem, type BackupState} from '../core/backup.ts'
import {decideHealth} from '../core/health.ts'
import type {MemberRecord, MemberStatus} from '../core/node.ts'
import type {PausedSinceRestore} from '../ports/job-store.ts'
import type {StoreInfo} from '../ports/store.ts'
import {encodeTags, type PauseStatusJson, type StatusJson} from '../wire/cluster.ts'
import {formatOptionalTime, formatTime} from '../wire/time.ts'
import type {OperationsContext} from './context.ts'
import {ambiguousMember, loadMembers, memberView, type MemberView, unknownMember} from './nodes.ts'

/** Executions of a removed member that end in one transaction. */
const REMOVE_BATCH_MAX = 256

export function createMembers(context: OperationsContext) {
  const {node, store} = context

  const members = () => loadMembers(context)

  /** Throws `no_leader`. */
  async function leader(): Promise<MemberView> {
    const leading = (await members()).find(({isLeader}) => isLeader)
    if (leading === undefined)
      throw new DomainError('no_leader', 'No server leads at the moment. Retry shortly.', {
        retryAfterSeconds: 1,
      })
    return leading
  }

  /**
   * Starts leaving. Returns the members, with this node as `leaving` while executions run on it, otherwise as
   * `left`.
   */
  async function leave(actor: Actor): Promise<readonly MemberView[]> {
    const all = await members()
    const running = await store.busy({start: 0, end: null, outputBytes: 0})
    const isBusy = running.rows.some((execution) => execution.node === node.name)
    const what = {action: 'member.leave', targetType: 'member', target: node.name} as const
    await store.recordAudit([{actor, ...what}])
    context.leave()
    return all.map((member) =>
      member.id === node.id ? {...member, status: isBusy ? 'leaving' : 'left'} : member,
    )
  }

  /**
   * Removes a member that left or failed, and returns its last record. Its running executions become `lost`;
   * its pending ones go to other nodes. `idOrName` is an id, or a name that only one such member has. A crash
   * between two batches leaves a member with fewer executions; a repeated call continues. Throws
   * `member_unknown`, `member_present`, `member_ambiguous`.
   */
  async function removeMember(idOrName: string, actor: Actor): Promise<MemberView> {
    const {id} = memberToRemove(await store.members(), idOrName)
    for (;;) {
      const jitter = context.random.fraction()
      const removal = await store.removeMember({nodeId: id, limit: REMOVE_BATCH_MAX, jitter, actor})
      if (removal.kind === 'unknown') throw unknownMember(idOrName)
      if (removal.kind === 'present') throw presentMember(removal.member)
      context.announce(removal.finished)
      if (removal.kind === 'ending') continue
      const {member} = removal
      context.events.emit('member_changed', {node: member.name, status: 'removed'})
      return memberView(member, undefined, undefined)
    }
  }

  return {members, leader, isLeader: () => context.isLeader(), leave, removeMember}
}

/**
 * Member to remove. A present one cannot be removed, so the removable one of several with one name is
 * meant.
 */
function memberToRemove(all: readonly MemberRecord[], idOrName: string): MemberRecord {
  const exact = all.find(({id}) => id === idOrName)
  if (exact !== undefined) return exact
  const named = all.filter(({name}) => name === idOrName)
  const removable = named.filter(({status}) => status === 'left' || status === 'failed')
  if (removable.length > 1) throw ambiguousMember(idOrName, removable)
  const [member] = [...removable, ...named]
  if (member === undefined) throw unknownMember(idOrName)
  return member
}

function presentMember({name, status}: MemberRecord): DomainError {
  const sentence = `${name} cannot be removed: it is ${status}. Stop it first.`
  return new DomainError('member_present', sentence, {members: {member_status: status}})
}

const STATUSES: readonly MemberStatus[] = ['alive', 'leaving', 'left', 'failed']

/** The status of this server and of the cluster. All values are strings: every client reads them as such. */
export function createStatus(context: OperationsContext) {
  const {node, settings, store} = context

  async function status(): Promise<StatusJson> {
    const askedAt = context.clock.monotonicMs()
    const [members, lease, info, totals, paused, putBack, pauses, zone, backups] =
      await Promise.all([
        store.members(),
        store.leader(),
        store.info(),
        store.totals(),
        store.submissionsPaused(),
        store.pausedSinceRestore(),
        store.firingPauses(),
        store.defaultTimezone(),
        settings.makesBackups ? store.backupState() : null,
      ])
    const storeMs = context.clock.monotonicMs() - askedAt
    const leader = members.find((member) => member.id === lease?.nodeId)
    const firing = firingText(putBack, pauses)
    const {status: health, sentence} = decideHealth({
      members,
      leader: lease === null || leader === undefined ? null : {name: leader.name, term: lease.term},
      firing,
      isPausePlanned: putBack === null && pauses.every(({until}) => until !== null),
      areSubmissionsPaused: paused,
      backupProblem: backups && backupProblem(backups.state, backups.now),
      ...totals,
      storeMs,
    })
    const own = members.find((member) => member.id === node.id)
    const counts = STATUSES.map((name): [string, string] => [
      name,
      String(members.filter((member) => member.status === name).length),
    ])
    const gossip: Record<string, string> = {
      health,
      health_sentence: sentence,
      members: String(members.length),
      ...Object.fromEntries(counts),
      ...nodeTotals(members),
      leader: leader?.name ?? '',
      term: lease === null ? '' : String(lease.term),
      ...storeFields(info),
      store_read_ms: String(Math.round(storeMs)),
      store_warnings: info.warnings.join(' '),
      jobs: String(totals.jobs),
      running: String(totals.running),
      pending: String(totals.pending),
      undecided: String(totals.undecided),
      paused: String(paused),
      firing,
      default_timezone: zone,
      ...backupFields(backups),
    }
    return {
      agent: {
        name: node.name,
        id: node.id,
        version: node.version,
        server: 'true',
        leader: String(context.isLeader()),
        started_at: formatTime(node.startedAt),
        time: formatTime(context.clock.now()),
        token_configured: String(settings.tokenConfigured),
        runs_as_root: String(settings.runsAsRoot),
        executors: context.executors.names().join(','),
        processors: context.processors.names().join(','),
      },
      gossip,
      serf: {...gossip},
      tags: own === undefined ? {...node.tags} : encodeTags(own),
    }
  }

  return {status}
}

function nodeTotals(members: readonly MemberRecord[]) {
  const present = members.filter(({status}) => status === 'alive' || status === 'leaving')
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

/** Pauses that are named in the status. */
const PAUSES_SHOWN = 3

function firingText(putBack: PausedSinceRestore | null, pauses: readonly FiringPause[]): string {
  if (putBack !== null) return `paused (${putBack})`
  if (pauses.length === 0) return 'active'
  const shown = pauses.slice(0, PAUSES_SHOWN).map(({jobs, until}) => {
    return `${jobs === ALL_JOBS ? 'all jobs' : jobs}${until === null ? '' : ` until ${formatTime(until)}`}`
  })
  const others = pauses.length - shown.length
  return `paused (${shown.join(', ')}${others === 0 ? '' : `, and ${others} more`})`
}

/** The pause switch: stops creating and changing jobs, in the whole cluster. Scheduling continues. */
export function createPause({events, store}: OperationsContext) {
  async function paused(): Promise<PauseStatusJson> {
    return {paused: await store.submissionsPaused()}
  }

  /** Durable and idempotent. */
  async function setPaused(value: boolean, actor: Actor): Promise<PauseStatusJson> {
    await store.setPaused(value, actor)
    events.emit('submissions_paused', {paused: value})
    return {paused: value}
  }

  return {paused, setPaused}
}
