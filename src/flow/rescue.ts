/**
 * The rescue step. A starting node ends what its earlier life claimed; the leader ends what dead nodes
 * claimed and gives pending work that nobody takes to another node. Ended means `lost` by the same rule
 * as every finish, so retries follow.
 *
 * Crash points: every batch is one transaction; what a crash leaves running in the store is found by
 * the next look.
 */
import {SilenceJudge, type SilenceLimits} from '../core/silence.ts'
import {matchTargets, selectTargets, type DefaultTarget} from '../core/target.ts'
import type {Clock} from '../ports/clock.ts'
import type {Events} from '../ports/events.ts'
import type {Random} from '../ports/random.ts'
import type {LeaderStore, StrayExecution} from '../ports/leader-store.ts'
import type {MemberStore} from '../ports/node-store.ts'
import {TermOver} from '../ports/store-failure.ts'
import type {Wakeup} from '../ports/wakeup.ts'
import {Loop} from '../std/loop.ts'
import type {Service} from '../std/service.ts'
import {announceFinished} from './finish.ts'

/** Executions ended in one transaction. */
const BATCH_MAX = 256

interface RescueDeps {
  readonly store: Pick<LeaderStore, 'rescue'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
}

/** Ends everything a node's other lives still hold in the store; answers how many executions that were. */
export async function rescueNode(
  deps: RescueDeps,
  request: {
    readonly term: number | null
    readonly nodeId: string
    readonly exceptIncarnation: string | null
    readonly judged: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
  },
): Promise<number> {
  let count = 0
  for (;;) {
    const dice = deps.random.dice()
    const {finished, more} = await deps.store.rescue({...request, limit: BATCH_MAX, dice})
    announceFinished(finished, deps)
    count += finished.length
    if (!more) return count
  }
}

export interface RescueOptions extends RescueDeps {
  readonly store: Pick<LeaderStore, 'rescue' | 'candidates' | 'loadStray' | 'applyMoves'> &
    Pick<MemberStore, 'members' | 'setMemberStatus'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly defaultTarget: DefaultTarget
  readonly limits: SilenceLimits
  /** A pending execution not claimed for this long is chosen again. */
  readonly unclaimedMs: number
  readonly lookEveryMs: number
}

/** The leader's look at the nodes; lives as long as a term. */
export class RescueService implements Service {
  readonly #options: RescueOptions
  readonly #judge: SilenceJudge
  readonly #loop: Loop
  /** Silent lives of nodes that hold nothing any more. */
  #emptied: ReadonlySet<string> = new Set()
  /** Where the round over the strays goes on. */
  #strayAfterGroup = 0

  constructor(options: RescueOptions) {
    this.#options = options
    this.#judge = new SilenceJudge(options.limits)
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#look(),
      failed: (error) => {
        this.#judge.interrupted()
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'rescue', message: String(error)})
      },
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #look(): Promise<number> {
    const {store, clock, term, events, lookEveryMs} = this.#options
    const members = await store.members()
    const {failed, lost} = this.#judge.look(members, clock.monotonicMs())
    const byId = new Map(members.map((member) => [member.id, member]))
    for (const id of failed) {
      const {incarnation, name} = byId.get(id)!
      await store.setMemberStatus({term, nodeId: id, incarnation, status: 'failed'})
      events.emit('member_changed', {node: name, status: 'failed'})
    }
    const emptied = new Set<string>()
    for (const nodeId of lost) {
      const {incarnation, heartbeatAt, status} = byId.get(nodeId)!
      const verdict = `${nodeId} ${incarnation} ${heartbeatAt}`
      emptied.add(verdict)
      // Nothing can be claimed by a life that is silent, so once is enough.
      if (this.#emptied.has(verdict)) continue
      const reason = status === 'left' ? 'node_stopped' : 'node_lost'
      const judged = {incarnation, heartbeatAt}
      await rescueNode(this.#options, {term, nodeId, exceptIncarnation: null, judged, reason})
    }
    this.#emptied = emptied
    await this.#moveStrays()
    return lookEveryMs
  }

  async #moveStrays(): Promise<void> {
    const {store, term, unclaimedMs, wakeup} = this.#options
    const afterGroup = this.#strayAfterGroup
    const {strays} = await store.loadStray({unclaimedMs, afterGroup, limit: BATCH_MAX})
    this.#strayAfterGroup = strays.length < BATCH_MAX ? 0 : nextAfter(strays)
    if (strays.length === 0) return
    const candidates = await store.candidates()
    const loads = new Map<string, number>()
    const moves = strays.flatMap((stray) => {
      const to = this.#otherNode(stray, candidates, loads)
      return to === null ? [] : [{key: stray.execution, to}]
    })
    if (moves.length === 0) return
    await store.applyMoves({term, moves})
    wakeup.ring('run')
  }

  /**
   * A matching alive node that the launch does not use yet; `null` = it stays where it is. It must have
   * room, unless the execution's own node is gone: then it may as well wait in another queue. An identity
   * that has taken over the name of that node takes its place in the launch too.
   */
  #otherNode(
    {job, nodeId, usedNodes, execution}: StrayExecution,
    candidates: Awaited<ReturnType<LeaderStore['candidates']>>,
    loads: Map<string, number>,
  ): {nodeId: string; nodeName: string} | null {
    const {defaultTarget, random} = this.#options
    const matching = matchTargets(job.spec.tags, candidates, defaultTarget).nodes
    const gone = candidates.every(({id}) => id !== nodeId)
    const others = matching.filter((node) => {
      const full = !gone && (loads.get(node.id) ?? node.load) >= node.slots
      const isUsed = usedNodes.includes(node.name) && node.name !== execution.node
      return node.id !== nodeId && !isUsed && !full
    })
    const [chosen] = selectTargets({}, others, 'one', loads, () => random.dice())
    return chosen === undefined ? null : {nodeId: chosen.id, nodeName: chosen.name}
  }
}

/** The last launch of a full page may go on after it, so the next page begins with that launch again. */
function nextAfter(strays: readonly StrayExecution[]): number {
  const [first, last] = [strays[0]!.execution.group, strays.at(-1)!.execution.group]
  return first < last ? last - 1 : last
}
