/** What every section is given and what it fills. */
import type {Figures} from './figures.ts'
import type {Plan} from './plan.ts'
import type {Scratch} from './scratch.ts'

export interface Bench {
  readonly plan: Plan
  readonly scratch: Scratch
  readonly figures: Figures
  /** Whether there is time for another of so many, rounds or sizes; for the first there always is. */
  again(round: number, rounds: number): boolean
  /** One line on what is being done, for whoever waits. */
  say(line: string): void
}

export interface Section {
  readonly name: string
  measure(bench: Bench): Promise<void>
}
