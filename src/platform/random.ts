/**
 * The machine's randomness behind the Random port. Dice are drawn from a refilled block, since every finish
 * and every target choice throws one and a system call for each would show.
 */
import {getRandomValues, randomBytes} from 'node:crypto'
import type {Random} from '../ports/runtime.ts'

/** 4 KiB a refill: one system call for a thousand dice. */
const DICE_PER_REFILL = 1024
const SIDES = 2 ** 32
/** 144 bits: more than the 128 promised, and a whole number of base64 characters. */
const ID_BYTES = 18

export function systemRandom(): Random {
  const dice = new Uint32Array(DICE_PER_REFILL)
  let used = DICE_PER_REFILL
  return {
    fraction: () => {
      if (used === DICE_PER_REFILL) {
        getRandomValues(dice)
        used = 0
      }
      return dice[used++]! / SIDES
    },
    id: () => randomBytes(ID_BYTES).toString('base64url'),
  }
}
