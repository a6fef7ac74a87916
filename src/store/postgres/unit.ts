/**
 * What goes into one transaction: writes in the order their plan asks for, those that can be joined as one
 * step. Knows neither the connection nor what may go wrong.
 */
import type {Step} from '../sql/query.ts'
import type {Transaction} from '../sql/transaction.ts'
import {writeStep, type WriteName} from '../sql/writes.ts'
import {lockDefinitions, lockNames, WRITE_PLANS} from './write-plan.ts'

export interface Write {
  readonly name: WriteName
  readonly input: readonly unknown[]
}

/** Writes that are one step: one, or several that were joined. */
export interface Unit {
  readonly name: WriteName
  readonly writes: readonly Write[]
}

export function alone(write: Write): Unit {
  return {name: write.name, writes: [write]}
}

/** In the order their plan asks for, those that can be joined as one. */
export function joined(writes: readonly Write[]): Unit[] {
  const units: Unit[] = []
  for (const write of sorted(writes)) {
    const last = units.at(-1)
    if (last?.name === write.name && WRITE_PLANS[write.name].merge !== null)
      units[units.length - 1] = {name: write.name, writes: [...last.writes, write]}
    else units.push(alone(write))
  }
  return units
}

function sorted(writes: readonly Write[]): readonly Write[] {
  const keyOf = ({name, input}: Write) => WRITE_PLANS[name].sortKey?.(input) ?? ''
  return writes.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
}

/** What carries the unit out. */
export function stepOf(tx: Transaction, {name, writes}: Unit): Step<unknown> {
  const inputs = writes.map(({input}) => input)
  const {merge} = WRITE_PLANS[name]
  return writeStep(name)(tx, ...(merge === null ? inputs[0]! : merge.join(inputs)))
}

/** The answer of each of the unit's writes, out of what its step answered. */
export function answersOf({name, writes}: Unit, result: unknown): unknown[] {
  const {merge} = WRITE_PLANS[name]
  const inputs = writes.map(({input}) => input)
  return merge === null ? [result] : merge.split(inputs, result)
}

/** Locks taken before the first step of a transaction. All units are of one lane. */
export function* locksFor(units: readonly Unit[]): Step<void> {
  const writes = units.flatMap((unit) => unit.writes)
  const [first] = writes
  if (first === undefined) return
  if (WRITE_PLANS[first.name].lane === 'jobs') yield* lockDefinitions(writes)
  else if (first.name === 'join') yield* lockNames()
}

/** Doing it again changes nothing and answers the truth. */
export function isRepeatable({writes}: Unit): boolean {
  return writes.every(({name, input}) => WRITE_PLANS[name].isRepeatable(input))
}
