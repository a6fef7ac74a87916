/**
 * A proxy that delays data in both directions, as a distant server would, and counts round trips: a request
 * starts one if it is sent after a reply was received. Requests sent before that share one.
 */
import {once} from 'node:events'
import {connect, createServer, type AddressInfo, type Server, type Socket} from 'node:net'
import {systemClock} from '../../src/platform/clock.ts'

export class DistantProxy {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #delayMs: number
  #roundTrips = 0

  private constructor(targetPort: number, delayMs: number) {
    this.#delayMs = delayMs
    this.#server = createServer((client) => {
      const server = connect(targetPort, '127.0.0.1')
      for (const socket of [client, server]) {
        socket.setNoDelay()
        this.#sockets.add(socket)
        socket.on('close', () => this.#sockets.delete(socket))
        socket.on('error', () => socket.destroy())
      }
      client.on('close', () => server.destroy())
      server.on('close', () => client.destroy())
      this.#join(client, server)
    })
  }

  /** `delayMs`: of each direction. */
  static async open(targetPort: number, delayMs: number): Promise<DistantProxy> {
    const proxy = new DistantProxy(targetPort, delayMs)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Round trips of all connections that `work` waits for. Nothing else may use the proxy meanwhile. */
  async roundTripsOf<Result>(work: () => Promise<Result>): Promise<[number, Result]> {
    // Replies to statements that are not waited for arrive first.
    await this.#after(6 * this.#delayMs)
    const before = this.#roundTrips
    const result = await work()
    return [this.#roundTrips - before, result]
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #join(client: Socket, server: Socket): void {
    let isReplied = true
    const [toServer, toClient] = [this.#delayed(), this.#delayed()]
    client.on('data', (bytes) => {
      if (isReplied) this.#roundTrips += 1
      isReplied = false
      toServer(() => server.write(bytes))
    })
    server.on('data', (bytes) => {
      toClient(() => {
        isReplied = true
        client.write(bytes)
      })
    })
  }

  /** Calls back later, in order: timers may fire in another order than they were started. */
  #delayed(): (arrive: () => void) => void {
    let last: Promise<unknown> = Promise.resolve()
    return (arrive) => {
      last = Promise.all([last, this.#after(this.#delayMs)]).then(arrive)
    }
  }

  #after(delayMs: number): Promise<void> {
    return new Promise((resolve) => void systemClock().after(delayMs, resolve))
  }
}
