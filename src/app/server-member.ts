/** What a server tells the cluster about itself. */
import type {Config} from '../config/server.ts'
import {systemTags} from '../core/node.ts'
import type {JoinRequest} from '../ports/node-store.ts'
import {VERSION} from '../platform/version.ts'

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
  const place = {name: nodeName, address, port, server: true, version: VERSION}
  const {id, incarnation} = node
  return {...place, id, incarnation, tags: {...tags, ...systemTags(place)}, runs: run, slots}
}
