/**
 * Joining of an agent: opens the link to a server of its cluster, and the store that is a client of that
 * server.
 */
import {readClusterId, writeClusterId} from '../agents/client/cluster-id.ts'
import {AgentLink} from '../agents/client/link.ts'
import {OwnToken} from '../agents/client/own-token.ts'
import {webSocketDial} from '../agents/client/socket.ts'
import {LocalClaims, RemoteNodeStore} from '../agents/client/store.ts'
import type {AgentConfig} from '../config/agent.ts'
import type {MemberStatus} from '../core/node.ts'
import {messageOf} from '../lib/error.ts'
import {recordIncarnation} from '../node/incarnations.ts'
import {VERSION} from '../platform/version.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Log} from '../telemetry/log.ts'
import {SettingRefused, StartRefused} from './start-refused.ts'

export interface JoiningParts {
  readonly config: AgentConfig
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly log: Log
  readonly node: {readonly id: string; readonly incarnation: string}
  /** Called for each connection: a reload may have changed them. */
  readonly credentials: () => Pick<AgentConfig, 'token' | 'ca'>
  /** Current status of this node. */
  readonly status: () => MemberStatus
  /** Another incarnation of this node has joined after this one. */
  readonly onReplaced: (why: string) => void
}

export interface Joining {
  readonly link: AgentLink
  readonly store: RemoteNodeStore
  /**
   * URL of the first server that takes the agent in; waits without limit. Rejects with `StartRefused` if a
   * retry cannot help.
   */
  readonly joined: Promise<string>
  /** Wall clock of the servers minus monotonic clock; `null` = not known yet. */
  readonly serverOffsetMs: () => number | null
}

/** Timeout from connecting to the end of the WebSocket handshake. */
const HANDSHAKE_TIMEOUT_MS = 5_000

/** Starts the link, which connects in the background. Throws `StartRefused`. */
export async function joinCluster(parts: JoiningParts): Promise<Joining> {
  const {config, clock, random, wakeup, log} = parts
  const {servers, limits, dataDirectory} = config
  const clusterId = await readClusterId(dataDirectory).catch((error: Error) => {
    throw new StartRefused(`${error.message}.`, {cause: error})
  })
  const own = await openOwnToken(parts)
  const tokenNow = () => parts.credentials().token
  const ended = [...recordIncarnation(dataDirectory, parts.node.incarnation)]
  const claims = new LocalClaims()
  const first = Promise.withResolvers<string>()
  let hasJoined = false
  const options = {handshakeMs: HANDSHAKE_TIMEOUT_MS, version: VERSION}
  const link = new AgentLink({
    dial: (url, handlers) => {
      const {token, ca} = parts.credentials()
      // A reload may bring a new token; a connection that is faster than the disk is refused, and retried.
      own.prepare(token).catch((error: unknown) => log.logger.error({err: error}, CANNOT_KEEP))
      return webSocketDial({...options, ca, token: own.tokenFor(token)})(url, handlers)
    },
    urls: servers,
    clock,
    random,
    describe: () => {
      const ownToken = own.digestFor(tokenNow())
      return {...describeNode(parts), ended, ownToken, ...claims.encoded()}
    },
    clusterId,
    saveClusterId: (id) => writeClusterId(dataDirectory, id),
    onIssued: () => own.issued(),
    limits,
    onNotify: (topic) => wakeup.notify(topic),
    onJoined: (url) => {
      if (hasJoined) log.logger.info({url}, 'joined again')
      hasJoined = true
      wakeup.notify('run')
      first.resolve(url)
    },
    onDisconnected: (sentence) => log.logger.warn(sentence),
    onRefused: (sentence, kind) => {
      if (kind === 'fenced' && hasJoined) parts.onReplaced(sentence)
      else if (kind === 'setting') first.reject(new SettingRefused(sentence))
      else first.reject(new StartRefused(sentence))
    },
  })
  let offsetMs: number | null = null
  const onServerTime = (now: number) => (offsetMs = now - clock.monotonicMs())
  const store = new RemoteNodeStore(link, claims, () => wakeup.notify('cancel'), onServerTime)
  link.start()
  return {link, store, joined: first.promise, serverOffsetMs: () => offsetMs}
}

const CANNOT_KEEP = 'the token of this agent cannot be written to its data directory'

async function openOwnToken({config, credentials, random}: JoiningParts): Promise<OwnToken> {
  try {
    const own = await OwnToken.open(config.dataDirectory, random)
    await own.prepare(credentials().token)
    return own
  } catch (error) {
    const problem = `The token of this agent cannot be kept: ${messageOf(error)}.`
    throw new StartRefused(problem, {cause: error})
  }
}

function describeNode({config, node, status}: JoiningParts) {
  const {nodeName, tags, slots} = config
  return {
    node: {...node, name: nodeName, tags: {...tags}, slots, version: VERSION},
    status: status(),
  }
}
