/**
 * Benchmark figures, each with all its samples, because a single number from a noisy machine proves little.
 * Independent of how figures are measured and printed.
 */

export type Target = {readonly atLeast: number} | {readonly atMost: number}

export interface Figure {
  readonly section: string
  readonly name: string
  /** `/s`, `ms`, `MiB`, `×` (a ratio within this run) or `''` (a count). */
  readonly unit: string
  /** A sample for each round, in order; for a latency, the named quantile of that round. */
  readonly samples: readonly number[]
  readonly target: Target | null
}

export interface Summary {
  readonly median: number
  readonly low: number
  readonly high: number
}

/** Collects samples: the same section and name form one figure. */
export class Figures {
  readonly #byName = new Map<string, {figure: Omit<Figure, 'samples'>; samples: number[]}>()
  readonly #section: string

  constructor(section: string) {
    this.#section = section
  }

  add(name: string, unit: string, value: number, target: Target | null = null): void {
    const known = this.#byName.get(name)
    if (known === undefined) {
      const figure = {section: this.#section, name, unit, target}
      this.#byName.set(name, {figure, samples: [value]})
    } else {
      known.samples.push(value)
    }
  }

  get all(): readonly Figure[] {
    return [...this.#byName.values()].map(({figure, samples}) => ({...figure, samples}))
  }
}

export function summarise(samples: readonly number[]): Summary {
  const sorted = samples.toSorted((a, b) => a - b)
  return {median: quantile(sorted, 0.5), low: sorted[0] ?? NaN, high: sorted.at(-1) ?? NaN}
}

/**
 * Quantile `q` of the samples, with linear interpolation; `NaN` without samples.
 */
export function quantile(samples: readonly number[], q: number): number {
  const sorted = samples.toSorted((a, b) => a - b)
  const position = (sorted.length - 1) * q
  const below = sorted[Math.floor(position)] ?? NaN
  const above = sorted[Math.ceil(position)] ?? NaN
  return below + (above - below) * (position - Math.floor(position))
}

/** True if the median meets the target; `null` without a target. */
export function meets({samples, target}: Pick<Figure, 'samples' | 'target'>): boolean | null {
  if (target === null) return null
  const {median} = summarise(samples)
  return 'atLeast' in target ? median >= target.atLeast : median <= target.atMost
}
