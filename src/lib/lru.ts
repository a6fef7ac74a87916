/**
 * A bounded cache that keeps recently used entries. It has two generations instead of a strict LRU order, so
 * a hit costs one lookup and moves nothing. Use it only for pure results that the key alone decides: entries
 * are never invalidated.
 */
export class BoundedCache<Value> {
  readonly #generationMax: number
  #young = new Map<string, Value>()
  #old = new Map<string, Value>()

  /** Keeps at most `entriesMax` entries, and always the half of them used last. */
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
