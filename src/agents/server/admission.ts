/**
 * Admission of agents: whether an agent may join the cluster, and the join. A refusal has a code for the
 * agent and a text for operators. The hub holds the connections.
 */
import type {Limits} from '../../config/limits.ts'
import {exceededLimit, type IssueRefusal, namesExactly} from '../../core/access/agent-token.ts'
import {actorOf} from '../../core/audit.ts'
import type {Principal} from '../../core/access/authorization.ts'
import {systemTags} from '../../core/node.ts'
import {aliveSentence, joinMember} from '../../node/join.ts'
import {replacedSentence} from '../../node/membership.ts'
import type {BeatReply, Heartbeat, JoinRequest} from '../../ports/node-store.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import type {Store} from '../../ports/store.ts'
import type {TokenUse} from '../../ports/token-store.ts'
import {type HelloMessage, PROTOCOL, type RefusalKind} from '../protocol.ts'

export interface Refusal {
  readonly code: RefusalKind
  readonly message: string
}

/** Remote end of a connection. */
export interface Origin {
  readonly address: string
  readonly port: number
  /** The token of the connection. */
  readonly caller: Principal
}

export interface AdmissionOptions {
  readonly store: Pick<Store, 'join' | 'members' | 'tokenRefusal' | 'bindToken' | 'issueToken'>
  readonly random: Pick<Random, 'id'>
  readonly clock: Clock
  readonly beat: (heartbeat: Heartbeat) => Promise<BeatReply>
  /** Node name of this server. */
  readonly nodeName: string
  readonly clusterId: string
  /** The token of the configuration has this digest. */
  readonly isConfigured: (digest: string) => boolean
  /** `failedAfterMs`: a member with a heartbeat within this time owns its name. */
  readonly limits: Pick<Limits, 'failedAfterMs'>
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
    const {node, status, joined} = hello
    const early = this.#otherCluster(hello) ?? grantRefusal(origin.caller, node)
    if (early !== null) return early
    // The token comes before the heartbeat: until it is checked, the agent may not be the node that it names.
    const unusable = joined ? await this.#useToken('tokenRefusal', hello, origin) : null
    if (unusable !== null) return unusable
    // An incarnation that was replaced must be refused, and must not replace the other in turn.
    const known = joined ? await this.#options.beat({...incarnationOf(hello), status}) : 'unknown'
    if (known === 'ok') return await this.#useToken('bindToken', hello, origin)
    if (known !== 'unknown') return replacedRefusal(known, node.name)
    const refusal = await this.join(hello, origin)
    if (refusal !== null) return refusal
    if (status !== 'alive') await this.#options.beat({...incarnationOf(hello), status})
    return null
  }

  /** Gives an agent with a join token a token of its own. `null` = it has one now. */
  async issue(hello: HelloMessage, origin: Origin): Promise<Refusal | null> {
    const {id, name} = hello.node
    const early = this.#otherCluster(hello) ?? grantRefusal(origin.caller, hello.node)
    if (early !== null) return early
    const use = useOf(origin, name)
    if (use === null || hello.ownToken === null) {
      const why = 'it sent no token of its own to a join token. Start it again'
      return {code: 'token', message: `The agent ${name} cannot join: ${why}.`}
    }
    const {store, random, isConfigured} = this.#options
    const issued = {accessor: random.id(), digest: hello.ownToken}
    const refusal = isConfigured(hello.ownToken)
      ? ({why: 'not_new'} as const)
      : await store.issueToken({...use, node: {id, name}, issued})
    return refusal === null ? null : tokenRefusal(refusal, name)
  }

  /** Another server may have bound the token a moment ago, which this one need not know yet. */
  async #useToken(
    method: 'tokenRefusal' | 'bindToken',
    {node: {id, name}}: HelloMessage,
    origin: Origin,
  ): Promise<Refusal | null> {
    const use = useOf(origin, name)
    if (use === null || origin.caller.agent?.node != null) return null
    const refusal = await this.#options.store[method]({...use, node: {id, name}})
    return refusal === null ? null : tokenRefusal(refusal, name)
  }

  async join({node, ended}: HelloMessage, origin: Origin): Promise<Refusal | null> {
    const {store, clock, limits} = this.#options
    const members = await store.members()
    if (members.some(({id, server}) => server && id === node.id)) {
      const why = 'a server of the cluster has its node id. Set its own --data'
      return {code: 'server', message: `The agent ${node.name} cannot join: ${why}.`}
    }
    const token = useOf(origin, node.name)
    const member = memberOf(node, origin)
    const result = await joinMember(
      {store, clock, limits, waitMs: OTHER_HEARTBEAT_WAIT_MS},
      // An agent that may take no other identity proves that the incarnation which is alive is its own.
      {member, ended, ...(token === null ? {} : {token})},
    )
    if (result.kind === 'joined') return null
    if (result.kind === 'token') return tokenRefusal(result.refusal, node.name)
    if (result.kind === 'alive') return {code: 'alive', message: aliveSentence(result.member)}
    if (result.kind === 'silent') return {code: 'unavailable', message: silentSentence(node.name)}
    const why = 'another node with this name is alive. Set another --name'
    return {code: 'name_taken', message: `The node name ${node.name} cannot be used: ${why}.`}
  }

  #otherCluster({clusterId}: HelloMessage): Refusal | null {
    const {nodeName} = this.#options
    if (clusterId === null || clusterId === this.#options.clusterId) return null
    const why = `${nodeName} belongs to another cluster than the one the agent joined first`
    return {code: 'cluster', message: `The agent cannot join: ${why}. Set another --data.`}
  }
}

/** Refusal of an agent that speaks another protocol than this server. */
export function otherProtocol(protocol: number, server: string): Refusal {
  const why = `it speaks version ${protocol} of the agent protocol, ${server} version ${PROTOCOL}`
  const fix = `Update ${protocol < PROTOCOL ? 'the agent' : server}`
  return {code: 'protocol', message: `The agent cannot join: ${why}. ${fix}.`}
}

export function incarnationOf({node}: HelloMessage): {nodeId: string; incarnation: string} {
  return {nodeId: node.id, incarnation: node.incarnation}
}

/** Refusal of an incarnation that another one, or another node under its name, has replaced. */
export function replacedRefusal(why: 'fenced' | 'taken', name: string): Refusal {
  const code = why === 'fenced' ? 'fenced' : 'name_taken'
  return {code, message: replacedSentence(why, name)}
}

/** Why its token, as this server knows it, does not let this node in. */
function grantRefusal({agent}: Principal, node: HelloMessage['node']): Refusal | null {
  if (agent === undefined) return null
  const exceeded = exceededLimit(agent.limits, node)
  if (exceeded !== null) return {code: 'token', message: exceeded}
  const {node: bound} = agent
  if (bound === null || (bound.id === node.id && bound.name === node.name)) return null
  return tokenRefusal({why: 'other_node', node: bound}, node.name)
}

/** `null` = the caller uses no token for agents, and may connect any. */
function useOf({caller, address}: Origin, name: string): Omit<TokenUse, 'node'> | null {
  const {accessor, agent} = caller
  if (agent === undefined) return null
  const actor = actorOf(caller, false, address)
  return {accessor, actor, mayReplace: namesExactly(agent.limits, name)}
}

function tokenRefusal(refusal: IssueRefusal, name: string): Refusal {
  const {code, why} = tokenSentence(refusal, name)
  return {code, message: `The agent ${name} cannot join: ${why}.`}
}

function tokenSentence(refusal: IssueRefusal, name: string): {code: RefusalKind; why: string} {
  switch (refusal.why) {
    case 'revoked':
      return {code: 'token', why: 'its token was revoked or has expired. Create another one'}
    case 'other_node': {
      if (refusal.node.name === name) {
        const own = `another node of this name (id ${refusal.node.id}), and this data directory is new`
        const again = 'Use the data directory of that node, or create another token'
        return {code: 'token', why: `its token belongs to ${own}. ${again}`}
      }
      const fix = 'Create a token for each agent, or a join token for several'
      return {code: 'token', why: `its token belongs to the node ${refusal.node.name}. ${fix}`}
    }
    case 'other_token': {
      const fix = 'Revoke that token first, or set another --name and --data'
      const owner = `the token ${JSON.stringify(refusal.token)}`
      return {code: 'token', why: `its identity or name belongs to ${owner}. ${fix}`}
    }
    case 'used_up':
      return {code: 'token', why: 'its join token is used up. Create another one'}
    case 'not_new': {
      const fix = 'Remove the file agent-token from its data directory'
      return {code: 'token', why: `the token that it made for itself is in use. ${fix}`}
    }
    case 'full':
      return {code: 'token', why: 'the cluster has as many tokens as it can. Revoke some of them'}
    case 'held': {
      const fix = `Set another --name, or remove that member: belfry members remove ${refusal.by}`
      return {code: 'name_taken', why: `another node has its name. ${fix}`}
    }
  }
}

function silentSentence(name: string): string {
  return `${name} cannot join yet: another process with its node id was alive a moment ago`
}

/** System tags override the agent's own. */
function memberOf(
  {id, incarnation, name, version, slots, tags: own}: HelloMessage['node'],
  {address, port}: Pick<Origin, 'address' | 'port'>,
): JoinRequest['member'] {
  const place = {name, address, port, server: false, version}
  return {...place, id, incarnation, tags: {...own, ...systemTags(place)}, runs: true, slots}
}
