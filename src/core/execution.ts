/** What an execution is: one attempt of one launch on one node. Types and the identity; no decisions. */
import {NODE_NAME_PATTERN} from './node.ts'

export type FinalStatus = 'succeeded' | 'failed' | 'timed_out' | 'cancelled' | 'lost'
export type ExecutionStatus = 'pending' | 'running' | FinalStatus

/** Limit on the stored output of one execution: its last bytes are kept. */
export const OUTPUT_KEPT_BYTES = 256 * 1024

/** Identity of an execution inside the store: unique by all three. */
export interface ExecutionKey {
  readonly group: number
  readonly node: string
  /** Starts at 1. */
  readonly attempt: number
}

/** `<group>-<node>-<attempt>`, e.g. `12-web.1-a-1`. Node names may hold dashes; group and attempt cannot. */
export function executionId(key: ExecutionKey): string {
  return `${key.group}-${key.node}-${key.attempt}`
}

const EXECUTION_ID = new RegExp(`^([1-9]\\d{0,15})-(${NODE_NAME_PATTERN})-([1-9]\\d{0,8})$`)

/** The inverse of `executionId`; `null` when `text` is not such an id (digits without leading zeros only). */
export function parseExecutionId(text: string): ExecutionKey | null {
  const match = EXECUTION_ID.exec(text)
  if (match === null) return null
  const group = Number(match[1])
  if (!Number.isSafeInteger(group)) return null
  return {group, node: match[2]!, attempt: Number(match[3])}
}

const LOST_BECAUSE: Readonly<Record<string, string>> = {
  node_stopped: 'the node was stopped before it ended',
  node_restarted: 'the node went down while it ran, and has started again',
  node_lost: 'the node was not heard of any more',
  not_held: 'the node does not know of it',
  no_target: 'it never started; its node was gone, and no other may take it',
  cut_off: 'the node was cut off from the cluster, and ended it',
}

/**
 * What Belfry adds to the output of a lost execution: whoever reads it learns why. One line with its
 * newline.
 */
export function lostLine(reason: string): string {
  return `lost: ${LOST_BECAUSE[reason] ?? reason}\n`
}

/**
 * One execution as it is stored, without its output. Instants in ms since the epoch, by the store's
 * clock.
 */
export interface ExecutionRecord extends ExecutionKey {
  readonly jobId: number
  readonly jobName: string
  readonly status: ExecutionStatus
  /**
   * Index of the target within the launch: attempts of one target share it, also when a retry moved to
   * another node.
   */
  readonly slot: number
  /** Revision of the definition it ran; 0 before the claim. */
  readonly revision: number
  readonly createdAt: number
  /** Not to be claimed before; a retry's backoff. */
  readonly notBefore: number
  /** Time of the claim; `null` while pending (also when it ended without ever being claimed). */
  readonly startedAt: number | null
  readonly finishedAt: number | null
  readonly cancelRequestedAt: number | null
  readonly exitCode: number | null
  /** Why it ended as it did where the status does not say it, e.g. `node_stopped`; `''` otherwise. */
  readonly reason: string
  /** What Belfry adds before and after the command's own output. */
  readonly outputHead: string
  readonly outputFoot: string
  /** How many bytes the command wrote in all; what is kept is the tail of them. */
  readonly outputBytes: number
  /** A result that arrived after the execution had already ended: kept as a note, changes nothing. */
  readonly lateResult: string
}
