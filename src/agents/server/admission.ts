/**
 * Admission of agents: whether an agent may join the cluster, and the join. A refusal has a code for the
 * agent and a text for operators. The hub holds the connections.
 */
import {systemTags} from '../../core/node.ts'
import {aliveSentence, joinMember} from '../../node/join.ts'
import {replacedSentence} from '../../node/membership.ts'
import type {BeatReply, Heartbeat, JoinRequest} from '../../ports/node-store.ts'
import type {Clock} from '../../ports/runtime.ts'
import type {Store} from '../../ports/store.ts'
import {isCompatible} from '../codec.ts'
import {type HelloMessage, PROTOCOL, type RefusalKind} from '../protocol.ts'

export interface Refusal {
  readonly code: RefusalKind
  readonly message: string
}

/** Remote end of a connection. */
export interface Origin {
  readonly address: string
  readonly port: number
}

export interface AdmissionOptions {
  readonly store: Pick<Store, 'join' | 'members'>
  readonly clock: Clock
  readonly beat: (heartbeat: Heartbeat) => Promise<BeatReply>
  /** Of this server. */
  readonly nodeName: string
  readonly clusterId: string
  /** A member with a heartbeat within this time owns its name. */
  readonly freshMs: number
}

/**
 * Longest wait for a heartbeat of another incarnation: longer than the interval of heartbeats, shorter than
 * an agent waits for the reply to its hello. After it, the agent tries again.
 */
const OTHER_HEARTBEAT_WAIT_MS = 3_000

export class Admission {
  readonly #options: AdmissionOptions

  constructor(options: AdmissionOptions) {
    this.#options = options
  }

  /** Makes the agent a member; `null` = it is one now. Throws the errors of the store. */
  async admit(hello: HelloMessage, origin: Origin): Promise<Refusal | null> {
    const incompatible = this.#incompatibility(hello)
    if (incompatible !== null) return incompatible
    const {node, status, joined} = hello
    // An incarnation that was replaced must be refused, and must not replace the other in turn.
    const known = joined ? await this.#options.beat({...incarnationOf(hello), status}) : 'unknown'
    if (known === 'ok') return null
    if (known !== 'unknown') return replacedRefusal(known, node.name)
    const refusal = await this.join(hello, origin)
    if (refusal !== null) return refusal
    if (status !== 'alive') await this.#options.beat({...incarnationOf(hello), status})
    return null
  }

  async join({node, ended}: HelloMessage, origin: Origin): Promise<Refusal | null> {
    const {store, clock, freshMs} = this.#options
    const members = await store.members()
    if (members.some(({id, server}) => server && id === node.id)) {
      const why = 'a server of the cluster has its node id. Set its own --data'
      return {code: 'malformed', message: `The agent ${node.name} cannot join: ${why}.`}
    }
    const result = await joinMember(
      {store, clock, freshMs, waitMs: OTHER_HEARTBEAT_WAIT_MS},
      {member: memberOf(node, origin), ...(ended === undefined ? {} : {ended})},
    )
    if (result.kind === 'joined') return null
    if (result.kind === 'alive') return {code: 'alive', message: aliveSentence(result.member)}
    if (result.kind === 'silent') return {code: 'unavailable', message: silentSentence(node.name)}
    const why = 'another node with this name is alive. Set another --name'
    return {code: 'name_taken', message: `The node name ${node.name} cannot be used: ${why}.`}
  }

  #incompatibility({protocol, clusterId}: HelloMessage): Refusal | null {
    const {nodeName} = this.#options
    if (!isCompatible(protocol)) {
      const versions = `it speaks version ${protocol} of the agent protocol, ${nodeName} version ${PROTOCOL}`
      const message = `The agent cannot join: ${versions}. Update the older of them.`
      return {code: 'protocol', message}
    }
    if (clusterId === null || clusterId === this.#options.clusterId) return null
    const why = `${nodeName} belongs to another cluster than the one the agent joined first`
    return {code: 'cluster', message: `The agent cannot join: ${why}. Set another --data.`}
  }
}

export function incarnationOf({node}: HelloMessage): {nodeId: string; incarnation: string} {
  return {nodeId: node.id, incarnation: node.incarnation}
}

/** For an incarnation that another one, or another node under its name, has replaced. */
export function replacedRefusal(why: 'fenced' | 'taken', name: string): Refusal {
  const code = why === 'fenced' ? 'fenced' : 'name_taken'
  return {code, message: replacedSentence(why, name)}
}

function silentSentence(name: string): string {
  return `${name} cannot join yet: another process with its node id was alive a moment ago`
}

/** System tags override the agent's own. */
function memberOf(
  {id, incarnation, name, version, slots, tags: own}: HelloMessage['node'],
  {address, port}: Origin,
): JoinRequest['member'] {
  const place = {name, address, port, server: false, version}
  return {...place, id, incarnation, tags: {...own, ...systemTags(place)}, runs: true, slots}
}
