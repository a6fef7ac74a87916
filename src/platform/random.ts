/**
 * System randomness behind the Random port. Fractions come from a refilled block: every finish and every
 * target choice takes one, and a system call for each would cost measurable time.
 */
import {getRandomValues, randomBytes} from 'node:crypto'
import type {Random} from '../ports/runtime.ts'

/** 4 KiB a refill: one system call for a thousand fractions. */
const NUMBERS_PER_REFILL = 1024
const NUMBER_RANGE = 2 ** 32
/** 144 bits: more than the 128 promised, and a whole number of base64 characters. */
const ID_BYTES = 18

export function systemRandom(): Random {
  const numbers = new Uint32Array(NUMBERS_PER_REFILL)
  let used = NUMBERS_PER_REFILL
  return {
    fraction: () => {
      if (used === NUMBERS_PER_REFILL) {
        getRandomValues(numbers)
        used = 0
      }
      return numbers[used++]! / NUMBER_RANGE
    },
    id: () => randomBytes(ID_BYTES).toString('base64url'),
  }
}
