/**
 * Taking work from a node and giving it back: cordon, drain, uncordon. Each is one write; the launcher, the
 * claims of the node and the reassigner follow it. A lost notification costs at most a poll.
 */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {
  type MemberRecord,
  type MemberView,
  type SchedulingChange,
  schedulingOf,
  isPresent,
} from '../core/node.ts'
import {formatDuration} from '../lib/duration.ts'
import type {NodeLoad} from '../ports/node-store.ts'
import type {OperationsContext} from './context.ts'

export function memberView(
  member: MemberRecord,
  load: Pick<NodeLoad, 'running' | 'waiting'> | undefined,
  leaderId: string | undefined,
): MemberView {
  const {running = 0, waiting = 0} = load ?? {}
  const isLeader = member.id === leaderId
  return {...member, isLeader, running, waiting, scheduling: schedulingOf(member, running)}
}

/** Sorted by name. */
export async function loadMembers({store}: OperationsContext): Promise<readonly MemberView[]> {
  const [all, loads, lease] = await Promise.all([
    store.members(),
    store.nodeLoads(),
    store.leader(),
  ])
  const byId = new Map(loads.map((load) => [load.nodeId, load]))
  return all
    .map((member) => memberView(member, byId.get(member.id), lease?.nodeId))
    .toSorted((one, other) => (one.name < other.name ? -1 : 1))
}

export function createNodes(context: OperationsContext) {
  const {store, events, wakeup, settings} = context

  /**
   * `idOrName` is an id, or the name of a node that is present, or that only one member has. Returns the
   * member after the change. Throws `member_unknown`, `member_ambiguous`, `query_invalid`,
   * `body_invalid`.
   */
  async function setScheduling(
    idOrName: string,
    asked: AskedScheduling,
    actor: Actor,
  ): Promise<MemberView> {
    const change = boundedChange(asked, settings)
    const {id: nodeId} = memberToSchedule(await store.members(), idOrName)
    const request = {nodeId, change, actor}
    const member = await store.setScheduling(request)
    if (member === null) throw unknownMember(idOrName)
    // The node claims, learns its new state, and looks for what it must stop. The leader decides what waited.
    for (const topic of ['run', 'cancel', 'launch'] as const) wakeup.notify(topic)
    const view = (await loadMembers(context)).find(({id}) => id === nodeId)
    if (view === undefined) throw unknownMember(idOrName)
    events.emit('scheduling_changed', {node: member.name, scheduling: view.scheduling})
    return view
  }

  return {setScheduling}
}

export interface AskedScheduling {
  readonly kind: SchedulingChange['kind']
  /** Deadline of a drain; `null` = the default. */
  readonly deadlineMs: number | null
  /** Code of the error for a deadline that is too long. */
  readonly invalid: 'body_invalid' | 'query_invalid'
}

function boundedChange(
  {kind, deadlineMs, invalid}: AskedScheduling,
  {limits: {drainDeadlineMs, drainDeadlineMaxMs}}: OperationsContext['settings'],
): SchedulingChange {
  if (kind !== 'drain') return {kind}
  if (deadlineMs !== null && deadlineMs > drainDeadlineMaxMs) {
    const sentence = `deadline: must be at most ${formatDuration(drainDeadlineMaxMs)}`
    throw new DomainError(invalid, `${sentence}, not ${formatDuration(deadlineMs)}.`)
  }
  return {kind, deadlineMs: deadlineMs ?? drainDeadlineMs}
}

/**
 * Member to change. The present one of several with one name is meant: two are never present under one
 * name.
 */
function memberToSchedule(all: readonly MemberRecord[], idOrName: string): MemberRecord {
  const exact = all.find(({id}) => id === idOrName)
  if (exact !== undefined) return exact
  const named = all.filter(({name}) => name === idOrName)
  const present = named.find(isPresent)
  if (present !== undefined) return present
  if (named.length > 1) throw ambiguousMember(idOrName, named)
  const [member] = named
  if (member === undefined) throw unknownMember(idOrName)
  return member
}

/** Ids in the error for an ambiguous name. */
const AMBIGUOUS_IDS_MAX = 10

/** `members` have left or failed. */
export function ambiguousMember(name: string, members: readonly MemberRecord[]): DomainError {
  const ids = members.slice(0, AMBIGUOUS_IDS_MAX).map(({id}) => id)
  const cause = `${members.length} members called ${name} have left or failed`
  const sentence = `The member is ambiguous: ${cause}. Use an id, such as ${ids.join(' or ')}.`
  return new DomainError('member_ambiguous', sentence, {members: {ids}})
}

export function unknownMember(idOrName: string): DomainError {
  return new DomainError('member_unknown', `There is no member ${JSON.stringify(idOrName)}.`)
}
