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

  /** The error that every call gets; `null` = no damage was found. */
  get damage(): StoreDamaged | null {
    return this.#damage
  }

  async use<Result>(call: () => Promise<Result>): Promise<Result> {
    if (this.#damage !== null) throw this.#damage
    try {
      return await call()
    } catch (error) {
      if (error instanceof StoreDamaged && this.#damage === null) {
        this.#damage = error
        this.#onDamage(error)
      }
      throw error
    }
  }
}
