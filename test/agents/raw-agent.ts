/** A WebSocket to a server that says whatever a test wants, as an agent does that somebody else wrote. */
import {WebSocket} from 'ws'
import {PROTOCOL} from '../../src/agents/protocol.ts'
import type {Answer, Owner, ServerProcess} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'

export interface Farewell {
  readonly code: number
  readonly reason: string
}

/** What a server says, whatever its shape. */
type Heard = Answer['json']

export class RawAgent {
  readonly socket: WebSocket
  readonly heard: Heard[] = []
  /** Resolves when the connection is over. */
  readonly farewell: Promise<Farewell>

  private constructor(socket: WebSocket) {
    this.socket = socket
    socket.on('message', (data: Buffer) => this.heard.push(JSON.parse(data.toString())))
    // What becomes of the connection, its end says.
    socket.on('error', () => undefined)
    this.farewell = new Promise((resolve) =>
      socket.once('close', (code, reason) => resolve({code, reason: reason.toString()})),
    )
  }

  /** Connected, and nothing said. Cut with its test. */
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

  say(message: unknown): void {
    const isPlain = typeof message === 'string' || Buffer.isBuffer(message)
    this.socket.send(isPlain ? message : JSON.stringify(message))
  }

  /** The first message that it has heard, or will, and that has these fields. */
  hears(fields: Readonly<Record<string, unknown>>): Promise<Heard> {
    return until(JSON.stringify(fields), () =>
      this.heard.find((message) =>
        Object.entries(fields).every(([name, value]) => message[name] === value),
      ),
    )
  }

  /** Asks, and answers what the server says to it. */
  async ask(kind: string, id: number, body: Readonly<Record<string, unknown>>): Promise<Heard> {
    this.say({kind, id, ...body})
    return await this.hears({id})
  }

  /** Joins as an agent of that name, and answers when it is welcome. */
  async join(name: string): Promise<void> {
    this.say(aHello(name))
    await this.hears({kind: 'welcome'})
  }
}

/** A hello as an agent of that name sends it; `changes` spoil it. */
export function aHello(name: string, {node, ...changes}: Readonly<Record<string, unknown>> = {}) {
  return {
    kind: 'hello',
    protocol: PROTOCOL,
    clusterId: null,
    node: {
      id: `identity-of-${name}`,
      incarnation: 'only-life',
      name,
      tags: {raw: name},
      slots: 4,
      version: '1.0.0',
      ...(node as object | undefined),
    },
    joined: false,
    status: 'alive',
    held: [],
    claiming: null,
    ...changes,
  }
}
