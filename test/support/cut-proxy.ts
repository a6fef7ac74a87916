/**
 * A proxy between a client and a server that a test cuts at the worst moment: just before a commit reaches
 * the server, just before its reply reaches the client, or in both directions without an error.
 */
import {once} from 'node:events'
import {createServer, connect, type AddressInfo, type Server, type Socket} from 'node:net'

/** `request`: the commit never arrives. `answer`: it is carried out, but the reply never arrives. */
export type LostPart = 'request' | 'answer'

export class CutProxy {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #toLose: LostPart[] = []
  /** Drops all data in both directions without closing a connection. */
  isSilent = false
  /** Drops data from the server; data to the server passes. */
  losesAnswers = false

  private constructor(targetPort: number) {
    this.#server = createServer((client) => {
      const server = connect(targetPort, '127.0.0.1')
      for (const socket of [client, server]) {
        this.#sockets.add(socket)
        socket.on('close', () => this.#sockets.delete(socket))
        // Broken connections are the purpose of this proxy.
        socket.on('error', () => socket.destroy())
      }
      client.on('close', () => server.destroy())
      server.on('close', () => client.destroy())
      this.#join(client, server)
    })
  }

  static async open(targetPort: number): Promise<CutProxy> {
    const proxy = new CutProxy(targetPort)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Parts to lose, one for each of the next commits. */
  loseOfCommits(...parts: readonly LostPart[]): void {
    this.#toLose.push(...parts)
  }

  /** Number of commits still to be hit. */
  get commitsToLose(): number {
    return this.#toLose.length
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #join(client: Socket, server: Socket): void {
    let isAnswerLost = false
    client.on('data', (bytes) => {
      const lost = bytes.includes('COMMIT\0') ? this.#toLose.shift() : undefined
      if (lost === 'request') {
        client.destroy()
        return
      }
      isAnswerLost = lost === 'answer'
      if (!this.isSilent) server.write(bytes)
    })
    server.on('data', (bytes) => {
      if (isAnswerLost) client.destroy()
      else if (!this.isSilent && !this.losesAnswers) client.write(bytes)
    })
  }
}
