/** Random numbers and ids that repeat for the same seed. Ids are guessable: for tests only. */
import type {Random} from '../../src/ports/runtime.ts'

export class SeededRandom implements Random {
  readonly seed: number
  #state: number
  #ids = 0

  constructor(seed = 1) {
    this.seed = seed
    this.#state = seed | 0
  }

  /** Mulberry32: small, and good enough for tests. */
  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  id(): string {
    this.#ids += 1
    return `id-${this.seed}-${String(this.#ids).padStart(24, '0')}`
  }

  /** An integer in [low, high]. */
  between(low: number, high: number): number {
    return low + Math.floor(this.fraction() * (high - low + 1))
  }

  pick<Choice>(choices: readonly Choice[]): Choice {
    return choices[this.between(0, choices.length - 1)]!
  }

  chance(part: number): boolean {
    return this.fraction() < part
  }
}
