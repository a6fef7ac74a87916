/** What a node is to the decisions: a place with a name, tags and room. */

/** A node name, as the source of a regular expression. */
export const NODE_NAME_PATTERN = '[A-Za-z0-9._-]{1,63}'

export type MemberStatus = 'alive' | 'leaving' | 'left' | 'failed'

/** A member as the store knows it. Instants by the store's clock. */
export interface MemberRecord {
  /** Random identity kept in the node's data directory. */
  readonly id: string
  readonly name: string
  /** Random per process start; fences what an earlier life of the node still sends. */
  readonly incarnation: string
  readonly address: string
  readonly port: number
  readonly tags: Readonly<Record<string, string>>
  readonly server: boolean
  /** False for a server started with `--no-run`. */
  readonly runs: boolean
  readonly version: string
  /** How many executions it runs at once. */
  readonly slots: number
  readonly status: MemberStatus
  readonly startedAt: number
  readonly heartbeatAt: number
}

/** Names of the tags every node has from Belfry itself. */
export const SYSTEM_TAGS = [
  'rpc_addr',
  'server',
  'version',
  'role',
  'region',
  'dc',
  'node',
] as const

/** What they say; nobody can give them other values. */
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
    role: 'belfry',
    region: 'global',
    dc: 'dc1',
    node: name,
  }
}

/** What target selection needs of a node. */
export interface Candidate {
  readonly id: string
  readonly name: string
  readonly tags: Readonly<Record<string, string>>
  readonly slots: number
  /** Pending and running executions it already has. */
  readonly load: number
}
