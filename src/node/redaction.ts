/**
 * Redaction: replaces values of secrets in what an execution prints, before anything else gets it. Values
 * are found across chunks, so the end of a chunk that may be the beginning of a value is held back: at
 * most the longest value minus one byte. Also found are the lines of a value, and its common encodings. A
 * command that transforms a value in another way can print it: redaction protects against accidents, not
 * against the author of a job.
 */
import type {OutputSink} from '../ports/executor.ts'

/** Written in place of a value. */
export const REDACTED = '[secret]'
const MARK = Buffer.from(REDACTED)
/** A shorter part of a value, such as a line of it, is in every output. */
const PART_LENGTH_MIN = 6

/** A part of a buffer: `from` inclusive, `to` exclusive. */
interface Span {
  readonly from: number
  to: number
}

export class Redaction {
  readonly #needles: Needles

  constructor(values: Iterable<string>) {
    const texts = new Set([...values].flatMap(formsOf))
    this.#needles = new Needles([...texts].map((text) => Buffer.from(text)))
  }

  text(text: string): string {
    const parts: Uint8Array[] = []
    const sink = this.sink({write: (bytes) => parts.push(bytes) > 0, drained: () => undefined})
    sink.write(Buffer.from(text))
    sink.flush()
    return Buffer.concat(parts).toString()
  }

  sink(target: OutputSink): RedactedSink {
    return new RedactedSink(target, this.#needles)
  }
}

/** Bits of a hash of the first bytes of a text. With them, one in ten places has to be compared at most. */
const HASH_BITS = 12
const HASHED_BYTES = 4
/** 2^32 divided by the golden ratio: spreads similar texts. */
const SPREAD = 0x9e3779b1

/**
 * The texts to find, by a hash of their first bytes: one look at each byte, however many texts there are.
 * A search for each text would slow a chatty job with several secrets, and with it its node.
 */
class Needles {
  /** No two are equal; each is longer than the bytes that are hashed. */
  readonly all: readonly Buffer[]
  readonly #byHash = new Map<number, Buffer[]>()
  /** 1 = some text has this hash. */
  readonly #isUsed = new Uint8Array(2 ** HASH_BITS)

  constructor(all: readonly Buffer[]) {
    this.all = all
    for (const needle of all) {
      const hash = hashOf(needle.readInt32BE(0))
      this.#isUsed[hash] = 1
      const others = this.#byHash.get(hash)
      if (others === undefined) this.#byHash.set(hash, [needle])
      else others.push(needle)
    }
  }

  /** Where they are in the window; also parts of each other. */
  spansIn(window: Buffer): Span[] {
    const found: Span[] = []
    let word = 0
    for (let at = 0; at < window.length; at++) {
      // The last bytes up to here.
      word = (word << 8) | window[at]!
      const hash = hashOf(word)
      if (this.#isUsed[hash] === 0 || at < HASHED_BYTES - 1) continue
      const from = at - HASHED_BYTES + 1
      for (const needle of this.#byHash.get(hash)!) {
        const to = from + needle.length
        if (to <= window.length && window.compare(needle, 0, needle.length, from, to) === 0)
          found.push({from, to})
      }
    }
    return found
  }
}

function hashOf(word: number): number {
  return Math.imul(word, SPREAD) >>> (32 - HASH_BITS)
}

/** Passes output on without values. */
export class RedactedSink implements OutputSink {
  readonly #target: OutputSink
  readonly #needles: Needles
  /** Held back. */
  #pending: Buffer = Buffer.alloc(0)
  /** Length of the start of `#pending` that belongs to a value whose mark is written. */
  #marked = 0
  #acceptsMore = true

  constructor(target: OutputSink, needles: Needles) {
    this.#target = target
    this.#needles = needles
  }

  write(bytes: Uint8Array): boolean {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    const window = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    this.#pass(window, this.#heldFrom(window))
    return this.#acceptsMore
  }

  drained(callback: () => void): void {
    this.#target.drained(() => {
      this.#acceptsMore = true
      callback()
    })
  }

  /** Passes on what is held back. Call after the last write. */
  flush(): void {
    this.#pass(this.#pending, this.#pending.length)
  }

  /** Passes on the window up to `end`, and holds back the rest. */
  #pass(window: Buffer, end: number): void {
    const parts: Uint8Array[] = []
    let at = 0
    let marked = 0
    for (const {from, to} of this.#spansIn(window)) {
      const isMarked = from === 0 && this.#marked > 0
      if (from >= end && !isMarked) break
      parts.push(window.subarray(at, from))
      if (!isMarked) parts.push(MARK)
      at = Math.min(to, end)
      marked = Math.max(0, to - end)
    }
    parts.push(window.subarray(at, end))
    // A copy: a few bytes must not keep a whole chunk in memory.
    this.#pending = Buffer.from(window.subarray(end))
    this.#marked = marked
    this.#send(parts.filter(({length}) => length > 0))
  }

  #send(parts: readonly Uint8Array[]): void {
    const [first, ...others] = parts
    if (first === undefined) return
    this.#acceptsMore = this.#target.write(others.length === 0 ? first : Buffer.concat(parts))
  }

  /**
   * Values in the window, in order. Those that overlap are one span: no part of either may be left.
   */
  #spansIn(window: Buffer): readonly Span[] {
    const found = this.#needles.spansIn(window)
    if (this.#marked > 0) found.push({from: 0, to: this.#marked})
    const spans: Span[] = []
    for (const span of found.toSorted((one, other) => one.from - other.from)) {
      const last = spans.at(-1)
      if (last !== undefined && span.from < last.to) last.to = Math.max(last.to, span.to)
      else spans.push({...span})
    }
    return spans
  }

  /**
   * Where the longest end of the window begins that is the beginning of a value, but not a whole one.
   */
  #heldFrom(window: Buffer): number {
    let held = window.length
    for (const needle of this.#needles.all) {
      const first = needle[0]!
      let at = window.indexOf(first, Math.max(0, window.length - needle.length + 1))
      for (; at !== -1 && at < held; at = window.indexOf(first, at + 1)) {
        // Spares most of the comparisons, which cost a call each.
        if (at + 1 < window.length && window[at + 1] !== needle[1]) continue
        if (window.compare(needle, 0, window.length - at, at) === 0) held = at
      }
    }
    return held
  }
}

/** The texts that show a value: itself, its lines, and common encodings of it. */
function formsOf(value: string): string[] {
  const lines = value.split(/\r\n|\r|\n/).map((line) => line.trim())
  const plain = [value, value.trim(), value.replaceAll(/\r?\n/g, '\r\n'), ...lines]
  const bytes = Buffer.from(value.trim())
  const encoded = [
    encodeURIComponent(value),
    JSON.stringify(value).slice(1, -1),
    bytes.toString('hex'),
    bytes.toString('hex').toUpperCase(),
    ...base64Of(bytes, 'base64'),
    ...base64Of(bytes, 'base64url'),
    ...urlsOf(value.trim()),
  ]
  return [...plain, ...encoded].filter(({length}) => length >= PART_LENGTH_MIN)
}

/**
 * Base64 depends on the position of the value in what was encoded: `user:password`, for example.
 */
function base64Of(bytes: Buffer, encoding: 'base64' | 'base64url'): string[] {
  const inside = [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString(encoding)
    // Without the characters that also encode what is before or after it.
    return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6))
  })
  return [bytes.toString(encoding), ...inside]
}

/** A URL is shown as it is sent, for example with a slash after the host. */
function urlsOf(value: string): string[] {
  const url = /^https?:/i.test(value) ? URL.parse(value) : null
  return url === null ? [] : [url.href]
}
