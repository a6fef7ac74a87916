/**
 * Time zones as tables of stretches with one offset each, read once from the runtime's rules through
 * Temporal. A call to Temporal costs microseconds, a table lookup a few nanoseconds. Offsets such
 * as `+02:00` are not zones: they have no rules.
 */
import {assert} from '../../lib/assert.ts'
import {BoundedCache} from '../../lib/lru.ts'

/** A stretch of time with one offset, in ms. A wall time is a wall clock reading taken as if it were UTC. */
export interface ZoneStretch {
  /** First instant; whole seconds. */
  readonly from: number
  /** Exclusive. */
  readonly until: number
  /** Wall clock minus UTC. */
  readonly offsetMs: number
  /**
   * Highest wall time (exclusive) that the clock showed before `from`. If it is below `from + offsetMs`,
   * the wall times between do not exist. If it is above, the wall times between are repeated.
   */
  readonly reachedWall: number
}

/** The offsets of a zone, for the years 1 to 9999 and some centuries around. */
export interface Zone {
  /** Canonical spelling. */
  readonly name: string
  /** The stretch that contains the instant. A long stretch may come in several pieces. */
  stretchAt(instant: number): ZoneStretch
}

/** No IANA zone was ever more than 16 hours from UTC; two days leave room for future rules. */
export const OFFSET_MAX_MS = 48 * 3600 * 1000

/** Transitions are read in blocks of 34 years: some 70 of them, tens of microseconds, a few KB. */
const BLOCK_MS = 2 ** 30 * 1000

const NS_PER_MS = 1_000_000

/** Names in the cache: more than the IANA database has. Only unusual spellings reach the limit. */
const NAMES_MAX = 1000

/** `Area/Place` and the old single names. Excludes offsets and ISO texts with a zone in brackets. */
const NAME_SHAPE = /^[A-Za-z][A-Za-z0-9_+-]*(?:\/[A-Za-z0-9_+-]+)*$/
const NAME_LENGTH_MAX = 64

const zones = new BoundedCache<Zone>(NAMES_MAX)

/** True for IANA names of this runtime and `UTC`, in any case; false for offsets such as `+02:00`. */
export function isKnownZone(zone: string): boolean {
  return findZone(zone) !== null
}

/**
 * The zone of that name; `null` when this runtime does not know it. Cached: a repeated call costs
 * 0.1 µs.
 */
export function findZone(name: string): Zone | null {
  const known = zones.get(name)
  if (known !== undefined) return known
  const canonical = canonicalName(name)
  if (canonical === null) return null
  const zone = zones.get(canonical) ?? new ZoneTable(canonical)
  zones.set(canonical, zone)
  if (canonical !== name) zones.set(name, zone)
  return zone
}

function canonicalName(name: string): string | null {
  if (name.length > NAME_LENGTH_MAX || !NAME_SHAPE.test(name)) return null
  try {
    return new Temporal.ZonedDateTime(0n, name).timeZoneId
  } catch (error) {
    // Temporal has no other test for a name. Any other error is an internal fault.
    if (error instanceof RangeError) return null
    throw error
  }
}

class ZoneTable implements Zone {
  readonly name: string
  readonly #blocks = new Map<number, readonly ZoneStretch[]>()
  /** The last result. Most calls are about now. */
  #latest: ZoneStretch

  constructor(name: string) {
    this.name = name
    this.#latest = this.#find(0)
  }

  stretchAt(instant: number): ZoneStretch {
    const latest = this.#latest
    if (instant >= latest.from && instant < latest.until) return latest
    return (this.#latest = this.#find(instant))
  }

  #find(instant: number): ZoneStretch {
    const index = Math.floor(instant / BLOCK_MS)
    let block = this.#blocks.get(index)
    if (block === undefined) {
      block = readBlock(this.name, index * BLOCK_MS, (index + 1) * BLOCK_MS)
      this.#blocks.set(index, block)
    }
    let low = 0
    let high = block.length - 1
    while (low < high) {
      const middle = (low + high + 1) >>> 1
      if (block[middle]!.from <= instant) low = middle
      else high = middle - 1
    }
    return block[low]!
  }
}

/**
 * The stretches that cover [from, until), cut at both ends. Reading starts earlier, to find a repeated
 * hour that began before `from`.
 */
function readBlock(name: string, from: number, until: number): ZoneStretch[] {
  let cursor = zonedAt(from - 2 * OFFSET_MAX_MS, name)
  // Never part of a result: the first piece ends, or is cut, before the block gets its first entry.
  let reachedWall = -Infinity
  const block: ZoneStretch[] = []
  for (;;) {
    const starts = cursor.epochMilliseconds
    const offsetMs = cursor.offsetNanoseconds / NS_PER_MS
    const next: Temporal.ZonedDateTime | null = cursor.getTimeZoneTransition('next')
    const ends = next === null ? Infinity : next.epochMilliseconds
    assert(ends > starts, `transitions of ${name} must move forward`)
    if (ends > from) {
      const cut = Math.max(starts, from)
      if (cut > starts) reachedWall = Math.max(reachedWall, cut + offsetMs)
      block.push({from: cut, until: Math.min(ends, until), offsetMs, reachedWall})
    }
    if (next === null || ends >= until) return block
    reachedWall = Math.max(reachedWall, ends + offsetMs)
    cursor = next
  }
}

function zonedAt(instant: number, name: string): Temporal.ZonedDateTime {
  return Temporal.Instant.fromEpochMilliseconds(instant).toZonedDateTimeISO(name)
}
