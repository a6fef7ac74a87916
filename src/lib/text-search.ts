/**
 * Search of a stream of bytes for many texts at once, by the algorithm of Aho and Corasick. Time is linear
 * in the bytes searched, whatever the texts and the stream are: periodic texts, and texts that begin or end
 * like each other, cost no more. Takes nine bytes of memory for each byte of the texts; common beginnings
 * are stored once.
 */
import {assert} from './assert.ts'

/** Limit of one text: depths are stored in 16 bits. */
export const TEXT_BYTES_MAX = 0xffff
/** `build` yields after this many states. Each takes up to 0.2 µs. */
const STATES_PER_STEP = 16 * 1024

/** State before the first byte. */
export const START = 0

/**
 * A state is the longest end of the bytes so far that some text begins with. A text is a run of states with
 * ascending numbers; a text that begins like an earlier one branches off from its run.
 */
export class TextSearch {
  #count = 1
  /** Indexed by state: the byte that leads to it, and its number of bytes. */
  readonly #bytes: Uint8Array
  readonly #depths: Uint16Array
  /** Indexed by state: length of the longest text that ends here; 0 = none. */
  readonly #found: Uint16Array
  /** Indexed by state: the longest end of it that is another state with following states. */
  readonly #shorter: Int32Array
  /** Indexed by state: 1 = it is the first of its run. 2 = runs branch off from it. */
  readonly #flags: Uint8Array
  readonly #afterStart = new Int32Array(256)
  /** Indexed by state and byte: the run that branches off. */
  readonly #branches = new Map<number, number>()

  private constructor(capacity: number) {
    this.#bytes = new Uint8Array(capacity)
    this.#depths = new Uint16Array(capacity)
    this.#found = new Uint16Array(capacity)
    this.#shorter = new Int32Array(capacity)
    this.#flags = new Uint8Array(capacity)
  }

  /** Yields from time to time, because thousands of texts take longer than the event loop may wait. */
  static *build(texts: readonly Uint8Array[]): Generator<void, TextSearch> {
    // The extra state is needed: the state behind the last is read too.
    const search = new TextSearch(2 + texts.reduce((sum, {length}) => sum + length, 0))
    const heads: Head[] = []
    let left = STATES_PER_STEP
    for (const text of texts) {
      assert(text.length <= TEXT_BYTES_MAX, `a text has at most ${TEXT_BYTES_MAX} bytes`)
      const head = search.#add(text)
      if (head !== null) heads.push(head)
      if ((left -= text.length) > 0) continue
      left = STATES_PER_STEP
      yield
    }
    search.#flags[search.#count] = RUN_HEAD
    yield* search.#link(heads)
    return search
  }

  /** Number of states. */
  get size(): number {
    return this.#count
  }

  /** Number of the last bytes that may be the beginning of a text, but are not a whole one. */
  depthOf(state: number): number {
    return this.#depths[state]!
  }

  /** Some text that has the bytes of the state continues with this byte. */
  continuesWith(state: number, byte: number): boolean {
    return this.#following(state, byte) !== START
  }

  /**
   * Searches the next bytes. Calls `onFound` at the end of every text, with the longest that ends there:
   * its length, and how many of `bytes` it ends after. Returns the state for the bytes after these.
   */
  search(bytes: Uint8Array, state: number, onFound: (end: number, length: number) => void): number {
    let current = state
    for (let at = 0; at < bytes.length; at++) {
      current = this.#next(current, bytes[at]!)
      if (current === START) continue
      const length = this.#found[current]!
      if (length > 0) onFound(at + 1, length)
      if (this.#isLast(current)) current = this.#shorter[current]!
    }
    return current
  }

  #next(state: number, byte: number): number {
    let from = state
    while (from !== START) {
      const to = this.#following(from, byte)
      if (to !== START) return to
      from = this.#shorter[from]!
    }
    return this.#afterStart[byte]!
  }

  /** `START` = no text continues like this. */
  #following(state: number, byte: number): number {
    if (state === START) return this.#afterStart[byte]!
    const next = state + 1
    if (this.#bytes[next] === byte && !this.#isHead(next)) return next
    if ((this.#flags[state]! & BRANCHES) === 0) return START
    return this.#branches.get(state * 256 + byte) ?? START
  }

  /** No text continues after it. */
  #isLast(state: number): boolean {
    return (this.#flags[state]! & BRANCHES) === 0 && this.#isHead(state + 1)
  }

  #isHead(state: number): boolean {
    return (this.#flags[state]! & RUN_HEAD) !== 0
  }

  /** Returns the first of the states that it adds, if any. */
  #add(text: Uint8Array): Head | null {
    let parent = START
    let at = 0
    for (; at < text.length; at++) {
      const to = this.#following(parent, text[at]!)
      if (to === START || to >= this.#count) break
      parent = to
    }
    const head = at === text.length ? null : {parent, state: this.#count}
    if (head !== null) this.#branchOff(head, text[at]!)
    for (; at < text.length; at++) {
      parent = this.#count++
      this.#bytes[parent] = text[at]!
      this.#depths[parent] = at + 1
    }
    this.#found[parent] = text.length
    return head
  }

  #branchOff({parent, state}: Head, byte: number): void {
    this.#flags[state]! |= RUN_HEAD
    if (parent === START) this.#afterStart[byte] = state
    else {
      this.#flags[parent]! |= BRANCHES
      this.#branches.set(parent * 256 + byte, state)
    }
  }

  /** Sets `#shorter`, and in `#found` the texts that end within others. Shorter states come first. */
  *#link(heads: readonly Head[]): Generator<void> {
    const byDepth = Map.groupBy(heads, ({state}) => this.#depths[state]!)
    /** A state of each run that has this depth. */
    let states: number[] = []
    let left = STATES_PER_STEP
    for (let depth = 1; states.length > 0 || byDepth.size > 0; depth++) {
      for (const state of states) this.#linkState(state - 1, state)
      for (const {parent, state} of byDepth.get(depth) ?? []) {
        this.#linkState(parent, state)
        states.push(state)
      }
      byDepth.delete(depth)
      left -= states.length
      states = states.map((state) => state + 1).filter((state) => !this.#isHead(state))
      if (left > 0) continue
      left = STATES_PER_STEP
      yield
    }
  }

  #linkState(parent: number, state: number): void {
    const shorter =
      parent === START ? START : this.#next(this.#shorter[parent]!, this.#bytes[state]!)
    if (this.#found[state] === 0) this.#found[state] = this.#found[shorter]!
    this.#shorter[state] = this.#isLast(shorter) ? this.#shorter[shorter]! : shorter
  }
}

const RUN_HEAD = 1
const BRANCHES = 2

/** First state of a run, and the state that it branches off from. */
interface Head {
  readonly parent: number
  readonly state: number
}
