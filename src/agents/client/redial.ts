/**
 * When and where an agent dials next: another server each time, after a wait that doubles and is never the
 * same for two agents. Five hundred of them that lost their server at once come back spread out.
 */
import type {Random} from '../../ports/random.ts'

/** The first wait: agents of a server that died come back over about a second. */
const FIRST_MS = 1_000
/** The longest: a server that returns is found again this soon, and is not run over meanwhile. */
const LONGEST_MS = 15_000

export class Redial {
  readonly #urls: readonly string[]
  readonly #random: Pick<Random, 'dice'>
  #next: number
  #failures = 0

  /** `urls` is not empty. Where it begins is a throw of the dice, so that servers share the agents. */
  constructor(urls: readonly string[], random: Pick<Random, 'dice'>) {
    this.#urls = urls
    this.#random = random
    this.#next = Math.floor(random.dice() * urls.length)
  }

  /** The server to dial now; the next call answers another, if there is one. */
  url(): string {
    const url = this.#urls[this.#next % this.#urls.length]!
    this.#next += 1
    return url
  }

  /** How long to wait before the next dial, after one that came to nothing. */
  failedMs(): number {
    // With several servers one round is made before the wait grows.
    const rounds = Math.floor(this.#failures / this.#urls.length)
    this.#failures += 1
    const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(rounds, 10))
    return most * (0.1 + 0.9 * this.#random.dice())
  }

  /** A server took us in. */
  succeeded(): void {
    this.#failures = 0
  }
}
