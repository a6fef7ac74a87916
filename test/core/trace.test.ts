/** The chain of a launch: what took it to its end, and what a caller sees of it. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {TRACE_MAX, type TracedLaunch, traceOf} from '../../src/core/trace.ts'

function traced(group: number, parentGroup: number | null, over: Partial<TracedLaunch> = {}) {
  const at = {scheduledAt: 0, scheduledUntil: 0, decidedAt: 0}
  const ran = {status: 'success', startedAt: group, endedAt: group * 10, failure: null} as const
  const row = {cause: 'parent', decision: 'launched', reason: '', count: 1} as const
  return {group, parentGroup, jobName: `job-${group}`, ...row, ...at, ...ran, ...over}
}
const skipped = {decision: 'skipped', status: null, startedAt: null, endedAt: null} as const
const open = {status: null, endedAt: null} as const
const all = () => true

test('the critical path leads to the launch that ended last, or is open', () => {
  const cases: [TracedLaunch[], number[]][] = [
    [[], []],
    [[traced(1, null)], [1]],
    [
      [traced(1, null), traced(2, 1, {endedAt: 90}), traced(3, 1), traced(4, 3)],
      [1, 2],
    ],
    [
      [traced(1, null), traced(2, 1), traced(3, 1), traced(4, 3)],
      [1, 3, 4],
    ],
    [
      [traced(1, null), traced(2, 1, open), traced(3, 1)],
      [1, 2],
    ],
    [[traced(1, null), traced(2, 1, skipped)], [1]],
    [
      [traced(2, 1), traced(3, 2)],
      [2, 3],
    ],
  ]
  for (const [chain, expected] of cases)
    assert.deepEqual(traceOf(chain, all).criticalPath, expected)
})

test('launches of jobs that may not be read are only counted', () => {
  const chain = [traced(1, null), traced(2, 1), traced(3, 2)]
  const {launches, criticalPath, hidden} = traceOf(chain, (job) => job !== 'job-2')
  assert.deepEqual([launches.map(({group}) => group), criticalPath, hidden], [[1, 3], [1, 3], 1])
})

test('a chain with more launches than a reply has says so', () => {
  const chain = Array.from({length: TRACE_MAX + 1}, (_, at) => traced(at + 1, at === 0 ? null : 1))
  const {launches, isPartial} = traceOf(chain, all)
  assert.deepEqual([launches.length, isPartial], [TRACE_MAX, true])
  assert.equal(traceOf(chain.slice(0, TRACE_MAX), all).isPartial, false)
})
