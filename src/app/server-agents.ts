/** The agents' side of a server, wired: what connected agents ask goes to this server's store. */
import {AgentHub} from '../agents/server/hub.ts'
import {announceFinished} from '../node/finisher.ts'
import {returnNode} from '../node/recover.ts'
import type {StoreParts} from './store.ts'
import type {Store} from '../ports/store.ts'
import type {Wakeup} from '../ports/wakeup.ts'

export interface AgentParts extends StoreParts {
  readonly store: Store
  readonly wakeup: Wakeup
}

/** Started; `stop` sends the agents to other servers. */
export async function startAgentHub(parts: AgentParts): Promise<AgentHub> {
  const {config, store, clock, random, events, wakeup} = parts
  const {clusterId} = await store.facts()
  const {limits} = config
  const hub = new AgentHub({
    store,
    clock,
    random,
    events,
    wakeup,
    clusterId,
    nodeName: config.nodeName,
    freshMs: limits.failedAfterMs,
    silentMs: limits.failedAfterMs,
    endEarlierLives: (node, earlier) => returnNode({store, random, wakeup, events}, node, earlier),
    announce: (outcomes) => announceFinished(outcomes, {wakeup, events}),
  })
  hub.start()
  return hub
}
