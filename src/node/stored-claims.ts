/**
 * Claims of a server's node in the store: releases, and a comparison such as servers make for agents. It ends
 * claims that no process would ever run, after a reply that was lost or late. It stops no process.
 */
import type {Limits} from '../config/limits.ts'
import {claimId, type ExecutionClaim} from '../core/execution.ts'
import type {ActiveClaim, MemberStore, NodeStore} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {announceFinished} from './finisher.ts'
import {BATCH_MAX, finishUnheld, type RecoverDeps, releaseClaims} from './recover.ts'

/** Claims of a node at one instant. */
export interface HeldClaims {
  /** Claims of executions that run or wait for a slot, and of those whose release or result is on its way. */
  readonly claims: readonly ExecutionClaim[]
  /** Token of a claim without a reply; `null` = none. */
  readonly pendingToken: string | null
}

/** Operations of a runner on its claims in the store. */
export interface ClaimUpkeep {
  /**
   * Releases claims of executions that were not started; returns the released ones. The others were cancelled
   * or revoked meanwhile, or released by an earlier request. Absent = nothing is claimed ahead.
   */
  readonly release?: (claims: readonly ExecutionClaim[]) => Promise<readonly ExecutionClaim[]>
  /**
   * Ends claims that only the store has, and resolves with those that only this node has; `held` is called
   * after the store was read. Absent = a server does it, and `revoked` reports the result.
   */
  readonly compareClaims?: (held: () => HeldClaims) => Promise<readonly ExecutionClaim[]>
}

export interface ClaimUpkeepDeps extends Omit<RecoverDeps, 'store'> {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly limits: Pick<Limits, 'claimVerifyMs'>
  readonly store: Pick<MemberStore, 'activeClaims' | 'releaseClaims'> &
    Pick<NodeStore, 'finish' | 'verifyClaims'>
}

/** Upkeep on a server. */
export function claimUpkeep(
  deps: ClaimUpkeepDeps,
  {id: nodeId, incarnation}: {readonly id: string; readonly incarnation: string},
): ClaimUpkeep {
  const {store, clock, limits} = deps
  let comparedAt = clock.monotonicMs()
  const compareClaims: ClaimUpkeep['compareClaims'] = async (held) => {
    if (clock.monotonicMs() - comparedAt < limits.claimVerifyMs) return []
    const active = await store.activeClaims({nodeId, incarnation})
    comparedAt = clock.monotonicMs()
    const {claims, pendingToken} = held()
    const heldIds = new Set(claims.map(claimId))
    const unheld = active.filter(
      (claim) => !heldIds.has(claimId(claim)) && claim.token !== pendingToken,
    )
    if (unheld.length > 0) await endUnheld(deps, unheld)
    const activeIds = new Set(active.map(claimId))
    const unconfirmed = claims.filter((claim) => !activeIds.has(claimId(claim)))
    if (unconfirmed.length === 0) return []
    const statuses = await store.verifyClaims(unconfirmed)
    return unconfirmed.filter((_claim, index) => statuses[index] === 'revoked')
  }
  return {compareClaims, release: (claims) => releaseClaims(deps, claims)}
}

/**
 * A runner starts nothing under a claim that it does not hold, so these are released. Claims that the store
 * does not release, as those of a cancelled execution, end as `lost`.
 */
async function endUnheld(deps: ClaimUpkeepDeps, claims: readonly ActiveClaim[]): Promise<void> {
  for (let from = 0; from < claims.length; from += BATCH_MAX) {
    const batch = claims.slice(from, from + BATCH_MAX)
    const released = new Set((await releaseClaims(deps, batch)).map(claimId))
    const rest = batch.filter((claim) => !released.has(claimId(claim)))
    if (rest.length > 0) announceFinished(await finishUnheld(deps, rest), deps)
  }
  deps.wakeup.notify('run')
}
