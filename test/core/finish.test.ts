/**
 * What the end of an execution means: retries owed, quarantine, the launch's status, the counters
 * as a fold.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {FinalStatus} from '../../src/core/execution.ts'
import {
  countFinish,
  decideFinish,
  launchStatus,
  NODE_DEATHS_MAX,
  type FinishInput,
} from '../../src/core/finish.ts'
import {aLaunch, anExecution, NOON} from '../support/fixtures.ts'

function decide(status: FinalStatus, changes: Partial<FinishInput> = {}) {
  return decideFinish({
    execution: anExecution().running().record,
    launch: aLaunch().record,
    job: {retries: 2},
    status,
    reason: '',
    now: NOON,
    jitter: 0.5,
    ...changes,
  })
}

describe('a retry', () => {
  for (const status of ['failed', 'timed_out', 'lost'] as const) {
    it(`is owed after ${status}`, () => {
      assert.deepEqual(decide(status).retry, {attempt: 2, notBefore: NOON + 1_000})
    })
  }

  it('is never owed after success or cancel', () => {
    assert.equal(decide('succeeded').retry, null)
    assert.equal(decide('cancelled').retry, null)
  })

  it('comes `retries` times, each later than the one before', () => {
    const execution = (attempt: number) => anExecution().running().attempt(attempt).record
    assert.deepEqual(decide('failed', {execution: execution(2)}).retry, {
      attempt: 3,
      notBefore: NOON + 2_000,
    })
    assert.equal(decide('failed', {execution: execution(3)}).retry, null)
    assert.equal(decide('failed', {job: {retries: 0}}).retry, null)
  })

  const none: readonly [why: string, changes: Partial<FinishInput>][] = [
    ['the job was deleted', {job: null}],
    ['a cancel ended the retries of its launch', {launch: aLaunch().cancelled().record}],
    ['its own cancel was asked for', {execution: anExecution().cancelling().record}],
    ['no node could take it', {execution: anExecution().record}],
  ]
  for (const [why, changes] of none) {
    it(`is not owed when ${why}`, () => {
      for (const status of ['failed', 'timed_out', 'lost'] as const)
        assert.equal(decide(status, changes).retry, null)
    })
  }
})

describe('a cancel', () => {
  it('ends the retries of its launch; nothing else does', () => {
    assert.equal(decide('cancelled').endsRetries, true)
    for (const status of ['succeeded', 'failed', 'timed_out', 'lost'] as const)
      assert.equal(decide(status).endsRetries, false)
  })
})

describe('the death of a node', () => {
  it('is counted, and the first one is retried', () => {
    for (const reason of ['node_lost', 'node_restarted']) {
      const {nodeDeaths, quarantined, retry} = decide('lost', {reason})
      assert.deepEqual([nodeDeaths, quarantined, retry?.attempt], [1, false, 2])
    }
  })

  it(`is quarantine the ${NODE_DEATHS_MAX}nd time: no retry, and the others end`, () => {
    const decision = decide('lost', {reason: 'node_lost', launch: aLaunch().deaths(1).record})
    const expected = {retry: null, endsRetries: true, nodeDeaths: 2, quarantined: true}
    assert.deepEqual(decision, expected)
  })

  it('is not counted when the node stopped in good order, or the execution just failed', () => {
    const launch = aLaunch().deaths(1).record
    assert.equal(decide('lost', {reason: 'node_stopped', launch}).nodeDeaths, 1)
    assert.equal(decide('failed', {reason: 'node_lost', launch}).quarantined, false)
  })

  it('quarantines no job that is gone', () => {
    const launch = aLaunch().deaths(1).record
    assert.equal(decide('lost', {reason: 'node_lost', launch, job: null}).quarantined, false)
  })
})

describe('the status of a launch', () => {
  const one = anExecution()
  const two = anExecution().onSlot(1).with({node: 'node-b'})
  const table: readonly [what: string, executions: (typeof one)[], status: string | null][] = [
    ['one that succeeded', [one.succeeded()], 'success'],
    ['one that failed', [one.failed()], 'failed'],
    ['timed out', [one.timedOut()], 'failed'],
    ['cancelled', [one.cancelled()], 'failed'],
    ['lost', [one.lost()], 'failed'],
    ['pending', [one], null],
    ['running', [one.running()], null],
    ['failed, then well', [one.failed(), one.attempt(2).succeeded()], 'success'],
    ['the attempts in another order', [one.attempt(2).succeeded(), one.failed()], 'success'],
    ['failed, retry pending', [one.failed(), one.attempt(2)], null],
    ['well, then a later attempt failed', [one.succeeded(), one.attempt(2).failed()], 'failed'],
    ['all nodes well', [one.succeeded(), two.succeeded()], 'success'],
    ['one of two', [one.succeeded(), two.failed()], 'partially_failed'],
    ['none of two', [one.lost(), two.failed()], 'failed'],
    ['one still runs', [one.failed(), two.running()], null],
    [
      'a retry that moved to another node',
      [one.lost(), two.succeeded(), one.attempt(2).with({node: 'node-c'}).succeeded()],
      'success',
    ],
  ]
  for (const [what, executions, status] of table) {
    it(`${what} → ${status}`, () => {
      assert.equal(launchStatus(executions.map(({record}) => record)), status)
    })
  }
})

describe('the counters', () => {
  const none = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

  it('count success on one side and every other end on the other', () => {
    let counters = countFinish(none, 'succeeded', NOON)
    assert.deepEqual(counters, {...none, successCount: 1, lastSuccess: NOON})
    for (const status of ['failed', 'timed_out', 'cancelled', 'lost'] as const)
      counters = countFinish(counters, status, NOON + 5)
    const expected = {successCount: 1, errorCount: 4, lastSuccess: NOON, lastError: NOON + 5}
    assert.deepEqual(counters, expected)
  })

  it('keep the latest finish when ends arrive out of order', () => {
    const later = countFinish(none, 'failed', NOON + 10)
    assert.equal(countFinish(later, 'failed', NOON).lastError, NOON + 10)
  })
})
