/** Steps of nodes, servers and agents that are repeated when they fail: values of `step` in events. */

/** Steps of every node that fail and are retried. */
const NODE_STEPS = [
  'heartbeat',
  'claim',
  'release',
  'verify',
  'output',
  'finish',
  'cancel',
  'disconnected',
  'clock_watch',
] as const

export const AGENT_STEPS = [...NODE_STEPS, 'keep_result'] as const

export const SERVER_STEPS = [
  ...NODE_STEPS,
  'launch',
  'leadership',
  'resign',
  'failure_detector',
  'mark_failed',
  'mark_lost',
  'reassign',
  'member_retention',
  'history_retention',
  'audit_retention',
  'backup',
  'notice_evaluation',
  'notice_delivery',
  'store_watch',
  'cluster_ping',
  'access',
  'record_refusals',
  'agent_hello',
  'agent_notify',
  'agent_sweep',
  // Replies to the requests of agents, by their kind.
  'agent_claim',
  'agent_verify',
  'agent_release',
  'agent_append',
  'agent_finish',
  'agent_cancelled',
  'agent_heartbeat',
  'agent_end_previous_incarnations',
] as const

export type Step = (typeof AGENT_STEPS)[number] | (typeof SERVER_STEPS)[number]
