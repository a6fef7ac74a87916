/** Cluster: members, the leader, leaving, removing members, the status, and the pause switch. */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {ALL_JOBS, type FiringPause} from '../core/firing.ts'
import {backupProblem, type BackupState} from '../core/backup.ts'
import {decideHealth, type Health, type NoticesState} from '../core/health.ts'
import type {MemberRecord, MemberView} from '../core/node.ts'
import type {Totals} from '../ports/history-store.ts'
import type {PausedSinceRestore} from '../ports/job-store.ts'
import type {StoreInfo} from '../ports/store.ts'
import {formatTime} from '../lib/rfc3339.ts'
import type {OperationsContext} from './context.ts'
import {ambiguousMember, loadMembers, memberView, unknownMember} from './nodes.ts'

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

/** The state of this server and of the cluster. */
export interface ClusterStatus {
  readonly now: number
  /** Node of this server, with its tags. */
  readonly node: OperationsContext['node']
  readonly isLeader: boolean
  readonly tokenConfigured: boolean
  readonly runsAsRoot: boolean
  readonly executors: readonly string[]
  readonly processors: readonly string[]
  readonly health: Health
  readonly members: readonly MemberRecord[]
  /** `null` = no lease is held. */
  readonly lease: {readonly leaderName: string; readonly term: number} | null
  readonly store: StoreInfo
  /** Time that the store took to answer. */
  readonly storeMs: number
  readonly totals: Totals
  readonly submissionsPaused: boolean
  /** `active`, or why planned times do not run. */
  readonly firing: string
  readonly defaultTimezone: string
  readonly notices: NoticesState
  /** `null` = this server schedules no backups. */
  readonly backups: {readonly state: BackupState | null} | null
}

export function createStatus(context: OperationsContext) {
  const {node, settings, store} = context

  async function status(): Promise<ClusterStatus> {
    const askedAt = context.clock.monotonicMs()
    const [
      members,
      lease,
      info,
      totals,
      submissionsPaused,
      putBack,
      pauses,
      zone,
      notices,
      backups,
    ] = await Promise.all([
      store.members(),
      store.leader(),
      store.info(),
      store.totals(),
      store.submissionsPaused(),
      store.pausedSinceRestore(),
      store.firingPauses(),
      store.defaultTimezone(),
      store.noticesState(),
      settings.makesBackups ? store.backupState() : null,
    ])
    const storeMs = context.clock.monotonicMs() - askedAt
    const leader = members.find((member) => member.id === lease?.nodeId)
    const firing = firingText(putBack, pauses)
    const health = decideHealth({
      members,
      leader: lease === null || leader === undefined ? null : {name: leader.name, term: lease.term},
      firing,
      isPausePlanned: putBack === null && pauses.every(({until}) => until !== null),
      areSubmissionsPaused: submissionsPaused,
      backupProblem: backups && backupProblem(backups.state, backups.now),
      notices,
      ...totals,
      storeMs,
    })
    return {
      now: context.clock.now(),
      node,
      isLeader: context.isLeader(),
      tokenConfigured: settings.tokenConfigured,
      runsAsRoot: settings.runsAsRoot,
      executors: context.executors.names(),
      processors: context.processors.names(),
      health,
      members,
      lease: lease === null ? null : {leaderName: leader?.name ?? '', term: lease.term},
      store: info,
      storeMs,
      totals,
      submissionsPaused,
      firing,
      defaultTimezone: zone,
      notices,
      backups,
    }
  }

  return {status}
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
  function paused(): Promise<boolean> {
    return store.submissionsPaused()
  }

  /** Durable and idempotent. */
  async function setPaused(paused: boolean, actor: Actor): Promise<void> {
    await store.setPaused(paused, actor)
    events.emit('submissions_paused', {paused})
  }

  return {paused, setPaused}
}
