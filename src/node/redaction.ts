/**
 * Redaction: replaces values of secrets in what an execution prints, before anything else gets it. Values
 * are found across chunks, so the end of a chunk that may be the beginning of a value is held back: at
 * most the longest value minus one byte. Also found are the lines of a value, and its common encodings. A
 * command that transforms a value in another way can print it: redaction protects against accidents, not
 * against the author of a job.
 */
import {START, TextSearch} from '../lib/text-search.ts'
import type {OutputSink} from '../ports/executor.ts'
import type {Clock} from '../ports/runtime.ts'

/** Written in place of a value. */
export const REDACTED = '[secret]'
const MARK = Buffer.from(REDACTED)
/** A shorter part of a value, such as a line of it, is in every output. */
const PART_LENGTH_MIN = 6
/** The forms of a longer value take more than 0.1 ms. */
const LONG_VALUE = 512

/** A part of the output: `from` inclusive, `to` exclusive, in bytes since its beginning. */
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
    const otherWork = () => new Promise<void>((resolve) => clock.after(0, resolve))
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
  /** Held back. */
  #pending: Buffer = Buffer.alloc(0)
  /** Where it begins. */
  #passed = 0
  /** Values that end after it, in order. The mark of one that began before it is written. */
  #spans: Span[] = []
  #acceptsMore = true

  constructor(target: OutputSink, search: TextSearch) {
    this.#target = target
    this.#search = search
  }

  write(bytes: Uint8Array): boolean {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    const before = this.#passed + this.#pending.length
    this.#state = this.#search.search(chunk, this.#state, (end, length) =>
      this.#add(before + end - length, before + end),
    )
    const window = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk])
    this.#pass(window, window.length - this.#search.depthOf(this.#state))
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
    this.#pass(this.#pending, this.#pending.length)
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

  /** Passes on `length` bytes of the window, and holds back the rest. */
  #pass(window: Buffer, length: number): void {
    const end = this.#passed + length
    const part = (from: number, to: number) =>
      window.subarray(from - this.#passed, to - this.#passed)
    const parts: Uint8Array[] = []
    let at = this.#passed
    for (const {from, to} of this.#spans) {
      if (from >= end) break
      if (from >= this.#passed) parts.push(part(at, from), MARK)
      at = Math.min(to, end)
    }
    parts.push(part(at, end))
    // A copy: a few bytes must not keep a whole chunk in memory.
    this.#pending = Buffer.from(part(end, this.#passed + window.length))
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
  return [...new Set([...plain, ...encoded])].filter(({length}) => length >= PART_LENGTH_MIN)
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
