/**
 * Judging nodes by their silence. Silence counts only while someone could hear it: the judge must
 * itself have listened, without a pause and with the store at hand, for the whole window. Lengths come
 * from the judge's monotonic clock alone, so no clock of another machine decides anything.
 */
import type {MemberStatus} from './node.ts'

export interface FailureLimits {
  /** Silent for this long, a member is failed and gets no new work. */
  readonly failedAfterMs: number
  /** Silent for this long, its executions are lost. */
  readonly lostAfterMs: number
  /** A judge that did not look for longer than this has not listened. */
  readonly pauseMaxMs: number
}

/** What the judge remembers of one life of a node. */
interface Heard {
  readonly incarnation: string
  readonly heartbeatAt: number
  /** Monotonic instant since which nothing new was heard. */
  readonly silentSince: number
}

export interface ObservedMember {
  readonly id: string
  readonly incarnation: string
  readonly heartbeatAt: number
  readonly status: MemberStatus
}

export interface DetectedFailures {
  /** Alive so far, silent long enough to be failed. */
  readonly failed: readonly string[]
  /** Silent long enough for their executions to be lost. */
  readonly lost: readonly string[]
}

/** Remembers what was heard; one per term. Holds one small record per member. */
export class FailureDetector {
  readonly #limits: FailureLimits
  #heard = new Map<string, Heard>()
  #lookedAt = -Infinity

  constructor(limits: FailureLimits) {
    this.#limits = limits
  }

  /** The store was away: nothing could be heard. Every window starts afresh with the next look. */
  interrupted(): void {
    this.#lookedAt = -Infinity
  }

  /**
   * `nowMs` is monotonic. Members that left in good order are lost at once: nothing of them can still
   * run.
   */
  look(members: readonly ObservedMember[], nowMs: number): DetectedFailures {
    const listened = nowMs - this.#lookedAt <= this.#limits.pauseMaxMs
    this.#lookedAt = nowMs
    const heard = new Map<string, Heard>()
    const failed: string[] = []
    const lost: string[] = []
    for (const {id, incarnation, heartbeatAt, status} of members) {
      const known = listened ? this.#heard.get(id) : undefined
      const same = known?.incarnation === incarnation && known.heartbeatAt === heartbeatAt
      const silentSince = same ? known.silentSince : nowMs
      heard.set(id, {incarnation, heartbeatAt, silentSince})
      const silentMs = nowMs - silentSince
      if (status === 'alive' || status === 'leaving') {
        if (silentMs >= this.#limits.failedAfterMs) failed.push(id)
      }
      if (status === 'left' || silentMs >= this.#limits.lostAfterMs) lost.push(id)
    }
    this.#heard = heard
    return {failed, lost}
  }
}
