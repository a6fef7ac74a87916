/**
 * Stops all use of a store for good when SQLite reports that its file is corrupt: every further write could
 * destroy more. It reports the damage once; the process must then end. Transient errors pass through.
 */
import {StoreDamaged} from '../../ports/store-errors.ts'

export class DamageGuard {
  readonly #onDamage: (error: StoreDamaged) => void
  #damage: StoreDamaged | null = null

  /** `onDamage` is called once. */
  constructor(onDamage: (error: StoreDamaged) => void) {
    this.#onDamage = onDamage
  }

  get isDamaged(): boolean {
    return this.#damage !== null
  }

  /** Throws the damage that was found; every call to the store begins with it. */
  check(): void {
    if (this.#damage !== null) throw this.#damage
  }

  /** Reports the first error that is damage. */
  note(error: unknown): void {
    if (this.#damage !== null || !(error instanceof StoreDamaged)) return
    this.#damage = error
    this.#onDamage(error)
  }
}
