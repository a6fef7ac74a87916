/** Nodes as the decisions see them: name, tags, status and free slots. */

/** A node name, in configuration and on the wire, as the source of a regular expression. */
export const NODE_NAME_PATTERN = '[A-Za-z0-9._-]{1,63}'

export type MemberStatus = 'alive' | 'leaving' | 'left' | 'failed'

/** A stored member. Instants by the store's clock. */
export interface MemberRecord {
  /** Random identity, stored in the node's data directory. */
  readonly id: string
  readonly name: string
  /** Random per process start; fences requests of an earlier incarnation of the node. */
  readonly incarnation: string
  readonly address: string
  readonly port: number
  readonly tags: Readonly<Record<string, string>>
  readonly server: boolean
  /** False for a server started with `--no-run`. */
  readonly runs: boolean
  readonly version: string
  /** Maximum number of concurrent executions. */
  readonly slots: number
  readonly status: MemberStatus
  readonly startedAt: number
  readonly heartbeatAt: number
  /**
   * Start of the cordon: the node takes no new work. `null` = it takes work. Survives restarts and a leave.
   */
  readonly cordonedAt: number | null
  /**
   * Deadline of a drain: what then still runs is stopped. `null` = no drain. A deadline that has passed stays
   * after an uncordon.
   */
  readonly drainUntil: number | null
}

/** Statuses of a present member: the node has neither left nor failed. */
export const PRESENT_STATUSES = ['alive', 'leaving'] as const satisfies readonly MemberStatus[]

export function isPresent({status}: Pick<MemberRecord, 'status'>): boolean {
  return status === 'alive' || status === 'leaving'
}

/** Fields that a node does not report about itself when it joins. */
export type StoredOnly = 'heartbeatAt' | 'status' | 'startedAt' | 'cordonedAt' | 'drainUntil'

/** State of a node for new work. `drained`: it was drained, and none of its executions runs any more. */
export type Scheduling = 'active' | 'cordoned' | 'draining' | 'drained'

/** A member with what the store knows of its work. */
export interface MemberView extends MemberRecord {
  readonly isLeader: boolean
  readonly running: number
  readonly waiting: number
  readonly scheduling: Scheduling
}

/** `running`: its running executions in the store. */
export function schedulingOf(
  {cordonedAt, drainUntil}: Pick<MemberRecord, 'cordonedAt' | 'drainUntil'>,
  running: number,
): Scheduling {
  if (cordonedAt === null) return 'active'
  if (drainUntil === null) return 'cordoned'
  return running > 0 ? 'draining' : 'drained'
}

/** Change of whether a node takes work. `deadlineMs`: time for what runs, after which it is stopped. */
export type SchedulingChange =
  {readonly kind: 'cordon' | 'uncordon'} | {readonly kind: 'drain'; readonly deadlineMs: number}

/** Cordon and drain of a member after a change. */
export interface SchedulingDecision extends Pick<MemberRecord, 'cordonedAt' | 'drainUntil'> {
  /** True if the deadline of the earlier drain is over: what it has stopped ends by that drain. */
  readonly isDrainOver: boolean
}

/**
 * A cordon of a cordoned node keeps its beginning, and a deadline that is over. A drain sets the deadline
 * anew. `null` = nothing changes.
 */
export function decideScheduling(
  before: Pick<MemberRecord, 'cordonedAt' | 'drainUntil'>,
  change: SchedulingChange,
  now: number,
): SchedulingDecision | null {
  const cordonedAt = change.kind === 'uncordon' ? null : (before.cordonedAt ?? now)
  // Servers of schema 4 left a deadline at an uncordon: without a cordon it counts for nothing.
  const isDrainOver =
    before.cordonedAt !== null && before.drainUntil !== null && before.drainUntil <= now
  const kept = isDrainOver && cordonedAt !== null ? before.drainUntil : null
  const drainUntil = change.kind === 'drain' ? now + change.deadlineMs : kept
  if (cordonedAt === before.cordonedAt && drainUntil === before.drainUntil) return null
  return {cordonedAt, drainUntil, isDrainOver}
}

/** Node that joins. `ended`: its incarnations that have ended; absent = no other process can have its id. */
export interface JoiningNode extends Pick<MemberRecord, 'id' | 'incarnation'> {
  readonly ended?: readonly string[]
}

/**
 * Why a node may not join.
 *
 * `alive`: another incarnation of this node is a member, and its last heartbeat is fresh.
 * `taken`: another node has the name, and its last heartbeat is fresh.
 */
export type JoinConflict =
  | {readonly kind: 'alive'; readonly member: MemberRecord}
  | {readonly kind: 'taken'; readonly by: string}

/**
 * Decides whether a node may join. `members`: the one of its id, and the present ones of its name. A known id
 * fences its previous incarnation, unless that one sends heartbeats and is not known to have ended: then the
 * node runs on a copy of the data directory. The name of a member without fresh heartbeats is taken over.
 * `null` = the node joins. A heartbeat is fresh while it is at most `freshMs` old.
 */
export function joinConflict(
  {id, incarnation, ended}: JoiningNode,
  members: readonly MemberRecord[],
  now: number,
  freshMs: number,
): JoinConflict | null {
  const fresh = members.filter((each) => isPresent(each) && each.heartbeatAt > now - freshMs)
  const self = fresh.find((each) => each.id === id)
  const isOther = self !== undefined && self.incarnation !== incarnation
  if (isOther && ended !== undefined && !ended.includes(self.incarnation))
    return {kind: 'alive', member: self}
  const [holder] = fresh
    // Heartbeats in the future were stored by a wrong clock; a node that is alive has sent another since.
    .filter((each) => each.id !== id && each.heartbeatAt <= now + freshMs)
    .toSorted((a, b) => b.heartbeatAt - a.heartbeatAt)
  return holder === undefined ? null : {kind: 'taken', by: holder.id}
}

/**
 * Decides whether a heartbeat makes a member present again that failed or left. `members`: the one of its id,
 * and the present ones of its name. Two ids are never present under one name. `fenced`: a newer incarnation
 * has joined.
 */
export function decideReturn(
  {nodeId, incarnation, status}: {nodeId: string; incarnation: string; status: MemberStatus},
  members: readonly Pick<MemberRecord, 'id' | 'incarnation'>[],
): 'ok' | 'fenced' | 'taken' | 'unknown' {
  const known = members.find(({id}) => id === nodeId)
  if (known === undefined) return 'unknown'
  if (known.incarnation !== incarnation) return 'fenced'
  const isNameHeld = members.some(({id}) => id !== nodeId)
  return isNameHeld && status !== 'left' ? 'taken' : 'ok'
}

/** Tags that Belfry sets on every node. */
export const SYSTEM_TAGS = [
  'rpc_addr',
  'server',
  'version',
  'role',
  'region',
  'dc',
  'node',
] as const

/** The tag `role` of every node. */
export const ROLE = 'belfry'

/** Values of the system tags; users cannot override them. */
export function systemTags({
  name,
  address,
  port,
  server,
  version,
}: Pick<MemberRecord, 'name' | 'address' | 'port' | 'server' | 'version'>): Record<
  (typeof SYSTEM_TAGS)[number],
  string
> {
  return {
    rpc_addr: `${address.includes(':') ? `[${address}]` : address}:${port}`,
    server: String(server),
    version,
    role: ROLE,
    region: 'global',
    dc: 'dc1',
    node: name,
  }
}

/** A node as target selection sees it. */
export interface Candidate {
  readonly id: string
  readonly name: string
  readonly tags: Readonly<Record<string, string>>
  readonly slots: number
  /** Number of its pending and running executions. */
  readonly load: number
  /** True if it takes no new work; absent = false. */
  readonly isCordoned?: boolean
}

/** Splits the nodes that take new work from the cordoned ones. */
export function splitCordoned<Node extends Pick<Candidate, 'isCordoned'>>(
  nodes: readonly Node[],
): {readonly candidates: readonly Node[]; readonly cordoned: readonly Node[]} {
  return {
    candidates: nodes.filter(({isCordoned}) => isCordoned !== true),
    cordoned: nodes.filter(({isCordoned}) => isCordoned === true),
  }
}
