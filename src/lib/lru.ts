/**
 * A bounded memory for pure results: what was asked for lately stays, the rest is forgotten and
 * computed again. Two generations instead of a strict order of use: a hit costs one look-up, and
 * nothing is moved around. It never holds anything that could be wrong later, only what the key
 * alone decides.
 */
export class BoundedCache<Value> {
  readonly #generationMax: number
  #young = new Map<string, Value>()
  #old = new Map<string, Value>()

  /** Holds at most `entriesMax` entries, and at least the half of that used last. */
  constructor(entriesMax: number) {
    this.#generationMax = Math.max(1, Math.floor(entriesMax / 2))
  }

  get size(): number {
    return this.#young.size + this.#old.size
  }

  get(key: string): Value | undefined {
    const young = this.#young.get(key)
    if (young !== undefined) return young
    const old = this.#old.get(key)
    if (old !== undefined) {
      this.#old.delete(key)
      this.set(key, old)
    }
    return old
  }

  set(key: string, value: Value): void {
    if (this.#young.size >= this.#generationMax && !this.#young.has(key)) {
      this.#old = this.#young
      this.#young = new Map()
    }
    this.#young.set(key, value)
  }
}
