/** The execution: one attempt of one launch on one node. Types and identity only. */
import {NODE_NAME_PATTERN} from './node.ts'

export const FINAL_STATUSES = ['succeeded', 'failed', 'timed_out', 'cancelled', 'lost'] as const
export type FinalStatus = (typeof FINAL_STATUSES)[number]
export type ExecutionStatus = 'pending' | 'running' | FinalStatus

/** Last bytes that are stored of an output. */
export const OUTPUT_KEPT_BYTES = 256 * 1024
/** First bytes that are stored of a longer output, before the last ones. */
export const OUTPUT_START_BYTES = 16 * 1024
/** Bytes of output for each execution of a list, unless the request says otherwise. */
export const LISTED_OUTPUT_BYTES = 16 * 1024

/** Identity of an execution: all three fields together. */
export interface ExecutionKey {
  readonly group: number
  readonly node: string
  /** Starts at 1. */
  readonly attempt: number
}

/** `<group>-<node>-<attempt>`, e.g. `12-web.1-a-1`. Only node names may contain dashes. */
export function executionId(key: ExecutionKey): string {
  return `${key.group}-${key.node}-${key.attempt}`
}

/** An execution and the token of its claim: after a release, the next claim has another token. */
export interface ExecutionClaim {
  readonly key: ExecutionKey
  readonly token: string
}

/** `<execution id> <token>`: what a node knows of an execution belongs to one claim of it. */
export function claimId({key, token}: ExecutionClaim): string {
  return `${executionId(key)} ${token}`
}

const EXECUTION_ID = new RegExp(`^([1-9]\\d{0,15})-(${NODE_NAME_PATTERN})-([1-9]\\d{0,8})$`)

/** The inverse of `executionId`; `null` when `text` is not an id. Numbers have no leading zeros. */
export function parseExecutionId(text: string): ExecutionKey | null {
  const match = EXECUTION_ID.exec(text)
  if (match === null) return null
  const group = Number(match[1])
  if (!Number.isSafeInteger(group)) return null
  return {group, node: match[2]!, attempt: Number(match[3])}
}

/** Reason codes of executions, each with its clause; docs/reference/jobs.md lists them. */
export const END_REASONS = {
  no_executor: 'the node has no such executor',
  command_not_found: 'command not found',
  not_started: 'the command could not be started',
  no_secret: 'a secret of the job was deleted',
  node_stopped: 'the node was stopped before it ended',
  node_drained: 'the node was drained, and the deadline of the drain was over',
  node_restarted: 'the node went down while it ran, and has started again',
  node_outage: 'the node went down together with other nodes',
  node_lost: 'the node stopped sending heartbeats',
  not_requested: 'the node stopped it, although no cancel was requested',
  not_held: 'the node does not know of it',
  no_target: 'it never started; its node was gone, and no other node could run it',
  cut_off: 'the node was cut off from the cluster, and ended it',
} as const satisfies Record<string, string>

/** The clause of a stored reason; an unknown code stays as it is. */
export function endReasonClause(reason: string): string {
  const clauses: Readonly<Record<string, string>> = END_REASONS
  return Object.hasOwn(clauses, reason) ? clauses[reason]! : reason
}

/** The line that Belfry appends to the output of a lost execution, with its newline. */
export function lostLine(reason: string): string {
  return `lost: ${endReasonClause(reason)}\n`
}

/** A stored execution without its output. Instants in ms since the epoch, by the store's clock. */
export interface ExecutionRecord extends ExecutionKey {
  readonly jobId: number
  readonly jobName: string
  readonly status: ExecutionStatus
  /** Index of the target within the launch. All attempts for one target share it, also on another node. */
  readonly slot: number
  /** Revision of the definition that ran; 0 before the claim. */
  readonly revision: number
  readonly createdAt: number
  /** Earliest time of a claim: the backoff of a retry. */
  readonly notBefore: number
  /** Time of the claim; `null` = never claimed. */
  readonly startedAt: number | null
  readonly finishedAt: number | null
  readonly cancelRequestedAt: number | null
  readonly exitCode: number | null
  /** Code of `END_REASONS`, or of another release; `''` = none. */
  readonly reason: string
  /** Text that Belfry adds before and after the command's own output. */
  readonly outputHead: string
  readonly outputFoot: string
  /** Total bytes written by the command; only the tail is stored. */
  readonly outputBytes: number
  /** A result that arrived after the end: stored as a note, without effect. */
  readonly lateResult: string
}
