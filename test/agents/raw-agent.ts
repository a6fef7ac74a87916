/** WebSocket client that sends any message to a server, as a foreign or hostile agent may. */
import {WebSocket} from 'ws'
import {PROTOCOL} from '../../src/agents/protocol.ts'
import type {Answer, Owner, ServerProcess} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'

export interface Closing {
  readonly code: number
  readonly reason: string
}

/** A message of a server, of any shape. */
type Received = Answer['json']

export class RawAgent {
  readonly socket: WebSocket
  readonly received: Received[] = []
  /** Resolves when the connection is closed. */
  readonly closing: Promise<Closing>

  private constructor(socket: WebSocket) {
    this.socket = socket
    socket.on('message', (data: Buffer) => this.received.push(JSON.parse(data.toString())))
    // Every error ends the connection, and `closing` reports it.
    socket.on('error', () => undefined)
    this.closing = new Promise((resolve) =>
      socket.once('close', (code, reason) => resolve({code, reason: reason.toString()})),
    )
  }

  /** Connects and sends nothing. Terminated with its test. */
  static async connect(t: Owner, {url}: ServerProcess, token: string): Promise<RawAgent> {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/agent`, {
      headers: {'x-service-token': token},
    })
    t.after(() => socket.terminate())
    const agent = new RawAgent(socket)
    const opened = new Promise((resolve) => socket.once('open', resolve))
    await within(opened, 'the connection opens', 20_000)
    return agent
  }

  send(message: unknown): void {
    const isPlain = typeof message === 'string' || Buffer.isBuffer(message)
    this.socket.send(isPlain ? message : JSON.stringify(message))
  }

  /** Resolves with the first message, past or future, that has these fields. */
  receives(fields: Readonly<Record<string, unknown>>): Promise<Received> {
    return until(JSON.stringify(fields), () =>
      this.received.find((message) =>
        Object.entries(fields).every(([name, value]) => message[name] === value),
      ),
    )
  }

  /** Resolves with the reply. */
  async request(kind: string, id: number, body: Readonly<Record<string, unknown>>) {
    this.send({kind, id, ...body})
    return await this.receives({id})
  }

  /** Joins as an agent of that name; resolves when it is welcomed. */
  async join(name: string): Promise<void> {
    this.send(aHello(name))
    await this.receives({kind: 'welcome'})
  }
}

/** Valid hello of an agent with that name, but for `changes`. */
export function aHello(name: string, {node, ...changes}: Readonly<Record<string, unknown>> = {}) {
  return {
    kind: 'hello',
    protocol: PROTOCOL,
    clusterId: null,
    node: {
      id: `identity-of-${name}`,
      incarnation: 'only-incarnation',
      name,
      tags: {raw: name},
      slots: 4,
      version: '1.0.0',
      ...(node as object | undefined),
    },
    joined: false,
    status: 'alive',
    ended: [],
    activeClaims: [],
    pendingToken: null,
    ownToken: null,
    ...changes,
  }
}
