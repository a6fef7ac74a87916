/** Slots of a node: claims ahead, and ends that free a slot once. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {executionId} from '../../src/core/execution.ts'
import type {ExecutionRun} from '../../src/node/execution-run.ts'
import {Slots} from '../../src/node/slots.ts'

/** Runs with the same group have the same execution id. */
function aRun(group: number, more: {claimedAt?: number; isStopping?: boolean} = {}): ExecutionRun {
  const claim = {key: {group, node: 'node-1', attempt: 1}}
  const id = executionId(claim.key)
  return {id, claim, claimedAt: 0, isStopping: false, ...more} as unknown as ExecutionRun
}

test('executions beyond the free slots wait; an end makes room for the oldest', () => {
  const slots = new Slots(2)
  const [first, second, third, fourth] = [aRun(1), aRun(2), aRun(3), aRun(4)] as const
  slots.add([first, second, third, fourth])
  assert.deepEqual(slots.occupyFree(), [first, second])
  assert.deepEqual(slots.occupyFree(), [])
  slots.ended(first, 0)
  slots.ended(first, 0)
  assert.equal(slots.freeCount, 1)
  assert.deepEqual(slots.occupyFree(), [third])
  assert.deepEqual(slots.takeAhead(0), [fourth])
})

test('the end of a run that was given up leaves the slot to the next run of its execution', () => {
  const slots = new Slots(2)
  const [givenUp, again] = [aRun(1), aRun(1)] as const
  slots.add([givenUp])
  slots.occupyFree()
  slots.add([again])
  slots.occupyFree()
  slots.ended(givenUp, 0)
  assert.equal(slots.get(again.claim.key), again)
  slots.ended(again, 0)
  assert.ok(slots.isEmpty)
})

test('executions that were stopped before their start leave the queue even without a free slot', () => {
  const slots = new Slots(1)
  const [running, waiting, stopped] = [aRun(1), aRun(2), aRun(3, {isStopping: true})] as const
  slots.add([running, waiting, stopped])
  assert.deepEqual(slots.occupyFree(), [running])
  assert.deepEqual(slots.occupyStopped(), [stopped])
  assert.equal(slots.freeCount, 0)
  slots.ended(running, 0)
  assert.deepEqual(slots.occupyFree(), [], 'the stopped one still ends')
  slots.ended(stopped, 0)
  assert.deepEqual(slots.occupyFree(), [waiting])
})

test('claims ahead follow the rate at which slots become free', () => {
  const slots = new Slots(8)
  slots.claimed(0, 10)
  assert.equal(slots.aheadCount, 0, 'nothing has ended yet')
  const runs = Array.from({length: 8}, (_, group) => aRun(group))
  slots.add(runs)
  slots.occupyFree()
  for (const run of runs) slots.ended(run, 10)
  slots.claimed(20, 100)
  assert.ok(slots.aheadCount >= 1 && slots.aheadCount <= 8, `${slots.aheadCount} ahead`)
  slots.claimed(10_000, 100)
  assert.equal(slots.aheadCount, 0, 'nothing has ended lately')
})
