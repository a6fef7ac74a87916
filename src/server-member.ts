/** What a server tells the cluster about itself. */
import type {Config} from './config.ts'
import type {JoinRequest} from './ports/node-store.ts'
import {VERSION} from './system/version.ts'

export interface Identity {
  /** Kept in the data directory. */
  readonly id: string
  /** Of this process start. */
  readonly incarnation: string
}

/** The user's tags, and over them the ones every server has. */
export function memberOf(
  {nodeName, tags, slots, run}: Config,
  node: Identity,
  {address, port}: {readonly address: string; readonly port: number},
): JoinRequest['member'] {
  const system = {
    rpc_addr: `${address.includes(':') ? `[${address}]` : address}:${port}`,
    server: 'true',
    version: VERSION,
    role: 'belfry',
    region: 'global',
    dc: 'dc1',
    node: nodeName,
  }
  return {
    id: node.id,
    incarnation: node.incarnation,
    name: nodeName,
    address,
    port,
    tags: {...tags, ...system},
    server: true,
    runs: run,
    version: VERSION,
    slots,
  }
}
