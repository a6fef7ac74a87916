/** The end of an execution: retries, quarantine, the status of its launch, the counters of its job. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {ExecutionRecord, FinalStatus} from '../../src/core/execution.ts'
import {
  countFinish,
  countLaunch,
  decideFinish,
  isReleasable,
  isStoppedByDrain,
  lateResultOf,
  launchStatus,
  type Outage,
  outageOf,
  quarantine,
  reportedTimes,
  type FinishInput,
  wasCancelled,
} from '../../src/core/finish.ts'
import {aJob, aLaunch, aNode, anExecution, NOON} from '../support/fixtures.ts'

function decide(status: FinalStatus, changes: Partial<FinishInput> = {}) {
  return decideFinish({
    execution: anExecution().running().record,
    previous: null,
    isOnlySuspect: true,
    launch: aLaunch().record,
    job: {retries: 2},
    status,
    reason: '',
    cancelReason: null,
    now: NOON,
    jitter: 0.5,
    ...changes,
  })
}

const CANCELLING = {execution: anExecution().cancelling().record}

it('a drain stops after its deadline what started before it', () => {
  const deadline = NOON + 100
  const cases: [startedAt: number | null, drainUntil: number | null, now: number, boolean][] = [
    [NOON, deadline, deadline, true],
    [NOON, deadline, deadline - 1, false],
    [NOON, null, deadline, false],
    [deadline, deadline, deadline + 1, true],
    [deadline + 1, deadline, deadline + 2, false],
    [null, deadline, deadline, true],
    [null, deadline, deadline + 1, false],
  ]
  for (const [startedAt, drainUntil, now, stopped] of cases)
    assert.equal(isStoppedByDrain(startedAt, drainUntil, now), stopped)
})

describe('a retry', () => {
  for (const status of ['failed', 'timed_out', 'lost'] as const) {
    it(`follows ${status}`, () => {
      assert.deepEqual(decide(status).retry, {attempt: 2, notBefore: NOON + 1_000})
    })
  }

  it('never follows a success or a cancel', () => {
    assert.equal(decide('succeeded').retry, null)
    assert.equal(decide('cancelled', CANCELLING).retry, null)
  })

  it('happens at most `retries` times, with a growing delay', () => {
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
    ['its own cancel was requested', {execution: anExecution().cancelling().record}],
    ['no node could run it', {execution: anExecution().record}],
  ]
  for (const [why, changes] of none) {
    it(`does not happen when ${why}`, () => {
      for (const status of ['failed', 'timed_out', 'lost'] as const)
        assert.equal(decide(status, changes).retry, null)
    })
  }
})

describe('a cancel', () => {
  it('ends the retries of its launch; no other status does', () => {
    assert.equal(decide('cancelled', CANCELLING).endsRetries, true)
    assert.equal(decide('cancelled', {execution: anExecution().record}).endsRetries, true)
    for (const status of ['succeeded', 'failed', 'timed_out', 'lost'] as const)
      assert.equal(decide(status).endsRetries, false)
  })

  it('that was not requested is lost, with the reason of the stop, and retried', () => {
    for (const [cancelReason, reason] of [
      [null, 'not_requested'],
      ['node_drained', 'node_drained'],
    ] as const) {
      const decision = decide('cancelled', {cancelReason})
      const {status, retry, endsRetries} = decision
      assert.deepEqual([status, decision.reason, retry?.attempt], ['lost', reason, 2])
      assert.equal(endsRetries, false)
    }
    const requested = decide('cancelled', {...CANCELLING, cancelReason: 'node_drained'})
    assert.deepEqual([requested.status, requested.reason], ['cancelled', ''])
  })
})

describe('the death of a node', () => {
  const died = anExecution().lost('node_lost').record

  it('is counted, and the execution is retried after the first', () => {
    for (const reason of ['node_lost', 'node_restarted']) {
      const {nodeDeaths, quarantined, retry} = decide('lost', {reason})
      assert.deepEqual([nodeDeaths, quarantined, retry?.attempt], [1, false, 2])
    }
  })

  it('quarantines the job at the second in a row: no retry, and waiting retries end', () => {
    const decision = decide('lost', {reason: 'node_lost', previous: died})
    const end = {status: 'lost', reason: 'node_lost'}
    const expected = {...end, retry: null, endsRetries: true, nodeDeaths: 1, quarantined: true}
    assert.deepEqual(decision, expected)
  })

  it('does not quarantine for deaths of other slots, or before another end', () => {
    const launch = aLaunch().deaths(5).record
    assert.equal(decide('lost', {reason: 'node_lost', launch}).quarantined, false)
    for (const previous of [
      anExecution().failed().record,
      anExecution().lost('node_stopped').record,
      anExecution().lost('node_outage').record,
    ])
      assert.equal(decide('lost', {reason: 'node_lost', previous}).quarantined, false)
  })

  it('is not counted after a graceful shutdown, an outage or an ordinary failure', () => {
    for (const reason of ['node_stopped', 'node_outage']) {
      const {nodeDeaths, quarantined, retry} = decide('lost', {reason, previous: died})
      assert.deepEqual([nodeDeaths, quarantined, retry?.attempt], [0, false, 2])
    }
    assert.equal(decide('failed', {reason: 'node_lost', previous: died}).quarantined, false)
  })

  it('does not quarantine a deleted job, or one suspect of several', () => {
    const second = {reason: 'node_lost', previous: died}
    assert.equal(decide('lost', {...second, job: null}).quarantined, false)
    const shared = decide('lost', {...second, isOnlySuspect: false})
    assert.deepEqual([shared.quarantined, shared.retry?.attempt], [false, 2])
  })

  const longAgo = {startedAt: NOON - 86_400_000}
  const failed = aNode().with({...longAgo, status: 'failed', heartbeatAt: NOON - 25_000})
  const restarted = aNode().with({startedAt: NOON, heartbeatAt: NOON})
  const other = aNode('other').with({...longAgo, heartbeatAt: NOON - 1_000})
  const young = other.with({startedAt: NOON - 60_000})
  const others: readonly [what: string, dead: typeof other, other: typeof other, Outage][] = [
    ['sends heartbeats', failed, other, 'none'],
    ['is silent', failed, other.with({heartbeatAt: NOON - 6_000}), 'certain'],
    [
      'failed with it',
      failed,
      other.with({status: 'failed', heartbeatAt: NOON - 90_000}),
      'certain',
    ],
    ['failed before', failed, other.with({status: 'failed', heartbeatAt: NOON - 120_000}), 'none'],
    ['has started since', failed, other.with({startedAt: NOON - 20_000}), 'certain'],
    ['is young', failed, young, 'none'],
    ['has left', failed, other.with({status: 'left', heartbeatAt: NOON - 20_000}), 'none'],
    ['has restarted too', restarted, young, 'possible'],
    ['did not restart', restarted, other, 'none'],
  ]
  for (const [what, dead, {record}, expected] of others)
    it(`is part of an outage, ${expected}, if another node ${what}`, () => {
      assert.equal(outageOf(dead.record, [record], NOON), expected)
    })
})

describe('the status of a launch', () => {
  const one = anExecution()
  const two = anExecution().onSlot(1).with({node: 'node-b'})
  const table: readonly [what: string, executions: (typeof one)[], status: string | null][] = [
    ['one succeeded', [one.succeeded()], 'success'],
    ['one failed', [one.failed()], 'failed'],
    ['timed out', [one.timedOut()], 'failed'],
    ['cancelled', [one.cancelled()], 'failed'],
    ['lost', [one.lost()], 'failed'],
    ['pending', [one], null],
    ['running', [one.running()], null],
    ['failed, then succeeded', [one.failed(), one.attempt(2).succeeded()], 'success'],
    ['attempts in reverse order', [one.attempt(2).succeeded(), one.failed()], 'success'],
    ['failed, retry pending', [one.failed(), one.attempt(2)], null],
    [
      'succeeded, then a later attempt failed',
      [one.succeeded(), one.attempt(2).failed()],
      'failed',
    ],
    ['all nodes succeeded', [one.succeeded(), two.succeeded()], 'success'],
    ['one of two succeeded', [one.succeeded(), two.failed()], 'partially_failed'],
    ['none of two succeeded', [one.lost(), two.failed()], 'failed'],
    ['one still running', [one.failed(), two.running()], null],
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

describe('a cancelled launch', () => {
  const ended = (...statuses: FinalStatus[]) =>
    statuses.map((status, slot) => anExecution().with({slot, status}).record)

  it('is one whose slots all succeeded or were cancelled, one at least', () => {
    assert.equal(wasCancelled(ended('cancelled', 'succeeded')), true)
    assert.equal(wasCancelled(ended('cancelled', 'failed')), false)
    assert.equal(wasCancelled(ended('succeeded')), false)
  })
})

describe('the trend of a job', () => {
  const none = {failStreak: 0, failingSince: null, typicalMs: null}
  const took = (ms: number) => [{startedAt: NOON, finishedAt: NOON + ms}]

  it('counts launches in a row that ended badly, since the first of them', () => {
    let trend = countLaunch(none, 'failed', took(1), NOON)
    trend = countLaunch(trend, 'cancelled', took(1), NOON + 1)
    trend = countLaunch(trend, 'partially_failed', took(1), NOON + 2)
    assert.deepEqual(trend, {failStreak: 2, failingSince: NOON, typicalMs: null})
    assert.deepEqual(countLaunch(trend, 'success', took(7), NOON + 3), {...none, typicalMs: 7})
  })

  it('moves the typical duration a fifth of the way to each new one, from start to last end', () => {
    const first = countLaunch(none, 'success', took(1_000), NOON)
    assert.equal(countLaunch(first, 'success', took(2_000), NOON).typicalMs, 1_200)
    const nodes = [...took(300), {startedAt: NOON + 100, finishedAt: NOON + 500}]
    assert.equal(countLaunch(none, 'success', nodes, NOON).typicalMs, 500)
  })
})

describe('the counters', () => {
  const none = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

  it('count successes, and every other end as an error', () => {
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

describe('the report of a node', () => {
  const claim = {startedAt: 1_000_000}

  it('has lengths, which are counted from the claim', () => {
    const reported = {durationMs: 5_000.4, startedAfterMs: 20}
    assert.deepEqual(reportedTimes(claim, reported, null), {
      startedAt: 1_000_020,
      finishedAt: 1_005_000,
    })
  })

  it('starts no execution before its claim or after its end', () => {
    const startOf = (startedAfterMs: number) =>
      reportedTimes(claim, {durationMs: 100, startedAfterMs}, null).startedAt
    assert.deepEqual([-5, 50, 500].map(startOf), [1_000_000, 1_000_050, 1_000_100])
    assert.equal(
      reportedTimes(claim, {durationMs: -1, startedAfterMs: 0}, null).finishedAt,
      1_000_000,
    )
  })

  it('of an agent ends no execution more than a minute in the future', () => {
    const ends = (now: number | null) =>
      reportedTimes(claim, {durationMs: 1e9, startedAfterMs: 0}, now).finishedAt - claim.startedAt
    assert.deepEqual([ends(1_010_000), ends(null)], [70_000, 1e9])
  })

  it('is a late result of a lost execution, unless it repeats the stored end', () => {
    const stored = {status: 'lost', reason: 'node_drained', lateResult: ''} as const
    const late = (status: FinalStatus, changes: Partial<ExecutionRecord> = {}) =>
      lateResultOf({...stored, ...changes}, {status, exitCode: status === 'failed' ? 3 : null})
    assert.equal(late('succeeded'), 'succeeded')
    assert.equal(late('failed'), 'failed, exit status 3')
    assert.equal(late('lost'), null)
    // A stop without a request was reported as `cancelled`.
    assert.equal(late('cancelled'), null)
    assert.equal(late('cancelled', {reason: 'node_lost'}), 'cancelled')
    assert.equal(late('failed', {lateResult: 'succeeded'}), null)
    assert.equal(late('failed', {status: 'cancelled'}), null)
  })
})

describe('the release of a claim', () => {
  const running = {...anExecution().record, status: 'running', cancelRequestedAt: null} as const
  const going = {retriesEnded: false}

  it('needs a running execution without a request to end it', () => {
    assert.equal(isReleasable(running, going), true)
    assert.equal(isReleasable({...running, status: 'succeeded'}, going), false)
    assert.equal(isReleasable({...running, cancelRequestedAt: 1}, going), false)
  })

  it('does not repeat an attempt whose retries were ended', () => {
    assert.equal(isReleasable({...running, attempt: 2}, {retriesEnded: true}), false)
    assert.equal(isReleasable({...running, attempt: 1}, {retriesEnded: true}), true)
  })
})

describe('quarantine', () => {
  it('disables the job and names the launch that killed nodes', () => {
    const {spec} = aJob()
    const decided = quarantine(spec, 7)
    assert.deepEqual(decided.spec, {...spec, disabled: true})
    const sentence = 'nodes died while executing launch 7; the job was disabled'
    assert.equal(decided.reason, `quarantined: ${sentence}`)
  })
})
