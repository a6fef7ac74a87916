/** Slots of a node: claims ahead, and ends that free a slot once. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {executionId} from '../../src/core/execution.ts'
import type {ExecutionRun} from '../../src/node/execution-run.ts'
import {Slots} from '../../src/node/slots.ts'

interface RunFields {
  readonly claimedAt?: number
  readonly isStopping?: boolean
  readonly isDoubtful?: boolean
  readonly token?: string
}

/** Runs with the same group have the same execution id. */
function aRun(group: number, {token = 'token', ...more}: RunFields = {}): ExecutionRun {
  const claim = {key: {group, node: 'node-1', attempt: 1}, token}
  const id = executionId(claim.key)
  const fields = {claimedAt: 0, isStopping: false, isDoubtful: false, ...more}
  return {id, claim, ...fields} as unknown as ExecutionRun
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
  const [givenUp, again] = [aRun(1), aRun(1, {token: 'again'})] as const
  slots.add([givenUp])
  slots.occupyFree()
  slots.add([again])
  slots.occupyFree()
  slots.ended(givenUp, 0)
  assert.equal(slots.get(again.claim), again)
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

test('a run put back by a failed release neither replaces the next run of its execution nor starts', () => {
  const slots = new Slots(1)
  const old = aRun(1, {token: 'old', isDoubtful: true})
  const waiting = aRun(2)
  const [running, again] = [aRun(1, {token: 'new'}), aRun(2, {token: 'new', isDoubtful: true})]
  slots.add([running])
  slots.occupyFree()
  slots.add([old, waiting, again])
  assert.deepEqual(slots.runs, [running, old, waiting, again])
  slots.ended(running, 0)
  assert.deepEqual(slots.occupyFree(), [waiting])
  assert.deepEqual(slots.takeAhead(-1), [old, again], 'released again, however new they are')
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
