/** Sweeps of notices: what each condition finds in the rows of the store, line by line. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {Condition, ConditionParameters} from '../../src/core/notice-rule.ts'
import {
  type ClusterCondition,
  type ClusterFacts,
  expectedAtOf,
  findInCluster,
  findLate,
  findRunning,
  isOverdue,
  overdueEvidence,
  runningMsOf,
  sweepWorkOf,
} from '../../src/core/notice-sweeps.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const NOW = Date.parse('2026-11-23T12:00:00Z')

const CALM: ClusterFacts = {
  leaderlessSince: null,
  failed: [],
  pauses: [],
  restoredAt: null,
  oldestPlannedAt: NOW,
  failingChannels: [],
}

describe('conditions about the cluster', () => {
  const pause = (pausedAt: number) => ({jobs: 'etl-*', reason: 'move', pausedBy: 'ops', pausedAt})
  const channel = (since: number) => ({name: 'mail', since, error: '503'})
  const rows: readonly [
    condition: ClusterCondition,
    parameters: ConditionParameters,
    facts: Partial<ClusterFacts>,
    subjects: string,
  ][] = [
    ['no_leader', {}, {}, ''],
    ['no_leader', {}, {leaderlessSince: NOW - 29_999}, ''],
    ['no_leader', {}, {leaderlessSince: NOW - 30_000}, 'cluster'],
    ['no_leader', {for: '2m'}, {leaderlessSince: NOW - 30_000}, ''],
    ['node_failed', {}, {failed: [{name: 'web-2', heartbeatAt: NOW - MINUTE}]}, 'web-2'],
    ['firing_paused', {}, {pauses: [pause(NOW - HOUR + 1)]}, ''],
    ['firing_paused', {}, {pauses: [pause(NOW - HOUR)]}, 'etl-*'],
    ['firing_paused', {for: '5m'}, {restoredAt: NOW - 5 * MINUTE}, 'restored store'],
    ['undecided', {}, {oldestPlannedAt: NOW - 59_999}, ''],
    ['undecided', {}, {oldestPlannedAt: NOW - 60_000}, 'cluster'],
    ['undecided', {}, {oldestPlannedAt: NOW - HOUR, restoredAt: NOW - MINUTE}, ''],
    ['undecided', {}, {oldestPlannedAt: null}, ''],
    ['notices_failing', {}, {failingChannels: [channel(NOW - HOUR + 1)]}, ''],
    ['notices_failing', {}, {failingChannels: [channel(NOW - HOUR)]}, 'mail'],
  ]
  for (const [condition, parameters, facts, subjects] of rows)
    it(`${condition} ${JSON.stringify({...parameters, ...facts})}: ${subjects || '-'}`, () => {
      const found = findInCluster(condition, parameters, {...CALM, ...facts}, NOW)
      assert.equal(found.map(({subject}) => subject).join(), subjects)
      for (const {evidence} of found) assert.match(evidence.sentence, /^[A-Z].*\.$/)
    })
})

describe('conditions about executions', () => {
  it('a job is late once, by its oldest planned time', () => {
    const row = (job: string, minutes: number, launch: number | null = null) => {
      return {job, plannedAt: NOW - minutes * MINUTE, launch, node: launch === null ? '' : 'n1'}
    }
    const rows = [row('a', 6, 7), row('a', 9), row('b', 4), row('c', 5, 8)]
    const found = findLate({by: '5m'}, rows, NOW)
    assert.deepEqual(
      found.map(({subject, evidence}) => `${subject} ${evidence.launch} ${evidence.sentence}`),
      [
        'a null A launch planned for 2026-11-23T11:51:00Z is undecided.',
        'c 8 Launch 8, planned for 2026-11-23T11:55:00Z, waits for node n1.',
      ],
    )
  })

  const lengths: readonly [ConditionParameters, typicalMs: number | null, expected: number][] = [
    [{for: '30m'}, null, 30 * MINUTE],
    [{times: 3}, null, Infinity],
    [{times: 3}, 2_000, MINUTE],
    [{times: 3}, HOUR, 3 * HOUR],
    [{for: '2h', times: 3}, HOUR, 2 * HOUR],
    [{for: '4h', times: 3}, HOUR, 3 * HOUR],
  ]
  for (const [parameters, typicalMs, expected] of lengths)
    it(`running ${JSON.stringify(parameters)} of a job of ${typicalMs} ms`, () => {
      assert.equal(runningMsOf(parameters, typicalMs), expected)
    })

  it('an execution that runs for too long', () => {
    const row = {job: 'a', launch: 7, execution: '7-n1-1', node: 'n1', typicalMs: null}
    const rows = [
      {...row, startedAt: NOW - 29 * MINUTE},
      {...row, launch: 6, startedAt: NOW - 30 * MINUTE},
    ]
    const [found, ...others] = findRunning({for: '30m'}, rows, NOW)
    assert.deepEqual([found!.subject, found!.evidence.launch, others.length], ['a', 6, 0])
  })
})

describe('conditions about the last success', () => {
  const since = Date.parse('2026-11-01T00:00:00Z')
  const at = (text: string) => Date.parse(text)
  const rows: readonly [condition: Condition, ConditionParameters, expected: number | null][] = [
    ['no_success_for', {for: '26h'}, NOW],
    ['expected_by', {schedule: '0 0 6 * * *', since: '8h'}, at('2026-11-23T05:00:00Z')],
    [
      'expected_by',
      {schedule: '0 0 6 * * *', timezone: 'UTC', since: '8h'},
      at('2026-11-23T06:00:00Z'),
    ],
    ['expected_by', {schedule: '0 0 12 * * *', timezone: 'UTC', since: '8h'}, NOW],
    // No such time since the rule was stored.
    ['expected_by', {schedule: '0 0 6 31 10 *', since: '8h'}, null],
    ['expected_by', {schedule: '@manually', since: '8h'}, null],
  ]
  for (const [condition, parameters, expected] of rows)
    it(`${condition} ${JSON.stringify(parameters)} expects a success by ${expected}`, () => {
      const defaultZone = 'Europe/Berlin'
      assert.equal(expectedAtOf(condition, parameters, {now: NOW, since, defaultZone}), expected)
    })

  it('a success counts, else the creation', () => {
    const overdue = (lastSuccessAt: number | null, knownSince: number) =>
      isOverdue('no_success_for', {for: '26h'}, {lastSuccessAt, knownSince}, NOW)
    assert.equal(overdue(NOW - 26 * HOUR, since), true)
    assert.equal(overdue(NOW - 26 * HOUR + 1, since), false)
    assert.equal(overdue(null, NOW - HOUR), false)
    assert.equal(overdue(null, NOW - 26 * HOUR), true)
  })

  it('the sentence says why a job does not succeed', () => {
    const job = {
      name: 'a',
      id: 1,
      lastSuccessAt: NOW - 30 * HOUR,
      knownSince: since,
      isDisabled: true,
      isWatched: false,
    }
    const why = {pause: 'its firing is paused by ops', hasNode: false}
    const evidence = overdueEvidence(
      'no_success_for',
      {for: '26h'},
      job,
      {now: NOW, expectedAt: NOW},
      why,
    )
    assert.equal(
      evidence.sentence,
      'It was expected to succeed, and has not since 2026-11-22T06:00:00Z; it is disabled; ' +
        'its firing is paused by ops; no node has its tags.',
    )
    assert.equal(evidence.cause, 'no success for 26h')
  })
})

it('the work of sweeps follows from the conditions of all rules', () => {
  const rule = (when: object) => ({definition: {when} as never})
  assert.deepEqual(sweepWorkOf([]), {rules: 0, sweeps: [], store: false})
  assert.deepEqual(sweepWorkOf([rule({failed: {}}), rule({late: {by: '1m'}, store: {}})]), {
    rules: 2,
    sweeps: ['executions'],
    store: true,
  })
})
