/** Zones: which names are known, and a table of stretches that equals Temporal at every border. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {findZone, isKnownZone} from '../../../src/core/schedule/zone.ts'

test('IANA names are known, in any case', () => {
  for (const name of ['UTC', 'Etc/UTC', 'GMT', 'Europe/Berlin', 'europe/BERLIN', 'EST5EDT']) {
    assert.ok(isKnownZone(name), name)
  }
  for (const name of ['America/Argentina/Buenos_Aires', 'Etc/GMT+5', 'America/Port-au-Prince']) {
    assert.ok(isKnownZone(name), name)
  }
})

test('offsets, ISO texts and unknown names are not zones', () => {
  const names = ['', ' ', '+02:00', '-05', 'Z', 'UTC+2', 'Local', 'Mars/Olympus', 'Europe/Berlin ']
  const shapes = [
    'Europe/',
    '/Berlin',
    '2026-01-01T00:00Z[UTC]',
    'a'.repeat(10_000),
    '../UTC',
    '\0',
  ]
  for (const name of [...names, ...shapes]) assert.ok(!isKnownZone(name), JSON.stringify(name))
})

test('all spellings of a name share one zone', () => {
  assert.equal(findZone('europe/berlin'), findZone('Europe/Berlin'))
  assert.equal(findZone('EUROPE/BERLIN')?.name, 'Europe/Berlin')
  assert.equal(findZone('Nowhere/Land'), null)
})

const ZONES = [
  'Europe/Berlin',
  'Australia/Lord_Howe',
  'Pacific/Apia',
  'Africa/Monrovia',
  'Asia/Tehran',
]

test('stretches have no gaps, and each has the offset of Temporal', () => {
  for (const name of [...ZONES, 'UTC', 'America/Santiago', 'Asia/Kathmandu']) {
    const zone = findZone(name)!
    let instant = Date.UTC(1840, 0, 1)
    while (instant < Date.UTC(2110, 0, 1)) {
      const stretch = zone.stretchAt(instant)
      assert.ok(stretch.from <= instant && instant < stretch.until, `${name} ${instant}`)
      assert.ok(stretch.from % 1000 === 0)
      for (const at of [Math.max(stretch.from, instant), stretch.until - 1]) {
        assert.equal(stretch.offsetMs, offsetAt(name, at), `${name} at ${at}`)
      }
      instant = stretch.until
    }
  }
})

test('a stretch knows the wall time reached before it', () => {
  const berlin = findZone('Europe/Berlin')!
  const spring = berlin.stretchAt(Date.UTC(2026, 2, 29, 1))
  assert.equal(spring.from, Date.UTC(2026, 2, 29, 1))
  assert.equal(spring.reachedWall, Date.UTC(2026, 2, 29, 2), '02:00 to 03:00 must be a gap')
  const autumn = berlin.stretchAt(Date.UTC(2026, 9, 25, 1))
  assert.equal(autumn.from + autumn.offsetMs, Date.UTC(2026, 9, 25, 2))
  assert.equal(autumn.reachedWall, Date.UTC(2026, 9, 25, 3), '02:00 to 03:00 must be repeated')
})

test('no wall time is missing or repeated away from transitions', () => {
  const utc = findZone('UTC')!
  for (let year = 1; year < 9999; year += 7) {
    const stretch = utc.stretchAt(Date.parse(`${String(year).padStart(4, '0')}-07-01T00:00:00Z`))
    assert.equal(stretch.offsetMs, 0)
    assert.equal(stretch.reachedWall, stretch.from)
  }
})

function offsetAt(name: string, instant: number): number {
  const zoned = Temporal.Instant.fromEpochMilliseconds(instant).toZonedDateTimeISO(name)
  return zoned.offsetNanoseconds / 1e6
}
