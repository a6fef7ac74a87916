/**
 * The failure detector: finds nodes without heartbeats. Missing heartbeats count only while the detector
 * itself ran without a pause and with the store available, for the whole window. All durations come from
 * its own monotonic clock, so the clock of another machine never decides.
 */
import type {MemberStatus} from './node.ts'

export interface FailureLimits {
  /** Silence after which a member is failed and gets no new work. */
  readonly failedAfterMs: number
  /** Silence after which its executions are lost. */
  readonly lostAfterMs: number
  /** A longer pause between two looks of the detector restarts every window. */
  readonly failureDetectorPauseMaxMs: number
}

/** The last heartbeat of one incarnation of a node. */
interface LastHeartbeat {
  readonly incarnation: string
  readonly heartbeatAt: number
  /** Monotonic instant at which this heartbeat was first seen. */
  readonly seenAt: number
}

export interface ObservedMember {
  readonly id: string
  readonly incarnation: string
  readonly heartbeatAt: number
  readonly status: MemberStatus
}

export interface DetectedFailures {
  /** Members to mark as failed. */
  readonly failed: readonly string[]
  /** Members whose executions are lost. */
  readonly lost: readonly string[]
}

/** Detector of one term. Keeps one small record per member. */
export class FailureDetector {
  readonly #limits: FailureLimits
  #lastHeartbeats = new Map<string, LastHeartbeat>()
  #lookedAt = -Infinity

  constructor(limits: FailureLimits) {
    this.#limits = limits
  }

  /** The store was unavailable: no heartbeat could be seen. Every window restarts with the next look. */
  interrupted(): void {
    this.#lookedAt = -Infinity
  }

  /** `nowMs` is monotonic. Members that left gracefully are lost at once: none of their work still runs. */
  look(members: readonly ObservedMember[], nowMs: number): DetectedFailures {
    const isContinuous = nowMs - this.#lookedAt <= this.#limits.failureDetectorPauseMaxMs
    this.#lookedAt = nowMs
    const lastHeartbeats = new Map<string, LastHeartbeat>()
    const failed: string[] = []
    const lost: string[] = []
    for (const {id, incarnation, heartbeatAt, status} of members) {
      const known = isContinuous ? this.#lastHeartbeats.get(id) : undefined
      const isSame = known?.incarnation === incarnation && known.heartbeatAt === heartbeatAt
      const seenAt = isSame ? known.seenAt : nowMs
      lastHeartbeats.set(id, {incarnation, heartbeatAt, seenAt})
      const silentMs = nowMs - seenAt
      if (status === 'alive' || status === 'leaving') {
        if (silentMs >= this.#limits.failedAfterMs) failed.push(id)
      }
      if (status === 'left' || silentMs >= this.#limits.lostAfterMs) lost.push(id)
    }
    this.#lastHeartbeats = lastHeartbeats
    return {failed, lost}
  }
}
