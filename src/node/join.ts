/**
 * Joining of a node whose identity another process may have: a copied data directory has the same node id.
 * The process that is alive stays, and the newcomer is refused. Heartbeats show whether it is alive: a member
 * whose machine died a moment ago sends none.
 */
import type {Limits} from '../config/limits.ts'
import type {MemberRecord} from '../core/node.ts'
import {pause} from '../lib/pause.ts'
import type {JoinRequest, JoinResult, MemberStore} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'

export interface JoinOptions {
  readonly store: Pick<MemberStore, 'join'>
  readonly clock: Clock
  /** `failedAfterMs`: a member with a heartbeat within this time is alive. */
  readonly limits: Pick<Limits, 'failedAfterMs'>
  /** Longest wait for the next heartbeat of the other incarnation. */
  readonly waitMs: number
}

/** Interval between two looks at the heartbeat of the other incarnation. */
const LOOK_EVERY_MS = 250

/**
 * `alive`: another incarnation sent a heartbeat meanwhile, or has replaced the first one. `silent`: it sent
 * none within `waitMs`, and its last one is still fresh.
 */
export type JoinOutcome = JoinResult | {readonly kind: 'silent'; readonly member: MemberRecord}

export async function joinMember(
  {store, clock, limits, waitMs}: JoinOptions,
  request: JoinRequest,
): Promise<JoinOutcome> {
  const startedAt = clock.monotonicMs()
  let first: MemberRecord | null = null
  for (;;) {
    const result = await store.join(request, limits.failedAfterMs)
    if (result.kind !== 'alive') return result
    const {member} = result
    first ??= member
    const {incarnation, heartbeatAt} = first
    if (member.incarnation !== incarnation || member.heartbeatAt !== heartbeatAt) return result
    if (clock.monotonicMs() - startedAt >= waitMs) return {kind: 'silent', member}
    await pause(clock, LOOK_EVERY_MS)
  }
}

/** Names the member to the operator of the newcomer. */
export function aliveSentence({name, address, port}: MemberRecord): string {
  return (
    'The node id of this data directory cannot be used: another process has it and is alive, as ' +
    `${name} at ${address}:${port}. If the directory is a copy, remove the file node-id in it; ` +
    'otherwise stop that process, or choose another --data.'
  )
}
