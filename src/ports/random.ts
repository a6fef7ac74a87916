/** Dice and ids; injected, so that a simulated run is repeatable. */
export interface Random {
  /** Uniform in [0, 1). Not for secrets. */
  dice(): number
  /** Unguessable, URL-safe, at least 128 bits. */
  id(): string
}
