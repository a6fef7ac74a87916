/** Cordon and drain: what a change makes of a member, and when an earlier drain is over. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {decideScheduling, type SchedulingChange} from '../../src/core/node.ts'

const NOW = 1_000
const CORDON = {kind: 'cordon'} as const
const UNCORDON = {kind: 'uncordon'} as const
const DRAIN = {kind: 'drain', deadlineMs: 100} as const
type Columns = readonly [cordonedAt: number | null, drainUntil: number | null]

test('a change of a node keeps the start of its cordon, and a deadline that is over', () => {
  const check = (before: Columns, change: SchedulingChange, after: Columns, isOver = false) => {
    const [cordonedAt, drainUntil] = before
    const {isDrainOver, ...decided} = decideScheduling({cordonedAt, drainUntil}, change, NOW)!
    assert.deepEqual([decided.cordonedAt, decided.drainUntil, isDrainOver], [...after, isOver])
  }
  check([null, null], CORDON, [NOW, null])
  check([null, null], DRAIN, [NOW, 1_100])
  check([500, null], DRAIN, [500, 1_100])
  check([500, 2_000], CORDON, [500, null])
  check([500, 2_000], UNCORDON, [null, null])
  check([500, 900], DRAIN, [500, 1_100], true)
  check([500, 900], UNCORDON, [null, null], true)
  // An earlier release left the deadline at an uncordon.
  check([null, 900], CORDON, [NOW, null])
})

test('a change to the state that a node has changes nothing', () => {
  const check = (before: Columns, change: SchedulingChange) => {
    const [cordonedAt, drainUntil] = before
    assert.equal(decideScheduling({cordonedAt, drainUntil}, change, NOW), null)
  }
  check([null, null], UNCORDON)
  check([500, null], CORDON)
  check([500, 900], CORDON)
})
