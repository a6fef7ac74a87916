/**
 * A stretch of network that can be cut: what was sent meanwhile waits, as a network stack holds it, and
 * nobody is told. Healed, it brings what waited, late and in order, or the connections turn out to be broken.
 * Beside `cut-proxy.ts`, which cuts at chosen commits.
 */
import {once} from 'node:events'
import {connect, createServer, type AddressInfo, type Server, type Socket} from 'node:net'

export class Stretch {
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

  /** On a port of its own; `target` is asked for the other end's at each connection. */
  static async to(target: () => number): Promise<Stretch> {
    const stretch = new Stretch(target)
    stretch.#server.listen(0, '127.0.0.1')
    await once(stretch.#server, 'listening')
    return stretch
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
    // Broken connections are what this is for.
    from.on('error', () => from.destroy())
    from.on('close', () => {
      this.#sockets.delete(from)
      // What the other end still sends has nobody to go to; what is on its way to it may arrive.
      if (to.writableLength > 0) to.end()
      else to.destroy()
    })
    if (this.#isCut) from.pause()
  }
}
