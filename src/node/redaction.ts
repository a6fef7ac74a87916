/**
 * Redaction: replaces values of secrets in what an execution prints, before anything else gets it. Values
 * are found across chunks, so the end of a chunk that may be the beginning of a value is held back: at
 * most the longest value minus one byte. Also found are the lines of a value, and its common encodings. A
 * command that transforms a value in another way can print it: redaction protects against accidents, not
 * against the author of a job.
 */
import {pause} from '../lib/pause.ts'
import {START, TextSearch} from '../lib/text-search.ts'
import type {OutputSink} from '../ports/executor.ts'
import type {Clock} from '../ports/runtime.ts'
import {FORM_LENGTH_MIN, formsOf} from './secret-forms.ts'

/** Written in place of a value. */
export const REDACTED = '[secret]'
const MARK = Buffer.from(REDACTED)
/** The forms of a longer value take more than 0.1 ms. */
const LONG_VALUE = 512

/** Line breaks that are ignored in a row: one, of two bytes. */
const BREAK_BYTES_MAX = 2
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d

/** A part of what was searched: `from` inclusive, `to` exclusive, in bytes since the beginning. */
interface Span {
  readonly from: number
  to: number
}

export class Redaction {
  readonly #search: TextSearch

  private constructor(search: TextSearch) {
    this.#search = search
  }

  /** Lets other work run in between: values of many KiB have many forms. */
  static async of(values: Iterable<string>, clock: Clock): Promise<Redaction> {
    const otherWork = () => pause(clock, 0)
    const texts: Buffer[] = []
    for (const value of values) {
      texts.push(...formsOf(value).map((text) => Buffer.from(text)))
      if (value.length > LONG_VALUE) await otherWork()
    }
    const steps = TextSearch.build(texts)
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done === true) return new Redaction(step.value)
      await otherWork()
    }
  }

  text(text: string): string {
    const parts: Uint8Array[] = []
    const sink = this.sink({write: (bytes) => parts.push(bytes) > 0, drained: () => undefined})
    sink.write(Buffer.from(text))
    sink.flush()
    return Buffer.concat(parts).toString()
  }

  sink(target: OutputSink): RedactedSink {
    return new RedactedSink(target, this.#search)
  }
}

/** Passes output on without values. */
export class RedactedSink implements OutputSink {
  readonly #target: OutputSink
  readonly #search: TextSearch
  #state = START
  /** Bytes searched: those written, without the line breaks that were ignored. */
  #searched = 0
  /** Held back. */
  #pending: Buffer = Buffer.alloc(0)
  /** Bytes searched before it. */
  #passed = 0
  /** Ignored line breaks of `#pending`: for each of their bytes, the bytes searched before it. */
  #ignored: number[] = []
  /** Values that end after `#passed`, in order. The mark of one that began before it is written. */
  #spans: Span[] = []
  #acceptsMore = true

  constructor(target: OutputSink, search: TextSearch) {
    this.#target = target
    this.#search = search
  }

  write(bytes: Uint8Array): boolean {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    for (let at = 0; at < chunk.length; at++) {
      const end = lineEnd(chunk, at)
      this.#state = this.#find(chunk.subarray(at, end))
      if (end < chunk.length) this.#readBreak(chunk.subarray(end, end + 1))
      at = end
    }
    const window = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    this.#pass(window, this.#searched - this.#search.depthOf(this.#state))
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
    this.#state = START
    this.#pass(this.#pending, this.#searched)
  }

  /** Returns the state after these bytes. */
  #find(bytes: Uint8Array): number {
    const before = this.#searched
    this.#searched += bytes.length
    return this.#search.search(bytes, this.#state, (end, length) =>
      this.#add(before + end - length, before + end),
    )
  }

  /**
   * Tools wrap base64 and hexadecimal. A line break that no value has here is ignored, after some bytes of
   * a value: the end of a usual line is not held back.
   */
  #readBreak(byte: Uint8Array): void {
    const isPart = this.#search.continuesWith(this.#state, byte[0]!)
    const isUsual = this.#search.depthOf(this.#state) < FORM_LENGTH_MIN
    const isRepeated = this.#ignored.at(-BREAK_BYTES_MAX) === this.#searched
    if (isPart || isUsual || isRepeated) this.#state = this.#find(byte)
    else this.#ignored.push(this.#searched)
  }

  /** Values that overlap are one: no part of either may be left. */
  #add(from: number, to: number): void {
    let last = this.#spans.at(-1)
    for (; last !== undefined && last.to > from; last = this.#spans.at(-1)) {
      if (last.from <= from) {
        last.to = to
        return
      }
      this.#spans.pop()
    }
    this.#spans.push({from, to})
  }

  /** Passes on the window up to `end`, in bytes searched, and holds back the rest. */
  #pass(window: Buffer, end: number): void {
    /** Position of a byte in the window. Calls ascend. */
    let ignored = 0
    const placeOf = (searched: number): number => {
      while (ignored < this.#ignored.length && this.#ignored[ignored]! <= searched) ignored++
      return searched - this.#passed + ignored
    }
    const parts: Uint8Array[] = []
    let at = 0
    for (const {from, to} of this.#spans) {
      if (from >= end) break
      if (from >= this.#passed) parts.push(window.subarray(at, placeOf(from)), MARK)
      // Behind its last byte; line breaks after it are shown.
      at = to > end ? placeOf(end) : placeOf(to - 1) + 1
    }
    const rest = placeOf(end)
    parts.push(window.subarray(at, rest))
    // A copy: a few bytes must not keep a whole chunk in memory.
    this.#pending = Buffer.from(window.subarray(rest))
    this.#ignored = this.#ignored.slice(ignored)
    this.#passed = end
    this.#spans = this.#spans.filter(({to}) => to > end)
    this.#send(parts.filter(({length}) => length > 0))
  }

  #send(parts: readonly Uint8Array[]): void {
    const [first, ...others] = parts
    if (first === undefined) return
    this.#acceptsMore = this.#target.write(others.length === 0 ? first : Buffer.concat(parts))
  }
}

/** Position of the next line break; the length if there is none. */
function lineEnd(chunk: Buffer, from: number): number {
  let at = from
  while (at < chunk.length && chunk[at] !== LINE_FEED && chunk[at] !== CARRIAGE_RETURN) at++
  return at
}
