/** Events of the cluster that explain launches later. */

export const CLUSTER_EVENT_KINDS = [
  'term_began',
  'no_leader',
  'node_failed',
  'node_joined',
  'node_left',
  'clock_held',
  'store_restored',
] as const
export type ClusterEventKind = (typeof CLUSTER_EVENT_KINDS)[number]

/** Detail of `no_leader`: no server led because the store took no writes. */
export const STORE_FAILED = 'store'

/** Instants in ms since the epoch, by the store's clock. */
export interface ClusterEvent {
  readonly id: number
  readonly at: number
  readonly kind: ClusterEventKind
  /** Name of the node or of the leader; `''` = the cluster. */
  readonly subject: string
  readonly detail: string
  /** When it was over; `null` = it is not, or has no length. */
  readonly until: number | null
}
