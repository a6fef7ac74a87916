/** A store in a new place: moved, or a copy that was put back. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {isCopiedStore} from '../../src/core/copied-store.ts'

test('a store that was put back from a copy is recognised, and a moved store is not', () => {
  const check = (
    [changedAt, createdAt]: readonly [number | null, number | null],
    [heartbeatAt, startedAt]: readonly [number | null, number | null],
    expected: boolean,
  ) => {
    const isCopy = isCopiedStore({changedAt, createdAt}, {heartbeatAt, startedAt})
    assert.equal(isCopy, expected)
  }
  // Files change a little later than the clock was read for the last heartbeat.
  check([30_000, 1_000], [20_000, 5_000], false)
  check([30_001, 1_000], [20_000, 5_000], true)
  check([30_000, 5_001], [20_000, 5_000], true)
  check([30_000, 5_000], [20_000, 5_000], false)
  check([30_000, null], [20_000, 5_000], false)
  check([null, null], [20_000, 5_000], true)
  // A store without members.
  check([10_000, 1_000], [null, null], false)
  check([10_001, 1_000], [null, null], true)
})
