/**
 * A stretch of network between a client and a server, which a test can cut at the worst moment: just before
 * a commit reaches the server, just before its answer reaches the client, or silently in both directions.
 */
import {once} from 'node:events'
import {createServer, connect, type AddressInfo, type Server, type Socket} from 'node:net'

/** `request`: the commit never arrives. `answer`: it is carried out, and the answer never arrives. */
export type LostPart = 'request' | 'answer'

export class CutProxy {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #toLose: LostPart[] = []
  /** Nothing passes any more, and nobody is told. */
  isSilent = false
  /** What the server says does not come through; what it is told does. */
  losesAnswers = false

  private constructor(targetPort: number) {
    this.#server = createServer((client) => {
      const server = connect(targetPort, '127.0.0.1')
      for (const socket of [client, server]) {
        this.#sockets.add(socket)
        socket.on('close', () => this.#sockets.delete(socket))
        // Broken connections are what this is for.
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

  /** Of the next commits, one after the other, loses a part. */
  loseOfCommits(...parts: readonly LostPart[]): void {
    this.#toLose.push(...parts)
  }

  /** How many commits are still to be hit. */
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
