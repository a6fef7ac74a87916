/**
 * Faults of a definition, and warnings about it. Each finding belongs to a field, so that a form
 * can show it there. All faults are collected, within a bound, not only the first.
 */
import {escapeInvisible} from '../lib/quote.ts'

export interface Finding {
  /** Name as in JSON: `retries`, `tags.web`. `''` = the body as a whole. */
  readonly field: string
  /** Sentence without the field and the final period. */
  readonly problem: string
  /** Error code, if a client has to tell this fault from others. `field_unknown`: see `strict`. */
  readonly code?: 'parent_unknown' | 'field_unknown'
}

/** Faults in one reply: more than a person corrects in one go. Bounds the reply to a hostile body. */
export const FAULTS_MAX = 50

/** Faults reject the job, warnings are shown. */
export interface Findings {
  readonly faults: readonly Finding[]
  readonly warnings: readonly Finding[]
}

/** `retries: must be an integer`. */
export function sentenceOf({field, problem}: Finding): string {
  return field === '' ? problem : `${field}: ${problem}`
}

/** The field of the definition: `tags` for `tags.web`. */
export function rootOf({field}: Finding): string {
  const dot = field.indexOf('.')
  return dot === -1 ? field : field.slice(0, dot)
}

/** Collects faults up to the bound. */
export class FaultList {
  readonly all: Finding[] = []

  add(field: string, problem: string): void {
    if (this.all.length < FAULTS_MAX) this.all.push({field: escapeInvisible(field), problem})
  }
}
