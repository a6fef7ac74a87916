/** Members: who may join or return under a name, and what a cordon or drain makes of a member. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {
  decideReturn,
  decideScheduling,
  joinConflict,
  type MemberRecord,
  type MemberStatus,
  type SchedulingChange,
} from '../../src/core/node.ts'

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

const FRESH_MS = 100
const stored = (id: string, heartbeatAt: number, status: MemberStatus = 'alive') =>
  ({id, incarnation: `${id}-first`, name: 'n', status, heartbeatAt}) as MemberRecord

test('a node whose other incarnation sends heartbeats runs on a copy and does not join', () => {
  const check = (
    member: MemberRecord,
    ended: readonly string[] | undefined,
    expected?: 'alive',
  ) => {
    const joining = {id: 'a', incarnation: 'a-second', ...(ended && {ended})}
    const conflict = joinConflict(joining, [member], NOW, FRESH_MS)
    assert.equal(conflict?.kind, expected)
  }
  check(stored('a', NOW - 99), [], 'alive')
  check(stored('a', NOW - 99, 'leaving'), ['a-zeroth'], 'alive')
  // A wrong clock stored it: another incarnation may still send heartbeats.
  check(stored('a', NOW + 9_000), [], 'alive')
  check(stored('a', NOW - 100), [])
  check(stored('a', NOW - 99, 'failed'), [])
  check(stored('a', NOW - 99), ['a-first'])
  check(stored('a', NOW - 99), undefined)
  check({...stored('a', NOW - 99), incarnation: 'a-second'}, [])
})

test('a name is taken while another node sends heartbeats under it', () => {
  const check = (others: readonly MemberRecord[], by: string | null) => {
    const joining = {id: 'a', incarnation: 'a-first'}
    const conflict = joinConflict(joining, [stored('a', NOW), ...others], NOW, FRESH_MS)
    assert.deepEqual(conflict, by === null ? null : {kind: 'taken', by})
  }
  check([], null)
  check([stored('b', NOW - 99)], 'b')
  check([stored('b', NOW - 99, 'leaving')], 'b')
  check([stored('b', NOW - 50), stored('c', NOW - 20)], 'c')
  check([stored('b', NOW + 100)], 'b')
  // A wrong clock stored it; a node that is alive has sent another since.
  check([stored('b', NOW + 101)], null)
  check([stored('b', NOW - 100)], null)
  check([stored('b', NOW, 'failed')], null)
})

test('a member that failed returns unless a newer incarnation or another node replaced it', () => {
  const check = (others: readonly string[], status: MemberStatus, reply: string) => {
    const members = others.map((id) => ({id, incarnation: `${id}-first`}))
    const heartbeat = {nodeId: 'a', incarnation: 'a-first', status}
    assert.equal(decideReturn(heartbeat, members), reply)
  }
  check(['a'], 'alive', 'ok')
  check(['b', 'a'], 'alive', 'taken')
  check(['b', 'a'], 'leaving', 'taken')
  check(['b', 'a'], 'left', 'ok')
  check(['b'], 'alive', 'unknown')
  const newer = [
    {id: 'a', incarnation: 'a-second'},
    {id: 'b', incarnation: 'b-first'},
  ]
  assert.equal(decideReturn({nodeId: 'a', incarnation: 'a-first', status: 'left'}, newer), 'fenced')
})
