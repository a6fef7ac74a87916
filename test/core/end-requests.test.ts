/** Requests to end executions: which of them apply, to what, and what the rest are answered. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {
  cancelEnd,
  endUnreported,
  endWithoutNode,
  noteDrains,
  releasedOf,
  type ReportedEnd,
  reportEnd,
  unrequestedStops,
} from '../../src/core/end-requests.ts'
import {type BatchJob, FinishBatch} from '../../src/core/finish-batch.ts'
import {aLaunch, aNode, anExecution, type ExecutionFixture, NOON} from '../support/fixtures.ts'

const JOB: BatchJob = {
  id: anExecution().record.jobId,
  name: 'job',
  retries: 0,
  ephemeral: false,
  disabled: false,
  watched: false,
  counters: {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null},
  status: '',
  statusGroup: 0,
  trend: {failStreak: 0, failingSince: null, typicalMs: null},
  live: true,
  changed: false,
  keptGroup: null,
  quarantinedBy: null,
}

/** A batch of one launch with these executions, which node `id-a` claimed with the token `t`. */
function batchOf(
  executions: readonly ExecutionFixture[],
  job: Partial<BatchJob> = {},
): FinishBatch {
  const batch = new FinishBatch(NOON)
  const [{group, jobId}] = executions.map(({record}) => record) as [ExecutionFixture['record']]
  batch.jobs.set(jobId, {...JOB, ...job})
  batch.launches.set(group, {
    record: aLaunch(group).with({jobId, decision: 'launched', open: true}).record,
    executions: executions.map(({record}) => {
      const token = record.startedAt === null ? '' : 't'
      const claim = {nodeId: 'id-a', token, incarnation: 'i', cancelReason: null}
      return {record, ...claim, change: 'none'}
    }),
    hasOpenRest: false,
    changed: false,
  })
  return batch
}

const {group, node, attempt} = anExecution().record
/** Cancelled before any node claimed it. */
const UNCLAIMED = anExecution().cancelled().with({startedAt: null})
const KEY = {group, node, attempt}

function aReport(changes: Partial<ReportedEnd> = {}): ReportedEnd {
  return {
    key: KEY,
    token: 't',
    status: 'succeeded',
    durationMs: 10,
    startedAfterMs: 0,
    exitCode: 0,
    reason: '',
    outputHead: '',
    outputFoot: '',
    output: {totalBytes: 5},
    jitter: 0.5,
    ...changes,
  }
}

describe('a report of a node', () => {
  const running = anExecution().running()

  it('ends the running execution of its claim, and keeps the larger number of bytes', () => {
    const outcome = reportEnd(batchOf([running.with({outputBytes: 9})]), aReport(), NOON)
    assert(outcome.kind === 'finished')
    assert.equal(outcome.execution.status, 'succeeded')
    assert.equal(outcome.execution.outputBytes, 9)
    assert.equal(outcome.closed?.status, 'success')
  })

  const refused: [why: string, batch: FinishBatch, report: ReportedEnd][] = [
    ['another claim', batchOf([running]), aReport({token: 'u'})],
    ['no claim', batchOf([UNCLAIMED]), aReport({token: ''})],
    ['another agent', batchOf([running]), aReport({reporter: 'id-b'})],
    ['another execution', batchOf([running]), aReport({key: {...KEY, attempt: 9}})],
  ]
  for (const [why, batch, report] of refused)
    it(`of ${why} changes nothing`, () => {
      assert.deepEqual(reportEnd(batch, report, NOON), {kind: 'unknown', key: report.key})
      assert.deepEqual(batch.removed, [])
      assert.equal(batch.launches.get(group)!.changed, false)
    })

  it('of a released execution changes nothing, although the row still has the token', () => {
    const batch = batchOf([running])
    const [execution] = batch.launches.get(group)!.executions
    execution!.record = anExecution().pending().record
    assert.equal(reportEnd(batch, aReport(), NOON).kind, 'unknown')
  })

  it('of a deleted job removes the execution', () => {
    const batch = batchOf([running], {live: false})
    assert.equal(reportEnd(batch, aReport(), NOON).kind, 'unknown')
    assert.equal(batch.removed.length, 1)
    assert.equal(batch.launches.get(group)!.record.open, false)
  })

  it('of a lost execution is its late result, and the status stays', () => {
    const batch = batchOf([anExecution().lost()])
    const report = aReport({status: 'failed', exitCode: 3})
    assert.deepEqual(reportEnd(batch, report, NOON), {kind: 'already', key: KEY, status: 'lost'})
    const [execution] = batch.launches.get(group)!.executions
    assert.equal(execution!.record.lateResult, 'failed, exit status 3')
    assert.equal(execution!.change, 'update')
  })

  it('that is repeated changes nothing', () => {
    const batch = batchOf([anExecution().succeeded()])
    assert.equal(reportEnd(batch, aReport(), NOON).kind, 'already')
    assert.equal(batch.launches.get(group)!.executions[0]!.change, 'none')
  })

  it('of a stop without a request is about a drain, if the deadline of the node is over', () => {
    for (const [deadline, reason] of [
      [NOON, 'node_drained'],
      [NOON + 1, 'not_requested'],
    ] as const) {
      const batch = batchOf([running])
      const report = aReport({status: 'cancelled'})
      const stops = unrequestedStops(batch, [report])
      noteDrains(stops, new Map([['id-a', deadline]]), NOON)
      const outcome = reportEnd(batch, report, NOON)
      assert(outcome.kind === 'finished')
      assert.deepEqual([outcome.execution.status, outcome.execution.reason], ['lost', reason])
    }
    const cancelling = batchOf([anExecution().cancelling()])
    assert.deepEqual(unrequestedStops(cancelling, [aReport({status: 'cancelled'})]), [])
    assert.deepEqual(unrequestedStops(batchOf([running]), [aReport()]), [])
  })
})

describe('an end without a report', () => {
  const lost = {status: 'lost', reason: 'node_lost', jitter: 0, from: ['running']} as const
  const dead = {...aNode('a').status('failed').record, id: 'id-a', heartbeatAt: NOON - 60_000}

  it('spares an execution in another state', () => {
    const batch = batchOf([anExecution().pending()])
    const end = {...lost, members: [dead]}
    assert.equal(endUnreported(batch, [KEY], end, NOON)[0]!.kind, 'unknown')
  })

  it('names the outage if another node died too', () => {
    const other = {...dead, id: 'id-b'}
    for (const [members, reason] of [
      [[dead], 'node_lost'],
      [[dead, other], 'node_outage'],
    ] as const) {
      const batch = batchOf([anExecution().running()])
      const [outcome] = endUnreported(batch, [KEY], {...lost, members}, NOON)
      assert(outcome?.kind === 'finished')
      assert.equal(outcome.execution.reason, reason)
    }
  })

  it('of a pending execution needs that it still waits on the node', () => {
    const stuck = {key: KEY, nodeId: 'id-a'}
    const pending = anExecution().pending()
    assert.equal(endWithoutNode(batchOf([pending]), stuck, NOON)?.kind, 'finished')
    assert.equal(endWithoutNode(batchOf([pending]), {...stuck, nodeId: 'id-b'}, NOON), null)
    assert.equal(endWithoutNode(batchOf([anExecution().running()]), stuck, NOON), null)
    assert.equal(endWithoutNode(batchOf([pending], {live: false}), stuck, NOON), null)
  })
})

describe('a cancel', () => {
  it('ends a pending execution', () => {
    const decision = cancelEnd(batchOf([anExecution().pending()]), KEY, NOON)
    assert(decision.kind === 'requested')
    assert.equal(decision.execution.status, 'cancelled')
    assert.equal(decision.ended.length, 1)
  })

  it('requests the end of a running one once, and ends the retries that wait', () => {
    const retry = anExecution().pending().onSlot(1).attempt(2)
    const batch = batchOf([anExecution().running(), retry])
    const first = cancelEnd(batch, KEY, NOON)
    assert(first.kind === 'requested')
    assert.equal(first.execution.cancelRequestedAt, NOON)
    assert.deepEqual([first.isNew, first.ended.length], [true, 1])
    const again = cancelEnd(batch, KEY, NOON + 5)
    assert(again.kind === 'requested')
    assert.equal(again.execution.cancelRequestedAt, NOON)
    assert.deepEqual([again.isNew, again.ended.length], [false, 0])
  })

  it('is too late after the end, and for a deleted job', () => {
    const ended = cancelEnd(batchOf([anExecution().failed()]), KEY, NOON)
    assert.deepEqual(ended, {kind: 'over', status: 'failed'})
    const deleted = cancelEnd(batchOf([anExecution().running()], {live: false}), KEY, NOON)
    assert.deepEqual(deleted, {kind: 'unknown'})
  })
})

describe('a release', () => {
  it('makes the execution of its claim as if it had never been claimed', () => {
    const claim = {key: KEY, token: 't'}
    const released = releasedOf(batchOf([anExecution().running()]), claim, NOON)
    assert(released !== null)
    const {status, startedAt, notBefore} = released
    assert.deepEqual([status, startedAt, notBefore], ['pending', null, NOON])
    const running = batchOf([anExecution().running()])
    assert.equal(releasedOf(running, {...claim, token: 'u'}, NOON), null)
    assert.equal(releasedOf(batchOf([anExecution().cancelling()]), claim, NOON), null)
    assert.equal(releasedOf(batchOf([anExecution().running()], {live: false}), claim, NOON), null)
  })
})
