/**
 * Agents and servers in one process: the real link and the real hub over a wire that is a function call, with
 * a clock turned by hand. A server can be silenced or taken away, as a network does.
 */
import {AgentLink} from '../../src/agents/client/link.ts'
import type {AgentSocket, Dial, SocketHandlers} from '../../src/agents/client/socket.ts'
import {HeldExecutions, RemoteNodeStore} from '../../src/agents/client/store.ts'
import {type AgentConnection, AgentHub} from '../../src/agents/server/hub.ts'
import {announceFinished} from '../../src/node/finisher.ts'
import {recoverNode} from '../../src/node/recover.ts'
import type {Store} from '../../src/ports/store.ts'
import {faultyStore} from '../support/faulty-store.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import type {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import type {VirtualClock} from '../support/virtual-clock.ts'

export interface Surroundings {
  readonly clock: VirtualClock
  readonly random: SeededRandom
  readonly store: Store
}

interface Wire {
  readonly handlers: SocketHandlers
  connection: AgentConnection | null
  closed: boolean
}

/** A server as agents see it. */
export class TestServer {
  readonly wakeup = new TestWakeup()
  readonly events = new RecordedEvents()
  readonly hub: AgentHub
  /** Says nothing and hears nothing, as behind a cable that was pulled. */
  isSilent = false
  /** Answers, and cannot reach the store. */
  isCutOff = false
  /** Hears nothing, and hears all of it when it wakes, as a process that was stopped. */
  isFrozen = false
  readonly #unheard: (() => void)[] = []
  /** Refuses connections, as a process that is gone. */
  isGone = false
  readonly wires = new Set<Wire>()
  /** Every text it was sent. */
  heard: string[] = []

  constructor({clock, random, store}: Surroundings, clusterId: string, nodeName = 'server') {
    const {wakeup, events} = this
    const reached = faultyStore(store, {fault: () => (this.isCutOff ? 'unavailable' : 'none')})
    this.hub = new AgentHub({
      store: reached,
      clock,
      random,
      wakeup,
      events,
      nodeName,
      clusterId,
      freshMs: 10_000,
      silentMs: 10_000,
      endPreviousIncarnations: (node, earlier) =>
        recoverNode({store: reached, random, wakeup, events}, node, earlier),
      announce: (outcomes) => announceFinished(outcomes, {wakeup, events}),
    })
    this.hub.start()
  }

  wake(): void {
    this.isFrozen = false
    for (const hear of this.#unheard.splice(0)) hear()
  }

  /** The process dies: its connections break. */
  die(): void {
    this.isGone = true
    for (const wire of this.wires) this.#close(wire, 'gone')
  }

  dialled(clock: VirtualClock, handlers: SocketHandlers): AgentSocket {
    const wire: Wire = {handlers, connection: null, closed: false}
    const later = (work: () => void) => void clock.after(1, () => wire.closed || work())
    if (this.isGone) later(() => this.#close(wire, 'refused'))
    else if (!this.isSilent) later(() => this.#open(wire, later))
    return {
      bufferedBytes: 0,
      send: (text) =>
        later(() => {
          if (this.isSilent) return
          this.heard.push(text)
          const hear = () => void wire.connection?.hear(text)
          if (this.isFrozen) this.#unheard.push(hear)
          else hear()
        }),
      // What arrived before it is heard first.
      cut: () => {
        if (this.isFrozen) this.#unheard.push(() => this.#close(wire, 'cut'))
        else this.#close(wire, 'cut')
      },
    }
  }

  #open(wire: Wire, later: (work: () => void) => void): void {
    this.wires.add(wire)
    wire.connection = this.hub.connect({
      address: '192.0.2.7',
      port: 40_000,
      send: (message) => later(() => this.isSilent || wire.handlers.heard(JSON.stringify(message))),
      close: () => later(() => this.#close(wire, 'closed')),
    })
    wire.handlers.opened()
  }

  #close(wire: Wire, reason: string): void {
    if (wire.closed) return
    wire.closed = true
    this.wires.delete(wire)
    wire.connection?.closed()
    wire.handlers.closed({reason, status: null})
  }
}

export interface AgentSettings {
  readonly name: string
  readonly id: string
  readonly incarnation: string
  readonly clusterId: string | null
}

/** One life of an agent: its link and its part of the store. */
export class TestAgent {
  readonly held = new HeldExecutions()
  readonly link: AgentLink
  readonly store: RemoteNodeStore
  readonly rings: string[] = []
  readonly joins: string[] = []
  readonly reports: string[] = []
  readonly refusals: string[] = []
  cluster: string | null = null

  constructor(
    {clock, random}: Surroundings,
    servers: Readonly<Record<string, TestServer>>,
    settings: Partial<AgentSettings> = {},
  ) {
    const {name = 'agent-a', clusterId = null} = settings
    const {id = `id-of-${name}-agent`, incarnation = 'first-life'} = settings
    const dial: Dial = (url, handlers) => servers[url]!.dialled(clock, handlers)
    this.link = new AgentLink({
      dial,
      urls: Object.keys(servers),
      clock,
      random,
      introduction: () => ({
        node: {id, incarnation, name, tags: {place: 'far'}, slots: 4, version: '1.0.0'},
        status: 'alive',
        ...this.held.inHand(),
      }),
      clusterId,
      remember: async (cluster) => void (this.cluster = cluster),
      silenceMs: 4_000,
      rang: (bell) => this.rings.push(bell),
      joined: (url) => this.joins.push(url),
      report: (sentence) => this.reports.push(sentence),
      refused: (sentence, kind) => this.refusals.push(`${kind}: ${sentence}`),
    })
    this.store = new RemoteNodeStore(this.link, this.held, () => this.rings.push('to_end'))
    this.link.start()
  }

  claim(token: string, room = 4) {
    return this.store.claim({nodeId: 'whatever', incarnation: 'whatever', token, room})
  }

  beat() {
    return this.store.beat({nodeId: 'whatever', incarnation: 'whatever', status: 'alive'})
  }
}
