/** Launch decisions: planned times and requests become rows, each planned time once, by the job's policy. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import fc from 'fast-check'
import type {CatchUp} from '../../src/core/job.ts'
import type {DueDecision, RequestDecision} from '../../src/core/launch-record.ts'
import {
  decideDue,
  decideRequest,
  type PassContext,
  UnreadableSchedule,
} from '../../src/core/launch.ts'
import {nextPlanned, scheduleOf} from '../../src/core/next-time.ts'
import {IntervalSchedule} from '../../src/core/schedule/interval.ts'
import {
  aJob,
  aLaunch,
  aNode,
  type JobFixture,
  type LaunchFixture,
  NOON,
} from '../support/fixtures.ts'
import {aPass} from '../support/pass-context.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** Rows as lines: `launched 12:00:00`, `missed max_lateness 12:00:00..12:05:00 ×6`. */
function lines(decision: DueDecision): string[] {
  const time = (at: number) => new Date(at).toISOString().slice(11, 19)
  return decision.rows.map(({decision, reason, scheduledAt, scheduledUntil, count}) =>
    [
      decision,
      reason,
      time(scheduledAt) + (count === 1 ? '' : `..${time(scheduledUntil)} ×${count}`),
    ]
      .filter((part) => part !== '')
      .join(' '),
  )
}

function decide(job: JobFixture, now: number, open: number | null = null, pass?: PassContext) {
  return decideDue(job.record, open, pass ?? aPass({now}))
}

const minutely = aJob().scheduled('0 * * * * *').due(NOON)

describe('a planned time that is on time', () => {
  it('is launched, and next advances', () => {
    const decision = decide(minutely.stored({id: 7, revision: 3}), NOON + 4)
    assert.deepEqual(decision, {
      jobId: 7,
      revision: 3,
      expectedNextAt: NOON,
      forbid: false,
      nextAt: NOON + MINUTE,
      rows: [
        {
          scheduledAt: NOON,
          scheduledUntil: NOON,
          count: 1,
          decision: 'launched',
          reason: '',
          targets: [{nodeId: 'id-of-node-a', nodeName: 'node-a'}],
        },
      ],
    })
  })

  it('is the last one before expires_at', () => {
    assert.equal(decide(minutely.between(null, NOON + MINUTE), NOON).nextAt, null)
  })

  it('waits for a node when none matches', () => {
    const decision = decide(minutely, NOON, null, aPass({nodes: []}))
    assert.deepEqual(lines(decision), ['pending waits_for_node 12:00:00'])
    assert.deepEqual(decision.rows[0]!.targets, [])
  })

  it('is skipped while another launch of a forbid job is open', () => {
    const decision = decide(minutely.forbidding(), NOON, 41)
    assert.deepEqual(lines(decision), ['skipped forbid: launch 41 is still open 12:00:00'])
    assert.equal(decision.forbid, true)
  })

  it('runs once from @at', () => {
    const decision = decide(aJob().scheduled('@at 2026-03-01T12:00:00Z').due(NOON), NOON + 1)
    assert.deepEqual([lines(decision), decision.nextAt], [['launched 12:00:00'], null])
  })
})

describe('late planned times', () => {
  const every10 = aJob().every('10s').due(NOON)

  it('of at most 30 s are launched one by one under every policy', () => {
    for (const policy of ['latest', 'skip', 'all'] as const) {
      const decision = decide(every10.catchingUp(policy), NOON + 30 * SECOND)
      assert.deepEqual(lines(decision), [
        'launched 12:00:00',
        'launched 12:00:10',
        'launched 12:00:20',
        'launched 12:00:30',
      ])
      assert.equal(decision.nextAt, NOON + 40 * SECOND)
    }
  })

  it('of a millisecond more are missed', () => {
    const decision = decide(every10.catchingUp('skip'), NOON + 30 * SECOND + 1)
    assert.equal(lines(decision)[0], 'missed catch_up_skip 12:00:00')
    assert.equal(decision.rows.length, 4)
  })

  it('are missed when max_lateness is shorter', () => {
    const decision = decide(every10.catchingUp('all', '5s'), NOON + 27 * SECOND)
    assert.deepEqual(lines(decision), ['missed max_lateness 12:00:00..12:00:20 ×3'])
    const single = decide(minutely.catchingUp('all', '5s'), NOON + 6 * SECOND)
    assert.deepEqual(lines(single), ['missed max_lateness 12:00:00'])
  })

  it('of a forbid job: the first runs, each other waits for the previous one', () => {
    assert.deepEqual(lines(decide(every10.forbidding(), NOON + 20 * SECOND)), [
      'launched 12:00:00',
      'pending waits_for_open 12:00:10',
      'pending waits_for_open 12:00:20',
    ])
  })

  it('of a forbid job with an open launch are all skipped', () => {
    assert.deepEqual(lines(decide(every10.forbidding(), NOON + 20 * SECOND, 41)), [
      'skipped forbid: launch 41 is still open 12:00:00',
      'skipped forbid: launch 41 is still open 12:00:10',
      'skipped forbid: launch 41 is still open 12:00:20',
    ])
  })

  it('of a forbid job wait for the launches of its catch-up', () => {
    const now = NOON + 50 * SECOND
    assert.deepEqual(lines(decide(every10.forbidding().catchingUp('all'), now)), [
      'launched 12:00:00',
      ...['10', '20', '30', '40', '50'].map((at) => `pending waits_for_open 12:00:${at}`),
    ])
  })
})

describe('missed planned times', () => {
  const after = NOON + 10 * MINUTE + 40 * SECOND

  it('with catch_up latest: only the newest is launched', () => {
    const decision = decide(minutely.catchingUp('latest'), after)
    assert.deepEqual(lines(decision), [
      'missed catch_up_latest 12:00:00..12:09:00 ×10',
      'launched 12:10:00',
    ])
    assert.equal(decision.nextAt, NOON + 11 * MINUTE)
  })

  it('with catch_up latest: a single missed time is launched', () => {
    assert.deepEqual(lines(decide(minutely, NOON + 50 * SECOND)), ['launched 12:00:00'])
  })

  it('with catch_up skip: none is launched', () => {
    const decision = decide(minutely.catchingUp('skip'), after)
    assert.deepEqual(lines(decision), ['missed catch_up_skip 12:00:00..12:10:00 ×11'])
  })

  it('with catch_up all: the newest up to the cap are launched, oldest first', () => {
    const pass = aPass({now: after, catchUpMax: 3})
    assert.deepEqual(lines(decide(minutely.catchingUp('all'), after, null, pass)), [
      'missed catch_up_cap 12:00:00..12:07:00 ×8',
      'launched 12:08:00',
      'launched 12:09:00',
      'launched 12:10:00',
    ])
  })

  it('with catch_up all: all are launched below the cap', () => {
    assert.equal(decide(minutely.catchingUp('all'), after).rows.length, 11)
  })

  it('with catch_up all and forbid: each waits for the previous one', () => {
    const pass = aPass({now: after, catchUpMax: 3})
    const all = minutely.forbidding().catchingUp('all')
    assert.deepEqual(lines(decide(all, after, null, pass)).slice(1), [
      'launched 12:08:00',
      'pending waits_for_open 12:09:00',
      'pending waits_for_open 12:10:00',
    ])
    const open = aPass({now: after, catchUpMax: 3})
    assert.deepEqual(lines(decide(all, after, 5, open)).slice(1), [
      'pending waits_for_open 12:08:00',
      'pending waits_for_open 12:09:00',
      'pending waits_for_open 12:10:00',
    ])
  })

  it('older than max_lateness never run, under any policy', () => {
    for (const [policy, expected] of [
      [
        'latest',
        [
          'missed max_lateness 12:00:00..12:05:00 ×6',
          'missed catch_up_latest 12:06:00..12:09:00 ×4',
          'launched 12:10:00',
        ],
      ],
      [
        'skip',
        ['missed max_lateness 12:00:00..12:05:00 ×6', 'missed catch_up_skip 12:06:00..12:10:00 ×5'],
      ],
      [
        'all',
        [
          'missed max_lateness 12:00:00..12:05:00 ×6',
          ...[6, 7, 8, 9].map((m) => `launched 12:0${m}:00`),
          'launched 12:10:00',
        ],
      ],
    ] as const) {
      assert.deepEqual(lines(decide(minutely.catchingUp(policy, '5m'), after)), expected)
    }
  })

  it('exactly as old as max_lateness still run', () => {
    const decision = decide(minutely.catchingUp('latest', '5m'), NOON + 5 * MINUTE)
    assert.deepEqual(lines(decision), [
      'missed catch_up_latest 12:00:00..12:03:00 ×4',
      'launched 12:04:00',
      'launched 12:05:00',
    ])
  })

  it('end with expires_at', () => {
    const expired = minutely.between(null, NOON + 3 * MINUTE)
    const decision = decide(expired, after)
    assert.deepEqual(lines(decision), [
      'missed catch_up_latest 12:00:00..12:01:00 ×2',
      'launched 12:02:00',
    ])
    assert.equal(decision.nextAt, null)
  })

  it('of a past @at follow catch_up', () => {
    const at = aJob().scheduled('@at 2026-03-01T12:00:00Z').due(NOON)
    assert.deepEqual(lines(decide(at.catchingUp('latest'), NOON + HOUR)), ['launched 12:00:00'])
    assert.deepEqual(lines(decide(at.catchingUp('skip'), NOON + HOUR)), [
      'missed catch_up_skip 12:00:00',
    ])
    assert.deepEqual(lines(decide(at, NOON + 25 * HOUR)), ['missed max_lateness 12:00:00'])
  })
})

describe('an outage of a week', () => {
  const now = NOON + 7 * DAY + 400

  it('costs one row and no iteration for a job that runs every second', () => {
    const {next, previous} = IntervalSchedule.prototype
    let calls = 0
    try {
      IntervalSchedule.prototype.next = function (after) {
        calls += 1
        return next.call(this, after)
      }
      IntervalSchedule.prototype.previous = function (before) {
        calls += 1
        return previous.call(this, before)
      }
      for (const policy of ['latest', 'skip', 'all'] as const) {
        calls = 0
        const decision = decide(aJob().every('1s').catchingUp(policy).due(NOON), now)
        const rows = {latest: 33, skip: 32, all: 132}[policy]
        assert.equal(decision.rows.length, rows)
        assert.ok(calls < 200, `${calls} calls for ${policy}`)
        const times = decision.rows.reduce((sum, {count}) => sum + count, 0)
        assert.equal(times, (7 * DAY) / SECOND + 1)
        assert.equal(decision.nextAt, NOON + 7 * DAY + SECOND)
      }
    } finally {
      Object.assign(IntervalSchedule.prototype, {next, previous})
    }
  })

  it('decides at most 1,000 launches per job and pass, and loses none', () => {
    const context = aPass({now: NOON + HOUR, lateAfterMs: DAY})
    const seen: number[] = []
    let job = aJob().every('1s').due(NOON)
    for (let pass = 0; job.record.nextAt !== null && job.record.nextAt <= context.now; pass += 1) {
      assert.ok(pass < 10)
      const decision = decideDue(job.record, null, context)
      assert.ok(decision.rows.length <= 1_000)
      seen.push(...decision.rows.map(({scheduledAt}) => scheduledAt))
      job = job.due(decision.nextAt!)
    }
    assert.equal(seen.length, 3_601)
    assert.equal(new Set(seen).size, 3_601)
  })
})

const schedules = [
  '@every 1s',
  '@every 7s',
  '@every 13m',
  '0 * * * * *',
  '*/20 * * * * *',
  '0 30 2 * * *',
  '0 0 */5 * * *',
]
const when = fc.record({
  schedule: fc.constantFrom(...schedules),
  timezone: fc.constantFrom('UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe'),
  catchUp: fc.constantFrom('latest', 'skip', 'all'),
  maxLateness: fc.constantFrom(
    '1s',
    '20s',
    '10m',
    '24h',
    '300d',
    '1.5ms',
    '0.5ms',
    '1.0005s',
    '100us',
  ),
  lateAfterMs: fc.constantFrom(30_000, 1_000.5, 0.5),
  concurrency: fc.constantFrom('allow', 'forbid'),
  expiresInMs: fc.option(fc.integer({min: 1, max: 2 * DAY})),
  startAt: fc.integer({min: NOON, max: NOON + 60 * DAY}),
  offMs: fc.oneof(fc.integer({min: 0, max: 2 * MINUTE}), fc.integer({min: 0, max: 3 * DAY})),
  open: fc.option(fc.constant(9)),
  nodes: fc.constantFrom([aNode()], []),
})

describe('every due planned time', () => {
  it('is covered by exactly one row, oldest first, and next is the first time after now', () => {
    fc.assert(
      fc.property(when, ({startAt, offMs, expiresInMs, open, nodes, lateAfterMs, ...spec}) => {
        const expiresAt = expiresInMs === null ? null : startAt + expiresInMs
        const fixture = aJob().with({...spec, expiresAt})
        const nextAt = nextPlanned(fixture.spec, NOON, startAt, 'UTC')
        if (nextAt === null) return
        const now = nextAt + offMs
        const job = fixture.due(nextAt).record
        const pass = aPass({now, nodes, lateAfterMs})
        const decision = decideDue(job, open, pass)
        const schedule = scheduleOf(job.spec, NOON, 'UTC')!
        let expected: number | null = nextAt
        for (const {scheduledAt, scheduledUntil, count, decision: kind, targets} of decision.rows) {
          assert.equal(scheduledAt, expected, 'rows have a gap or an overlap')
          assert.ok(scheduledUntil <= now && scheduledUntil >= scheduledAt)
          assert.equal(schedule.count(scheduledAt, scheduledUntil + 1), count)
          if (kind !== 'missed') assert.equal(count, 1)
          assert.equal(targets.length, kind === 'launched' ? 1 : 0)
          if (kind !== 'missed') assert.ok(now - scheduledAt <= 300 * DAY)
          expected = schedule.next(scheduledUntil)
        }
        if (expected !== null && expiresAt !== null && expected >= expiresAt) expected = null
        assert.equal(decision.nextAt, expected)
        assert.ok(expected === null || expected > now)
        const launched = decision.rows.filter((row) => row.decision === 'launched').length
        if (job.spec.concurrency === 'forbid') assert.ok(launched <= (open === null ? 1 : 0))
        assert.ok(decision.rows.length <= 2 + 100 + 31)
      }),
      {numRuns: 400},
    )
  })
})

describe('a stored next that is no planned time of the schedule any more', () => {
  const daily = aJob().scheduled('0 0 9 * * *')
  const off = NOON + 7

  it('is decided, and the planned times after it follow the schedule', () => {
    assert.deepEqual(lines(decide(daily.due(off), off)), ['launched 12:00:00'])
    const late = decide(daily.due(off), off + MINUTE)
    assert.deepEqual(lines(late), ['launched 12:00:00'])
    assert.equal(late.nextAt, NOON + 21 * HOUR)
    const skipped = decide(daily.due(off).catchingUp('skip'), off + DAY)
    assert.deepEqual(lines(skipped), ['missed catch_up_skip 12:00:00..09:00:00 ×2'])
    const old = decide(daily.due(off).catchingUp('all', '1m'), off + HOUR)
    assert.deepEqual(lines(old), ['missed max_lateness 12:00:00'])
  })

  it('is decided after the end of the schedule', () => {
    const ended = daily.between(null, NOON).due(off)
    assert.deepEqual(lines(decide(ended, off + MINUTE)), ['launched 12:00:00'])
    assert.equal(decide(ended, off + MINUTE).nextAt, null)
  })

  it('is covered by exactly one row, as every time of the schedule after it', () => {
    const offBy = fc.oneof(
      fc.integer({min: 1, max: 2 * HOUR}),
      fc.constantFrom(1, HOUR, 30 * MINUTE),
    )
    fc.assert(
      fc.property(when, offBy, ({startAt, offMs, expiresInMs, open, nodes, ...rest}, off) => {
        const {lateAfterMs, ...spec} = rest
        const expiresAt = expiresInMs === null ? null : startAt + expiresInMs
        const job = aJob()
          .with({...spec, expiresAt})
          .due(startAt + off).record
        const now = startAt + off + offMs
        const decision = decideDue(job, open, aPass({now, nodes, lateAfterMs}))
        const schedule = scheduleOf(job.spec, NOON, 'UTC')!
        let expected: number | null = startAt + off
        for (const {scheduledAt, scheduledUntil, count} of decision.rows) {
          assert.equal(scheduledAt, expected, 'rows have a gap or an overlap')
          const first = scheduledAt === startAt + off ? 1 : 0
          const others = schedule.count(scheduledAt + first, scheduledUntil + 1)
          assert.equal(count, first + others)
          expected = schedule.next(scheduledUntil)
        }
        assert.notEqual(decision.rows.length, 0)
        if (expected !== null && expiresAt !== null && expected >= expiresAt) expected = null
        assert.equal(decision.nextAt, expected)
      }),
      {numRuns: 400},
    )
  })
})

describe('a schedule that cannot be read', () => {
  it('leaves the due times undecided', () => {
    const unreadable = aJob().scheduled('0 0 9 * * *').with({timezone: 'Mars/Olympus'}).due(NOON)
    assert.throws(() => decide(unreadable, NOON), UnreadableSchedule)
  })
})

describe('a pending request', () => {
  function request(
    launch: LaunchFixture,
    job: JobFixture = aJob(),
    open: number | null = null,
    pass: PassContext = aPass(),
    newerMissed = 0,
  ): RequestDecision {
    const {record} = job
    return decideRequest({launch: launch.record, job: record, openGroup: open, newerMissed}, pass)
  }
  const manual = aLaunch(5).waiting('manual')
  const parent = aLaunch(5).waiting('parent')
  const planned = aLaunch(5).waiting('schedule', 'waits_for_node')
  const targets = [{nodeId: 'id-of-node-a', nodeName: 'node-a'}]
  const go = {group: 5, revision: 1, kind: 'launch', targets, forbid: false}
  const skip = (reason: string, decision = 'skipped') => ({
    group: 5,
    revision: 1,
    kind: 'skip',
    decision,
    reason,
  })
  const stay = (reason: string) => ({group: 5, revision: 1, kind: 'stay', reason})
  const noNodes = aPass({nodes: []})
  const daily = aJob().between(NOON - DAY, NOON + DAY)
  const forbid = aJob().forbidding()

  const table: readonly [what: string, decision: RequestDecision, expected: object][] = [
    ['manual: runs', request(manual), go],
    ['manual: runs a disabled job', request(manual, aJob().disabled()), go],
    ['manual: runs outside the window', request(manual, aJob().between(NOON + DAY, null)), go],
    ['manual: runs at any age', request(manual.with({scheduledAt: NOON - 90 * DAY})), go],
    ['on create: runs', request(aLaunch(5).waiting('create')), go],
    ['of a parent: runs', request(parent, daily), go],
    [
      'of a parent: a disabled job is skipped',
      request(parent, aJob().disabled()),
      skip('disabled'),
    ],
    [
      'of a parent: skipped before starts_at',
      request(parent, aJob().between(NOON + 1, null)),
      skip('outside_window'),
    ],
    ['of a parent: runs at starts_at', request(parent, aJob().between(NOON, null)), go],
    [
      'of a parent: skipped at expires_at',
      request(parent, aJob().between(null, NOON)),
      skip('outside_window'),
    ],
    ['planned: runs', request(planned), go],
    [
      'planned: skipped if disabled meanwhile',
      request(planned, aJob().disabled()),
      skip('disabled'),
    ],
    [
      'planned: missed if older than max_lateness',
      request(planned.with({scheduledAt: NOON - DAY - 1})),
      skip('max_lateness', 'missed'),
    ],
    [
      'planned: runs if exactly as old as max_lateness',
      request(planned.with({scheduledAt: NOON - DAY})),
      go,
    ],
    [
      'planned: runs if planned before expires_at',
      request(planned, aJob().between(null, NOON)),
      go,
    ],
    ['without a node: waits', request(manual, aJob(), null, noNodes), stay('waits_for_node')],
    [
      'without a node: waits until the timeout',
      request(manual.with({storedAt: NOON - 599_999}), aJob(), null, noNodes),
      stay('waits_for_node'),
    ],
    [
      'without a node: skipped after the timeout',
      request(manual.with({storedAt: NOON - 600_000}), aJob(), null, noNodes),
      skip('no_target'),
    ],
    [
      'without a node: missed if older than max_lateness',
      request(planned, aJob().catchingUp('latest', '0s'), null, aPass({nodes: [], now: NOON + 1})),
      skip('max_lateness', 'missed'),
    ],
    ['of a forbid job: runs', request(manual, forbid), {...go, forbid: true}],
    [
      'manual: skipped while a launch is open',
      request(manual, forbid, 3),
      skip('forbid: launch 3 is still open'),
    ],
    [
      'of a parent: skipped while a launch is open',
      request(parent, forbid, 3),
      skip('forbid: launch 3 is still open'),
    ],
    ['planned: waits while a launch is open', request(planned, forbid, 3), stay('waits_for_open')],
    ['forced: runs while a launch is open', request(manual.forced(), forbid, 3), go],
  ]
  for (const [what, decision, expected] of table) {
    it(what, () => assert.deepEqual(decision, expected))
  }

  describe('for a planned time that waited for a node until it was missed', () => {
    const missed = planned.with({scheduledAt: NOON - 31 * SECOND})
    const late = planned.with({scheduledAt: NOON - 30 * SECOND})
    const by = (catchUp: CatchUp) => aJob().catchingUp(catchUp)
    const after = (job: JobFixture, newer: number, row = missed, pass = aPass()) =>
      request(row, job, null, pass, newer)
    const capped = aPass({catchUpMax: 3})

    it('follows catch_up', () => {
      assert.deepEqual(after(by('latest'), 1), skip('catch_up_latest', 'missed'))
      assert.deepEqual(after(by('latest'), 0), go)
      assert.deepEqual(after(by('skip'), 0), skip('catch_up_skip', 'missed'))
      assert.deepEqual(after(by('all'), 3, missed, capped), skip('catch_up_cap', 'missed'))
      assert.deepEqual(after(by('all'), 2, missed, capped), go)
    })

    it('launches a time that is late but not missed', () => {
      for (const policy of ['latest', 'skip', 'all'] as const)
        assert.deepEqual(after(by(policy), 5, late), go)
    })

    it('lets it wait on without a node, and then says that there was none', () => {
      const waits = after(by('skip'), 5, missed, noNodes)
      assert.deepEqual(waits, stay('waits_for_node'))
      const waited = missed.with({storedAt: NOON - 600_000})
      assert.deepEqual(after(by('skip'), 5, waited, noNodes), skip('no_target'))
    })

    it('does not apply to a time that waits for the previous launch', () => {
      const queued = aLaunch(5).waiting('schedule', 'waits_for_open')
      const row = queued.with({scheduledAt: NOON - HOUR})
      assert.deepEqual(after(by('skip'), 5, row), go)
    })
  })

  it('waiting for a node does not block other requests of its job', () => {
    const pass = aPass({nodes: []})
    assert.deepEqual(request(manual, forbid, null, pass), stay('waits_for_node'))
    const second = aLaunch(6).waiting('manual')
    assert.deepEqual(request(second, forbid, null, pass), {...stay('waits_for_node'), group: 6})
  })

  it('is blocked by another one launched in the same pass', () => {
    const pass = aPass()
    assert.deepEqual(request(manual, forbid, null, pass), {...go, forbid: true})
    assert.deepEqual(request(aLaunch(6).waiting('manual'), forbid, null, pass), {
      ...skip('forbid: launch 5 is still open'),
      group: 6,
    })
  })
})
