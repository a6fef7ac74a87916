/** Planned times of a job, and the effect of a changed definition on them. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import fc from 'fast-check'
import type {JobRecord, JobSpec} from '../../src/core/job.ts'
import {
  nextPlanned,
  planDefinition,
  replanned,
  rezoned,
  sameSpec,
  scheduleOf,
  undecidedTimes,
  type ZoneChange,
} from '../../src/core/next-time.ts'
import {aJob, NOON, type JobFixture} from '../support/fixtures.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

function plan(existing: JobFixture | null, changed: JobFixture, now: number, runsPast = true) {
  const record = existing === null ? null : existing.record
  return planDefinition(record, changed.spec, now, 'UTC', runsPast)
}

/** A job as `planDefinition` stores it at `now`. */
function stored(job: JobFixture, now: number): JobFixture {
  const {anchorAt, nextAt, revision} = plan(null, job, now)
  return job.stored({anchorAt, nextAt, revision})
}

describe('the next planned time', () => {
  const hourly = aJob().scheduled('0 0 * * * *')
  const table: readonly [what: string, job: JobFixture, after: number, next: number | null][] = [
    ['is strictly after', hourly, NOON, NOON + HOUR],
    ['is not before starts_at', hourly.between(NOON + 3 * HOUR, null), NOON, NOON + 3 * HOUR],
    [
      'follows a starts_at between two planned times',
      hourly.between(NOON + 90 * MINUTE, null),
      NOON,
      NOON + 2 * HOUR,
    ],
    ['excludes expires_at', hourly.between(null, NOON + HOUR), NOON, null],
    ['may be just before expires_at', hourly.between(null, NOON + HOUR + 1), NOON, NOON + HOUR],
    ['is null for a disabled job', hourly.disabled(), NOON, null],
    ['is null for a child', hourly.with({parentJob: 'parent'}), NOON, null],
    ['is null for @manually', aJob().manual(), NOON, null],
    [
      'uses the zone of the job',
      aJob().scheduled('0 30 9 * * *').with({timezone: 'Asia/Tokyo'}),
      NOON,
      NOON + 12.5 * HOUR,
    ],
    [
      'uses the default zone for a job without one',
      aJob().scheduled('0 0 13 * * *').with({timezone: ''}),
      NOON,
      NOON + HOUR,
    ],
  ]
  for (const [what, job, after, next] of table) {
    it(what, () => assert.equal(nextPlanned(job.spec, NOON, after, 'UTC'), next))
  }
})

describe('a new job', () => {
  it('starts at revision 1 with planned times after now', () => {
    const change = plan(null, aJob().scheduled('0 0 * * * *'), NOON + 1)
    const expected = {
      changed: true,
      revision: 1,
      anchorAt: NOON,
      nextAt: NOON + HOUR,
      missed: [],
      retracts: false,
    }
    assert.deepEqual(change, expected)
  })

  it('uses the second of its creation as the phase of @every', () => {
    const change = plan(null, aJob().every('10m'), NOON + 5_678)
    assert.deepEqual([change.anchorAt, change.nextAt], [NOON + 5_000, NOON + 5_000 + 10 * MINUTE])
  })

  it('waits a whole interval when created on a full second', () => {
    assert.equal(plan(null, aJob().every('1h'), NOON).nextAt, NOON + HOUR)
  })

  it('fires first at starts_at and keeps that phase', () => {
    const future = aJob()
      .every('10m')
      .between(NOON + 123_456, null)
    assert.equal(plan(null, future, NOON).nextAt, NOON + 123_456)
    assert.equal(plan(null, future.between(NOON, null), NOON).nextAt, NOON)
    const past = aJob()
      .every('10m')
      .between(NOON - 123_456, null)
    assert.equal(plan(null, past, NOON).nextAt, NOON - 123_456 + 10 * MINUTE)
  })

  const at = (iso: string) => aJob().scheduled(`@at ${iso}`)
  const past = NOON - HOUR
  const instants: readonly [
    what: string,
    job: JobFixture,
    runsPast: boolean,
    next: number | null,
  ][] = [
    ['a future @at: planned', at('2026-03-01T13:00:00Z'), true, NOON + HOUR],
    ['an @at of this instant: due', at('2026-03-01T12:00:00Z'), true, NOON],
    ['a past @at: due at once', at('2026-03-01T11:00:00Z'), true, past],
    ['a past @at in a restore: not planned', at('2026-03-01T11:00:00Z'), false, null],
    ['a past @at and disabled: not planned', at('2026-03-01T11:00:00Z').disabled(), true, null],
    [
      'a past @at before starts_at: not planned',
      at('2026-03-01T11:00:00Z').between(past + 1, null),
      true,
      null,
    ],
    [
      'a past @at after expires_at: not planned',
      at('2026-03-01T11:00:00Z').between(null, past),
      true,
      null,
    ],
  ]
  for (const [what, job, runsPast, next] of instants) {
    it(`with ${what}`, () => assert.equal(plan(null, job, NOON, runsPast).nextAt, next))
  }

  it('plans no past time for any other schedule', () => {
    for (const schedule of ['0 0 * * * *', '@every 1h', '@daily']) {
      const {nextAt} = plan(
        null,
        aJob()
          .scheduled(schedule)
          .between(NOON - 10 * HOUR, null),
        NOON,
      )
      assert.ok(nextAt! >= NOON, schedule)
    }
  })
})

describe('the same definition again', () => {
  it('changes nothing, also while a time is due', () => {
    const job = stored(aJob().every('1m'), NOON)
    const again = plan(job, aJob().every('1m'), NOON + 10 * MINUTE)
    const {revision, anchorAt, nextAt} = job.record
    assert.deepEqual(again, {
      changed: false,
      revision,
      anchorAt,
      nextAt,
      missed: [],
      retracts: false,
    })
  })

  it('is recognized in any order of its fields and map entries', () => {
    const {spec} = aJob()
      .tagged({a: '1', b: '2'})
      .with({metadata: {x: 'y', z: ''}})
    const backward = Object.fromEntries(Object.entries(spec).toReversed()) as unknown as JobSpec
    assert.ok(sameSpec(spec, backward))
    assert.ok(sameSpec(spec, {...spec, tags: {b: '2', a: '1'}}))
  })

  it('is a change if any field, map entry or the order of processors differs', () => {
    const {spec} = aJob()
    const processors = {files: {forward: 'true'}, log: {}}
    const changes: Partial<JobSpec>[] = [
      {displayname: 'x'},
      {retries: 1},
      {disabled: true},
      {startsAt: NOON},
      {tags: {a: '1'}},
      {metadata: {a: '1'}},
      {executorConfig: {command: 'true'}},
      {processors},
    ]
    for (const change of changes) assert.ok(!sameSpec(spec, {...spec, ...change}))
    const other = {...spec, processors: {log: {}, files: {forward: 'true'}}}
    assert.ok(!sameSpec({...spec, processors}, other))
  })
})

describe('a changed definition', () => {
  const hourly = stored(aJob().scheduled('0 0 * * * *'), NOON + 1)
  const later = NOON + 90 * MINUTE

  it('keeps next, phase and a due time when the schedule is the same', () => {
    const change = plan(hourly, hourly.with({displayname: 'new', retries: 3}), later)
    assert.equal(change.revision, 2)
    assert.equal(change.nextAt, NOON + HOUR, 'the due time was lost')
    assert.deepEqual(change.missed, [])
  })

  it('records the due times before the new next as one missed row', () => {
    const minutely = stored(aJob().scheduled('0 * * * * *'), NOON + 1)
    const change = plan(minutely, minutely.scheduled('0 0 * * * *'), NOON + 5 * MINUTE + 1)
    assert.equal(change.nextAt, NOON + HOUR)
    const [row] = change.missed
    assert.deepEqual(row, {
      scheduledAt: NOON + MINUTE,
      scheduledUntil: NOON + 5 * MINUTE,
      count: 5,
      decision: 'missed',
      reason: 'edited',
      targets: [],
    })
    assert.equal(change.missed.length, 1)
  })

  it('records the reason disabled when the job was disabled', () => {
    const change = plan(hourly, hourly.with({disabled: true}), later)
    assert.equal(change.nextAt, null)
    assert.deepEqual(
      change.missed.map(({reason, count}) => [reason, count]),
      [['disabled', 1]],
    )
  })

  it('records no row when no time was due', () => {
    assert.deepEqual(plan(hourly, hourly.every('5m'), NOON + 2).missed, [])
    assert.deepEqual(plan(hourly, hourly.with({disabled: true}), NOON + 2).missed, [])
  })

  it('plans no time before it was accepted', () => {
    for (const changed of [
      hourly.scheduled('0 */7 * * * *'),
      hourly.every('1m'),
      hourly.with({timezone: 'Asia/Kolkata'}),
      hourly.between(NOON - HOUR, null),
    ]) {
      assert.ok(plan(hourly, changed, later).nextAt! > later)
    }
  })

  it('does not plan a past @at for an existing job', () => {
    assert.equal(plan(hourly, hourly.scheduled('@at 2026-03-01T11:00:00Z'), later).nextAt, null)
  })

  it('changes the phase of @every only with a new schedule or starts_at', () => {
    const every = stored(aJob().every('10m'), NOON)
    const same = plan(every, every.tagged({role: 'web'}), NOON + 123_000)
    assert.deepEqual([same.anchorAt, same.nextAt], [NOON, NOON + 10 * MINUTE])
    const toggled = plan(every.disabled(), every, NOON + 25 * MINUTE)
    assert.deepEqual([toggled.anchorAt, toggled.nextAt], [NOON, NOON + 30 * MINUTE])
    const changed = plan(every, every.every('7m'), NOON + 123_456)
    assert.deepEqual(
      [changed.anchorAt, changed.nextAt],
      [NOON + 123_000, NOON + 123_000 + 7 * MINUTE],
    )
    const started = plan(every, every.between(NOON + HOUR, null), NOON + 123_456)
    assert.deepEqual([started.anchorAt, started.nextAt], [NOON + HOUR, NOON + HOUR])
  })

  it('never plans a decided time again, even if the wall clock was corrected', () => {
    const decided = hourly.stored({decidedUntil: NOON + 2 * HOUR, nextAt: NOON + 3 * HOUR})
    const corrected = NOON + 2 * HOUR - MINUTE
    const change = plan(decided, decided.scheduled('0 */30 * * * *'), corrected)
    assert.deepEqual([change.nextAt, change.retracts], [NOON + 2.5 * HOUR, false])
  })

  it('plans from now if the clock was far ahead, and takes the rows after now back', () => {
    const decided = hourly.stored({decidedUntil: NOON + 400 * DAY, nextAt: NOON + 400 * DAY + HOUR})
    for (const edited of [
      decided.scheduled('0 */30 * * * *'),
      decided.with({timezone: 'Asia/Kolkata'}),
    ]) {
      const change = plan(decided, edited, NOON + 2 * HOUR)
      assert.deepEqual([change.nextAt, change.retracts], [NOON + 2.5 * HOUR, true])
    }
    const enabled = plan(decided.disabled(), decided, NOON + 2 * HOUR)
    assert.deepEqual([enabled.nextAt, enabled.retracts], [NOON + 3 * HOUR, true])
    const renamed = plan(decided, decided.with({displayname: 'new'}), NOON + 2 * HOUR)
    assert.deepEqual([renamed.nextAt, renamed.retracts], [decided.record.nextAt, false])
  })

  it('has no next while it is a child', () => {
    const child = plan(hourly, hourly.with({parentJob: 'parent'}), later)
    assert.equal(child.nextAt, null)
    assert.deepEqual(
      child.missed.map(({reason}) => reason),
      ['edited'],
    )
    const orphan = hourly.with({parentJob: 'parent'}).stored({nextAt: null})
    assert.equal(plan(orphan, hourly, later).nextAt, NOON + 2 * HOUR)
  })

  it('has no next after an earlier expires_at, and has one again after a later one', () => {
    const ended = plan(hourly, hourly.between(null, NOON + HOUR), later)
    assert.equal(ended.nextAt, null)
    assert.equal(ended.missed.length, 1)
    const expired: JobRecord = hourly.between(null, NOON + HOUR).stored({nextAt: null}).record
    const {spec} = hourly.between(null, NOON + 10 * HOUR)
    assert.equal(planDefinition(expired, spec, later, 'UTC', true).nextAt, NOON + 2 * HOUR)
  })
  it('records all due times when an earlier expires_at excludes some, else keeps them', () => {
    const minutely = stored(aJob().scheduled('0 * * * * *'), NOON + 1)
    const now = NOON + 5 * MINUTE + 1
    const cut = plan(minutely, minutely.between(null, NOON + 3 * MINUTE), now)
    assert.equal(cut.nextAt, null)
    assert.deepEqual(
      cut.missed.map(({scheduledAt, count, reason}) => [scheduledAt, count, reason]),
      [[NOON + MINUTE, 5, 'edited']],
    )
    const kept = plan(minutely, minutely.between(null, now), now)
    assert.deepEqual([kept.nextAt, kept.missed], [NOON + MINUTE, []])
  })
})

describe('new time zone data', () => {
  // Planned by old data, where the zone was an hour ahead or behind: 9:00 was at 08:00Z or 10:00Z.
  const daily = aJob()
    .scheduled('0 0 9 * * *')
    .stored({updatedAt: NOON - 30 * DAY})
  const nine = NOON - 3 * HOUR
  const at = (decidedUntil: number | null, nextAt: number | null, now: number, job = daily) =>
    replanned(job.stored({decidedUntil, nextAt}).record, now, 'UTC')

  it('moves an undecided time, even if it is due', () => {
    for (const hour of [-HOUR, HOUR]) {
      assert.equal(at(nine - DAY, nine + hour, nine - 2 * HOUR), nine)
      assert.equal(at(nine - DAY, nine + hour, nine + hour + 1), nine)
    }
  })

  it('does not run a day again that was decided with the old data', () => {
    for (const hour of [-HOUR, HOUR])
      for (const now of [nine - 2 * HOUR, nine - 8 * HOUR])
        assert.equal(at(nine - DAY + hour, nine + hour, now), nine)
  })

  it('makes a time due that it puts before now', () => {
    assert.equal(at(nine - DAY, nine + HOUR, nine + HOUR / 2), nine)
    assert.equal(at(nine - DAY + HOUR, nine + HOUR, nine + HOUR / 2), nine)
  })

  it('plans no time before the definition was accepted', () => {
    const accepted = daily.stored({updatedAt: nine + 1})
    assert.equal(at(null, nine + HOUR, nine + 2, accepted), nine + DAY)
    assert.equal(at(nine - 9 * DAY, nine + HOUR, nine + 2, accepted), nine + DAY)
    const edited = daily.stored({updatedAt: nine + 5})
    assert.equal(at(nine - DAY, nine, nine + 9, edited), nine, 'a due time that an edit kept')
  })

  it('plans a job again whose schedule an earlier release could not read', () => {
    assert.equal(at(nine - 9 * DAY, null, nine + 1), nine + DAY)
  })

  it('leaves other jobs alone', () => {
    const off = nine + 7
    for (const job of [daily.disabled(), aJob().every('1h'), aJob().manual(), aJob().childOf('p')])
      assert.equal(at(null, off, NOON, job), off)
    assert.equal(at(null, null, NOON, daily.between(null, NOON)), null)
  })

  it('changes nothing where nothing changed', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('0 0 9 * * *', '0 */20 * * * *', '*/7 * * * * *', '0 30 2 * * *'),
        fc.constantFrom('UTC', 'Europe/Berlin', 'Australia/Lord_Howe'),
        fc.integer({min: NOON, max: NOON + 300 * DAY}),
        fc.integer({min: -DAY, max: DAY}),
        fc.boolean(),
        (schedule, timezone, startAt, offMs, isDecided) => {
          const job = aJob().with({schedule, timezone})
          const decided = nextPlanned(job.spec, NOON, startAt, 'UTC')!
          const nextAt = nextPlanned(job.spec, NOON, decided, 'UTC')
          const updatedAt = isDecided ? NOON : decided
          const decidedUntil = isDecided ? decided : null
          const {record} = job.stored({decidedUntil, nextAt, updatedAt})
          assert.equal(replanned(record, decided + Math.max(0, offMs), 'UTC'), nextAt)
        },
      ),
    )
  })
})

describe('a changed default time zone', () => {
  const daily = aJob().scheduled('0 0 15 * * *').with({timezone: ''})
  const at = NOON + 3 * HOUR

  it('is nothing to a job with a zone in its definition or its schedule', () => {
    const change = {at, from: 'UTC', to: 'Asia/Tokyo'}
    for (const job of [
      daily.with({timezone: 'UTC'}),
      daily.scheduled('TZ=UTC 0 0 15 * * *'),
      daily.scheduled('CRON_TZ=Asia/Tokyo 0 0 15 * * *'),
      daily.scheduled('@every 3h'),
      daily.disabled(),
    ]) {
      const {record} = job.stored({nextAt: at})
      assert.deepEqual(rezoned(record, [change], at), {nextAt: at, missed: []})
    }
  })

  it('records what is due in the old zone only', () => {
    const change = {at, from: 'UTC', to: 'Asia/Tokyo'}
    const {record} = daily.stored({nextAt: at - DAY})
    const row = {scheduledAt: at - DAY, scheduledUntil: at, count: 2, decision: 'missed'}
    assert.deepEqual(rezoned(record, [change], at), {
      nextAt: at + 15 * HOUR,
      missed: [{...row, reason: 'edited', targets: []}],
    })
  })

  it('of a wrong clock counts from now', () => {
    const change = {at: at + 9 * DAY, from: 'UTC', to: 'Asia/Tokyo'}
    const {record} = daily.stored({nextAt: at + DAY, updatedAt: at + 9 * DAY})
    assert.equal(rezoned(record, [change], at).nextAt, at + 15 * HOUR)
  })

  it('leaves no planned time out and doubles none, also with an edit in between', () => {
    const zone = fc.constantFrom('UTC', 'Europe/Berlin', 'Asia/Kathmandu', 'Pacific/Auckland')
    fc.assert(
      fc.property(
        fc.constantFrom('0 0 9 * * *', '0 0 * * * *', '0 30 0,6,13 * * *', '0 */20 8-15 * * *'),
        fc.array(zone, {minLength: 2, maxLength: 4}),
        fc.array(fc.integer({min: 0, max: 30}), {minLength: 5, maxLength: 5}),
        fc.option(fc.nat(3), {nil: null}),
        (schedule, zones, hours, editAfter) => {
          const job = aJob().with({schedule, timezone: ''})
          const firstAt = nextPlanned(job.spec, NOON, NOON, zones[0]!)!
          let {record} = job.stored({nextAt: firstAt, updatedAt: NOON})
          const rows: JobRecord['nextAt'][] = []
          const changes: ZoneChange[] = []
          const expected: number[] = []
          let now = NOON
          let zone = zones[0]!
          const timesOf = (zone: string) => scheduleOf(record.spec, NOON, zone)!
          const note = (missed: ReturnType<typeof rezoned>['missed']) => {
            for (const {scheduledAt, scheduledUntil, count} of missed) {
              // A row may span a change that kept its times: what was planned then is the measure.
              const covered = expected.filter(
                (each) => each >= scheduledAt && each <= scheduledUntil,
              )
              assert.deepEqual([covered[0], covered.length], [scheduledAt, count])
              rows.push(...covered)
            }
          }
          const elapse = (ms: number) => {
            let next = timesOf(zone).next(now)
            for (; next !== null && next <= now + ms; next = timesOf(zone).next(next))
              expected.push(next)
            now += ms
          }
          for (const [index, to] of zones.entries()) {
            if (index > 0) {
              elapse(1 + hours[index]! * 20 * MINUTE)
              changes.push({at: now, from: zone, to})
              zone = to
            }
            if (editAfter !== index || index === 0) continue
            elapse(1 + hours[0]! * HOUR)
            const spec = {...record.spec, owner: 'other'}
            const edit = planDefinition(record, spec, now, zone, false, changes)
            note(edit.missed)
            const decidedUntil = edit.missed.at(-1)?.scheduledUntil ?? null
            record = {...record, spec, nextAt: edit.nextAt, decidedUntil, updatedAt: now}
          }
          elapse(2 * HOUR)
          const planned = rezoned(record, changes, now)
          note(planned.missed)
          elapse(2 * DAY)
          const times = undecidedTimes(timesOf(zone), planned.nextAt!)
          let due: number | null = planned.nextAt
          for (; due !== null && due <= now; due = times.next(due)) rows.push(due)
          assert.deepEqual(rows, expected)
          const again = {...record, nextAt: planned.nextAt}
          const decidedUntil = planned.missed.at(-1)?.scheduledUntil ?? record.decidedUntil
          const {nextAt, missed} = rezoned({...again, decidedUntil}, changes, now)
          assert.deepEqual([nextAt, missed], [planned.nextAt, []], 'planned twice')
        },
      ),
    )
  })
})
