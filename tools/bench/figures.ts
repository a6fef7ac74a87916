/**
 * What a benchmark has to say: figures, each with every sample it was made from, so that nobody has to
 * trust a single number from a noisy machine. Knows nothing of how they are measured or printed.
 */

export type Target = {readonly atLeast: number} | {readonly atMost: number}

export interface Figure {
  readonly section: string
  readonly name: string
  /** `/s`, `ms`, `MiB`, `×` (a ratio within this run) or `''` (a count). */
  readonly unit: string
  /** One for each round, in the order they were taken; of a latency the named quantile of that round. */
  readonly samples: readonly number[]
  readonly target: Target | null
}

export interface Summary {
  readonly median: number
  readonly low: number
  readonly high: number
}

/** Takes figures as they come; what has the same section and name is one figure with several samples. */
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
 * The value below which the part `q` of the samples lies; between two samples the line through them.
 * `NaN` of none.
 */
export function quantile(samples: readonly number[], q: number): number {
  const sorted = samples.toSorted((a, b) => a - b)
  const position = (sorted.length - 1) * q
  const below = sorted[Math.floor(position)] ?? NaN
  const above = sorted[Math.ceil(position)] ?? NaN
  return below + (above - below) * (position - Math.floor(position))
}

/** Whether the median is where it should be; `null` when nobody said where that is. */
export function meets({samples, target}: Pick<Figure, 'samples' | 'target'>): boolean | null {
  if (target === null) return null
  const {median} = summarise(samples)
  return 'atLeast' in target ? median >= target.atLeast : median <= target.atMost
}
