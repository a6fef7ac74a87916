/**
 * A TCP proxy that simulates a network partition. While it is cut, data waits as in a network stack and
 * neither end is notified. When it heals, the data arrives late and in order, or the connections turn out
 * broken. For a cut at a chosen commit, see `cut-proxy.ts`.
 */
import {once} from 'node:events'
import {connect, createServer, type AddressInfo, type Server, type Socket} from 'node:net'

export class CuttableLink {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isCut = false

  private constructor(target: () => number) {
    this.#server = createServer((near) => {
      const far = connect(target(), '127.0.0.1')
      this.#add(near, far)
      this.#add(far, near)
    })
  }

  /** Listens on its own port; `target` returns the port of the other end for each connection. */
  static async to(target: () => number): Promise<CuttableLink> {
    const link = new CuttableLink(target)
    link.#server.listen(0, '127.0.0.1')
    await once(link.#server, 'listening')
    return link
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  cut(): void {
    this.#isCut = true
    for (const socket of this.#sockets) socket.pause()
  }

  heal(how: 'brings' | 'breaks'): void {
    this.#isCut = false
    for (const socket of this.#sockets) {
      if (how === 'breaks') socket.destroy()
      else socket.resume()
    }
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #add(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    from.on('data', (bytes) => to.write(bytes))
    from.on('end', () => to.end())
    // Broken connections are the purpose of this proxy.
    from.on('error', () => from.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      // Data already on its way may still arrive; data from the other end has no receiver.
      if (to.writableLength > 0) to.end()
      else to.destroy()
    })
    if (this.#isCut) from.pause()
  }
}
