/** Input and output of a benchmark section. */
import type {Figures} from './figures.ts'
import type {Plan} from './plan.ts'
import type {Scratch} from './scratch.ts'

export interface Bench {
  readonly plan: Plan
  readonly scratch: Scratch
  readonly figures: Figures
  /** True if there is time for another round or size; always for the first. */
  again(round: number, rounds: number): boolean
  /** Adds a sentence below the table: what a reader of the figures must know. */
  note(line: string): void
  /** Prints one line of progress. */
  say(line: string): void
}

export interface Section {
  readonly name: string
  measure(bench: Bench): Promise<void>
}
