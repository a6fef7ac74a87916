/** Previews and daylight saving: moved and repeated times, and the changes between them. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {clockChanges, localTimes} from '../../../src/core/schedule/clock-changes.ts'
import {parseSchedule} from '../../../src/core/schedule/parse.ts'

/** `zone expression from` and the times that follow, each with its shift. */
const ROWS: readonly (readonly [zone: string, text: string, from: string, expected: string])[] = [
  ['Europe/Berlin', '0 30 2 * * *', '2026-03-29T00:00Z', '01:00 moved 02:30, 00:30'],
  ['Europe/Berlin', '0 0 3 * * *', '2026-03-29T00:00Z', '01:00, 01:00'],
  ['Europe/Berlin', '0 0,30 2,3 * * *', '2026-03-29T00:00Z', '01:00, 01:30'],
  ['Europe/Berlin', '0 30 2 * * *', '2026-10-25T00:00Z', '00:30 first_pass, 01:30'],
  ['Europe/Berlin', '0 30 * * * *', '2026-10-25T00:00Z', '00:30 first_pass, 01:30 second_pass'],
  ['Europe/Berlin', '0 59 1 * * *', '2026-10-24T23:00Z', '23:59, 00:59'],
  ['Europe/Berlin', '0 0 3 * * *', '2026-10-25T00:30Z', '02:00, 02:00'],
  ['Australia/Lord_Howe', '0 45 1 * * *', '2026-04-04T14:00Z', '14:45 first_pass, 15:15'],
  ['Europe/Berlin', 'TZ=UTC 0 30 2 * * *', '2026-03-29T00:00Z', '02:30, 02:30'],
  ['Europe/Berlin', '@every 30m', '2026-03-29T00:45Z', '01:00, 01:30'],
]

for (const [timezone, text, from, expected] of ROWS)
  test(`${text} in ${timezone} from ${from} is ${expected}`, () => {
    const context = {timezone, name: '', anchorAt: 0}
    const parsed = parseSchedule(text, context)
    assert.ok(parsed.ok)
    const first = parsed.schedule.next(Date.parse(from) - 1)!
    const times = [first, parsed.schedule.next(first)!]
    const zone = text.startsWith('TZ=') ? 'UTC' : timezone
    const shown = localTimes(times, text, parsed.schedule, context, zone).map((time) => {
      const wanted = time.plannedWall === null ? '' : ` ${clock(time.plannedWall)}`
      return `${clock(time.at)} ${time.shift}${wanted}`.trim()
    })
    assert.equal(shown.join(', '), expected)
  })

function clock(at: number): string {
  return new Date(at).toISOString().slice(11, 16)
}

test('changes are listed up to the last time, and no more than asked for', () => {
  const [from, until] = [Date.parse('2026-01-01T00:00Z'), Date.parse('2026-10-25T01:00Z')]
  const year = clockChanges('Europe/Berlin', from, until, 10)
  assert.deepEqual(
    year.map(({at}) => new Date(at).toISOString().slice(0, 10)),
    ['2026-03-29', '2026-10-25'],
  )
  assert.equal(clockChanges('Europe/Berlin', from, until, 1).length, 1)
  assert.deepEqual(clockChanges('UTC', from, Date.parse('9999-01-01T00:00Z'), 10), [])
})
