/**
 * How often an address failed to show a valid token lately. Only failures are counted and only failures are
 * held back: whoever has a valid token is never slowed down by somebody else behind the same address.
 * Bounded, forgetful.
 */
import ipaddr from 'ipaddr.js'
import type {Clock} from '../ports/runtime.ts'

export const FAILURES_MAX = 200
export const WINDOW_MS = 10_000
/** Addresses remembered at once; the one seen first goes first. */
const ADDRESSES_MAX = 10_000

interface Window {
  readonly since: number
  count: number
}

export class Failures {
  readonly #clock: Clock
  readonly #windows = new Map<string, Window>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Counts one failure; true when the address has had more than it may have within the window. */
  count(address: string): boolean {
    const place = placeOf(address)
    const now = this.#clock.monotonicMs()
    const known = this.#windows.get(place)
    if (known !== undefined && now - known.since < WINDOW_MS) {
      known.count += 1
      return known.count > FAILURES_MAX
    }
    this.#windows.delete(place)
    if (this.#windows.size >= ADDRESSES_MAX) {
      const [oldest] = this.#windows.keys()
      if (oldest !== undefined) this.#windows.delete(oldest)
    }
    this.#windows.set(place, {since: now, count: 1})
    return false
  }
}

/** An IPv6 host has a whole /64 to choose its addresses from, so that counts as one place. */
function placeOf(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}
