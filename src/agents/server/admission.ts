/**
 * Whether an agent may become a member of the cluster, and making it one. Stands apart from the hub, which
 * holds the connections. What is refused is refused in one sentence for people and a code for the agent.
 */
import {systemTags} from '../../core/node.ts'
import type {BeatReply, Heartbeat, JoinRequest} from '../../ports/node-store.ts'
import type {Store} from '../../ports/store.ts'
import {isSpoken, PROTOCOL, type HelloMessage, type RefusalKind} from '../protocol.ts'
import {replacedSentence} from '../../node/membership.ts'

export interface Refusal {
  readonly code: RefusalKind
  readonly message: string
}

/** Where a connection comes from. */
export interface Origin {
  readonly address: string
  readonly port: number
}

export interface AdmissionOptions {
  readonly store: Pick<Store, 'join' | 'members'>
  readonly beat: (heartbeat: Heartbeat) => Promise<BeatReply>
  /** Of this server. */
  readonly nodeName: string
  readonly clusterId: string
  /** A member heard of within this time holds its name. */
  readonly freshMs: number
}

export class Admission {
  readonly #options: AdmissionOptions

  constructor(options: AdmissionOptions) {
    this.#options = options
  }

  /** Makes it a member; `null` = it is one now. Throws what the store throws. */
  async admit(hello: HelloMessage, origin: Origin): Promise<Refusal | null> {
    const strange = this.#strange(hello)
    if (strange !== null) return strange
    const {node, status, joined} = hello
    // A life that another has replaced must be told so, and not replace it in turn.
    const known = joined ? await this.#options.beat({...lifeOf(hello), status}) : 'unknown'
    if (known === 'ok') return null
    if (known !== 'unknown') return replaced(known, node.name)
    const refusal = await this.join(hello, origin)
    if (refusal !== null) return refusal
    if (status !== 'alive') await this.#options.beat({...lifeOf(hello), status})
    return null
  }

  async join({node}: HelloMessage, origin: Origin): Promise<Refusal | null> {
    const {store, freshMs} = this.#options
    const members = await store.members()
    if (members.some(({id, server}) => server && id === node.id)) {
      const message = 'A server has that identity; an agent has its own --data.'
      return {code: 'malformed', message}
    }
    const answer = await store.join({member: memberOf(node, origin)}, freshMs)
    if (answer.kind === 'joined') return null
    const message = `Another node is called ${node.name} and is alive; give this one another --name.`
    return {code: 'name_taken', message}
  }

  #strange({protocol, clusterId}: HelloMessage): Refusal | null {
    const {nodeName} = this.#options
    if (!isSpoken(protocol)) {
      const spoken = `This agent speaks version ${protocol} of the agents' protocol`
      const message = `${spoken}, ${nodeName} version ${PROTOCOL}; update the older of them.`
      return {code: 'protocol', message}
    }
    if (clusterId === null || clusterId === this.#options.clusterId) return null
    return {code: 'cluster', message: `${nodeName} belongs to another cluster than this agent.`}
  }
}

export function lifeOf({node}: HelloMessage): {nodeId: string; incarnation: string} {
  return {nodeId: node.id, incarnation: node.incarnation}
}

/** What a life is told that another life, or another node under its name, has replaced. */
export function replaced(why: 'fenced' | 'taken', name: string): Refusal {
  const code = why === 'fenced' ? 'fenced' : 'name_taken'
  return {code, message: replacedSentence(why, name)}
}

/** The agent's own tags, and over them the ones every node has. */
function memberOf(
  {id, incarnation, name, version, slots, tags: own}: HelloMessage['node'],
  {address, port}: Origin,
): JoinRequest['member'] {
  const place = {name, address, port, server: false, version}
  return {...place, id, incarnation, tags: {...own, ...systemTags(place)}, runs: true, slots}
}
