/**
 * Places for connections, and which connection ends when none is free. Connections without a valid token
 * make way, the one that waited longest first: no stranger keeps out callers with a token, agents or probes.
 */
import type {Socket} from 'node:net'
import {isLoopback, networkOf} from './auth.ts'
import type {HttpLimits} from '../options.ts'

export type PlaceLimits = Pick<
  HttpLimits,
  'connectionsMax' | 'networkConnectionsPercent' | 'reservedConnectionsPercent'
>

/** Networks with a valid token. Bounds the memory: the one that had none for longest is dropped first. */
const KNOWN_NETWORKS_MAX = 10_000

/** Connection, as `Places` counts it. */
export interface Place {
  readonly socket: Socket
  readonly network: string
  /** Queue of connections that may be closed for a new one; `null` = it stays. */
  queue: Queue | null
  /** A request of it had a valid token. */
  isTrusted: boolean
  isClosed: boolean
}

/** The connection whose last request began or ended first is the first. */
type Queue = Set<Place>

export class Places {
  readonly #max: number
  readonly #networkMax: number
  readonly #reservedMax: number
  #taken = 0
  /** Connections without a token. */
  readonly #anonymous: Queue = new Set()
  /**
   * Connections without a token yet, from a known network or this machine. Others do not get these places.
   */
  readonly #reserved: Queue = new Set()
  /** Connections with a token, between two requests. */
  readonly #idle: Queue = new Set()
  /** Connections in `#anonymous` and `#reserved`. */
  readonly #byNetwork = new Map<string, Queue>()
  readonly #known = new Set<string>()

  constructor(limits: PlaceLimits) {
    const {connectionsMax, networkConnectionsPercent, reservedConnectionsPercent} = limits
    this.#max = connectionsMax
    this.#networkMax = Math.ceil((connectionsMax * networkConnectionsPercent) / 100)
    this.#reservedMax = Math.floor((connectionsMax * reservedConnectionsPercent) / 100)
  }

  /**
   * Takes a place for a new connection; if none is free, another connection ends, and `onEnded` is called.
   * `null` = none could end: all have a valid token and a request in progress.
   */
  take(socket: Socket, onEnded: () => void): Place | null {
    const address = socket.remoteAddress ?? ''
    const network = networkOf(address)
    const mayReserve = this.#known.has(network) || isLoopback(address)
    const own = this.#byNetwork.get(network)
    const isOverShare = own !== undefined && own.size >= this.#networkMax
    const keptFree = mayReserve ? 0 : this.#reservedMax - this.#reserved.size
    if (isOverShare || this.#taken + keptFree >= this.#max) {
      const ended = isOverShare ? first(own) : this.#leastNeeded(mayReserve)
      if (ended === undefined) return null
      this.free(ended)
      ended.socket.destroy()
      onEnded()
    }
    const queue = mayReserve ? this.#reserved : this.#anonymous
    const place: Place = {socket, network, queue, isTrusted: false, isClosed: false}
    this.#taken += 1
    this.#enqueue(place)
    if (this.#reserved.size > this.#reservedMax) this.#move(first(this.#reserved)!, this.#anonymous)
    return place
  }

  /** A request of the connection began, or the last one ended. */
  use(place: Place, isBusy: boolean): void {
    if (place.isTrusted) this.#move(place, isBusy ? null : this.#idle)
    else this.#move(place, place.queue)
  }

  /** A request of the connection has a valid token. */
  trust(place: Place): void {
    this.#known.delete(place.network)
    this.#known.add(place.network)
    if (this.#known.size > KNOWN_NETWORKS_MAX) this.#known.delete(first(this.#known)!)
    if (!place.isTrusted) this.#move(place, null)
    place.isTrusted = true
  }

  /** The connection is closed. Idempotent. */
  free(place: Place): void {
    if (place.isClosed) return
    this.#move(place, null)
    place.isClosed = true
    this.#taken -= 1
  }

  /** Strangers end before callers who may have a token, and those before callers who have one. */
  #leastNeeded(mayReserve: boolean): Place | undefined {
    const reserved = mayReserve ? first(this.#reserved) : undefined
    return first(this.#anonymous) ?? reserved ?? first(this.#idle)
  }

  /** Moves a place to the end of a queue. */
  #move(place: Place, queue: Queue | null): void {
    if (place.isClosed) return
    const own = this.#byNetwork.get(place.network)
    place.queue?.delete(place)
    own?.delete(place)
    if (own?.size === 0) this.#byNetwork.delete(place.network)
    place.queue = queue
    this.#enqueue(place)
  }

  #enqueue(place: Place): void {
    const {network, queue} = place
    if (queue === null) return
    queue.add(place)
    if (queue === this.#idle) return
    const own = this.#byNetwork.get(network)
    if (own === undefined) this.#byNetwork.set(network, new Set([place]))
    else own.add(place)
  }
}

function first<Item>(items: ReadonlySet<Item>): Item | undefined {
  const [item] = items
  return item
}
