/**
 * The query string: read into pairs by hand, because lists and maps come in several spellings
 * (`metadata[k]=v`, `metadata[]=k:v`, `metadata=k=v`), and into numbers and choices with a sentence for what
 * they are not.
 */

export interface Limits {
  readonly minimum: number
  readonly maximum: number
}

/** More filters than any client sends; bounds the work of one request. */
export const FILTERS_MAX = 64

/** A parameter that cannot be read. `message` is a sentence that names it. */
export class QueryProblem extends Error {
  override readonly name = 'QueryProblem'
}

/** Names and values in the order sent, percent-decoded; a wrong escape is taken as the text it is. */
export class Query {
  readonly pairs: readonly (readonly [string, string])[]

  constructor(text: string) {
    this.pairs = text === '' ? [] : [...new URLSearchParams(text)]
  }

  has(name: string): boolean {
    return this.pairs.some(([key]) => key === name)
  }

  /** The first value; `null` when absent. */
  first(name: string): string | null {
    return this.pairs.find(([key]) => key === name)?.[1] ?? null
  }

  /** As `first`, an empty value counting as absent. */
  text(name: string): string | null {
    const value = this.first(name)
    return value === '' ? null : value
  }

  /** One of the choices, compared as written; `null` when absent or empty. */
  choice<Choice extends string>(name: string, choices: readonly Choice[]): Choice | null {
    const value = this.text(name)
    if (value === null) return null
    const choice = choices.find((known) => known === value)
    if (choice === undefined)
      throw new QueryProblem(`${name}: "${shown(value)}" is not known; use ${choices.join(', ')}`)
    return choice
  }

  /** True or false; `null` when absent or empty. */
  flag(name: string): boolean | null {
    const choice = this.choice(name, ['true', 'false'])
    return choice === null ? null : choice === 'true'
  }

  /** Present with any value but `false`. */
  switched(name: string): boolean {
    const value = this.first(name)
    return value !== null && value !== 'false'
  }

  /** An integer inside the limits, else a problem; `fallback` when absent or empty. */
  integer(name: string, fallback: number, limits: Limits): number {
    const value = this.text(name)
    if (value === null) return fallback
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : NaN
    if (!(number >= limits.minimum && number <= limits.maximum))
      throw new QueryProblem(
        `${name}: must be an integer from ${limits.minimum} to ${limits.maximum}, not "${shown(value)}"`,
      )
    return number
  }

  /** An integer that is moved into the limits when it lies outside; `fallback` when absent or empty. */
  clamped<Fallback extends number | null>(
    name: string,
    fallback: Fallback,
    limits: Limits,
  ): number | Fallback {
    const value = this.text(name)
    if (value === null) return fallback
    if (!/^-?\d+$/.test(value))
      throw new QueryProblem(`${name}: must be an integer, not "${shown(value)}"`)
    return Math.min(limits.maximum, Math.max(limits.minimum, Number(value)))
  }
}

const SHOWN_LENGTH_MAX = 64

function shown(value: string): string {
  return value.length > SHOWN_LENGTH_MAX ? `${value.slice(0, SHOWN_LENGTH_MAX)}…` : value
}
