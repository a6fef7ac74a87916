/**
 * Invalid schedules as a table: `schedule | error`. An error is one sentence that names the field and the
 * fix. Each line has fragments of it, separated by `…`, in their order.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {parseSchedule, SCHEDULE_LENGTH_MAX} from '../../../src/core/schedule/parse.ts'

const CONTEXT = {timezone: 'UTC', name: 'backup', anchorAt: 0}

function check(row: string): void {
  const [schedule, fragments] = row.split(' | ').map((part) => part.trim()) as [string, string]
  const parsed = parseSchedule(schedule, CONTEXT)
  assert.ok(!parsed.ok, 'the schedule was accepted')
  let from = 0
  for (const fragment of fragments.split('…')) {
    const at = parsed.problem.indexOf(fragment.trim(), from)
    assert.ok(at >= 0, `"${fragment.trim()}" in: ${parsed.problem}`)
    from = at + fragment.trim().length
  }
  assert.doesNotMatch(parsed.problem, /\n|\.$/, 'the error is not one clause')
}

const TABLE: Readonly<Record<string, string>> = {
  'number of fields': `
    * * * *                | five fields … six … has 4: add
    * * * * * * *          | five fields … six … has 7: remove
    0 0 0 1 1 * 2027       | has 7: remove
    daily                  | is not a cron expression … @daily
    every day at 2         | is not a cron expression … 0 0 2 * * *
    2026-05-01T10:00:00Z   | is a date … @at 2030-01-31T08:00:00Z
    2026-05-01 10:00:00    | is a date … @at`,

  'out of range': `
    60 * * * * *           | the second field "60" … out of range: use 0 to 59
    0 61 * * * *           | the minute field "61" has the value "61" … use 0 to 59
    61 * * * *             | the minute field "61"
    0 0 24 * * *           | the hour field "24" … use 0 to 23
    0 0 0 0 * *            | the day-of-month field "0" … use 1 to 31
    0 0 0 32 * *           | the day-of-month field "32" … use 1 to 31
    0 0 0 32W * *          | the day-of-month field "32W" … use 1 to 31
    0 0 0 * 0 *            | the month field "0" … use 1 to 12
    0 0 0 * 13 *           | the month field "13" … use 1 to 12
    0 0 0 * * 8            | the day-of-week field "8" … use 0 to 7
    0 0 0 * * 8#1          | the day-of-week field "8#1" … use 0 to 7
    0 50-70 * * * *        | the minute field "50-70" has the value "70"
    0 0 9,25 * * *         | the hour field "9,25" has the value "25"
    0 99999999999999999999 * * * * | the minute field … out of range
    -1 * * * * *           | the second field "-1" … not a range`,

  'not a value': `
    x * * * * *            | the second field "x" has the value "X" … use 0 to 59
    0 1.5 * * * *          | the minute field "1.5"
    0 +5 * * * *           | the minute field "+5"
    0 0x10 * * * *         | the minute field "0x10"
    0 ٣ * * * *            | the minute field
    0 0 0 * FOO *          | the month field "FOO" … use 1 to 12, or names JAN to DEC
    0 0 0 * JANUARY *      | the month field "JANUARY" … three-letter name JAN
    0 0 0 * * monday       | the day-of-week field "monday" … three-letter name MON
    0 0 0 * * FUN          | the day-of-week field "FUN" … SUN to SAT
    0 0 0 MON * *          | the day-of-month field "MON"
    0 0 0 * MON *          | the month field "MON"
    0 H * * * *            | the minute field "H"
    0 0 0 * * +MON         | the day-of-week field "+MON"
    0 5** * * * *          | the minute field "5**"
    0 L * * * *            | the minute field "L"
    0 0 15W * * *          | the hour field "15W"`,

  'lists, ranges, steps': `
    0 1,,2 * * * *         | the minute field "1,,2" has an empty entry … comma
    0 1, * * * *           | the minute field "1," has an empty entry
    0 5- * * * *           | the minute field "5-" … not a range
    0 1-2-3 * * * *        | the minute field "1-2-3" … not a range
    0 *-5 * * * *          | the minute field "*-5"
    0 0-~ * * * *          | the minute field "0-~" has the value "~"
    0 30-10 * * * *        | the minute field "30-10" … ends before it begins … 30-59,0-10
    0 0 22-2 * * *         | the hour field "22-2" … 22-23,0-2
    0 0 0 * * FRI-MON      | the day-of-week field "FRI-MON" … FRI-SAT,SUN-MON
    0 0 0 * NOV-FEB *      | the month field "NOV-FEB" … NOV-DEC,JAN-FEB
    0 */0 * * * *          | the minute field "*/0" has a step of 0 … use 1 to 60
    0 5/0 * * * *          | the minute field "5/0" has a step of 0
    0 1-5/0 * * * *        | a step of 0
    0 */90 * * * *         | the minute field "*/90" … step of "90" … @every
    0 0 */25 * * *         | the hour field "*/25" … use 1 to 24
    0 /5 * * * *           | the minute field "/5" has a step without a start … */step
    0 */ * * * *           | the minute field "*/" has the step "" … whole number
    0 */x * * * *          | the minute field "*/x" has the step "X"
    0 */-5 * * * *         | the minute field "*/-5" has the step "-5"
    0 1/2/3 * * * *        | the minute field "1/2/3" has two steps`,

  'L, W, #': `
    0 0 0 W * *            | the day-of-month field "W" … L, LW and … 15W
    0 0 0 L-3 * *          | the day-of-month field "L-3" … L, LW and … 15W
    0 0 0 1-5W * *         | the day-of-month field "1-5W" … 15W
    0 0 0 WL * *           | the day-of-month field "WL"
    0 0 0 15L * *          | the day-of-month field "15L"
    0 0 0 5#2 * *          | the day-of-month field "5#2"
    0 0 0 * * L            | the day-of-week field "L" … without a day … 5L
    0 0 0 * * LW           | the day-of-week field "LW"
    0 0 0 * * 5#6          | the day-of-week field "5#6" … 1 to 5
    0 0 0 * * 5#0          | the day-of-week field "5#0" … 1 to 5
    0 0 0 * * #2           | the day-of-week field "#2"
    0 0 0 * * 5#1#2        | the day-of-week field "5#1#2"
    0 0 0 * * 1-5#2        | the day-of-week field "1-5#2"
    0 0 0 * * 1-5L         | the day-of-week field "1-5L"
    0 0 0 * * FOOL         | the day-of-week field "FOOL"`,

  never: `
    0 0 0 30 2 *           | the day-of-month field "30" never matches in the month field "2" … change
    0 0 31 FEB ?           | the day-of-month field "31" never matches in the month field "FEB"
    0 0 0 31 4,6,9,11 *    | the day-of-month field "31" never matches
    0 0 0 31W 4 *          | the day-of-month field "31W" never matches`,

  descriptors: `
    @reboot                | "@reboot" is not a descriptor … systemd unit
    @dayly                 | "@dayly" is not a descriptor … did you mean @daily?
    @evry 5m               | "@evry 5m" is not a descriptor … did you mean @every?
    @sometimes             | "@sometimes" is not a descriptor … @daily … @every
    @daily 5               | "@daily 5" is not a descriptor
    @manually now          | "@manually now" is not a descriptor
    @                      | "@" is not a descriptor
    @constructor           | "@constructor" is not a descriptor
    @every                 | @every has "" … not a duration … 1h30m
    @every 5               | @every has "5" … not a duration
    @every -1h             | @every has "-1h" … not a duration
    @every 1h 30m          | @every has "1h 30m" … not a duration
    @every 1w              | @every has "1w" … not a duration
    @every 999ms           | @every has "999ms" … too short: use 1s
    @every 999.9ms         | too short: use 1s
    @every 0               | too short: use 1s
    @every 101000d         | @every has "101000d" … not a duration
    @at                    | @at has "" … 2030-01-31T08:00:00Z
    @at tomorrow           | @at has "tomorrow"
    @at 2026-05-01         | @at has "2026-05-01"
    @at 2026-05-01T10:00:00        | @at … an offset … Z
    @at 2026-05-01T10:00Z          | @at
    @at 2026-02-29T10:00:00Z       | @at has "2026-02-29T10:00:00Z"
    @at 2026-13-01T10:00:00Z       | @at
    @at 2026-05-01T24:00:00Z       | @at
    @at 2026-06-30T23:59:60Z       | @at
    @at 2026-05-01T10:00:00+25:00  | @at
    @at 0000-01-01T00:00:00Z       | @at`,

  zones: `
    TZ=Mars/Olympus 0 0 0 * * *    | the TZ= prefix "Mars/Olympus" … IANA name such as Europe/Berlin
    CRON_TZ=+02:00 0 0 0 * * *     | the CRON_TZ= prefix "+02:00"
    TZ= 0 0 0 * * *                | the TZ= prefix ""
    TZ=UTC TZ=UTC @daily           | has 2: add
    TZ=UTC                         | the schedule is empty
    TZ=Mars/Olympus @every 1h      | the TZ= prefix "Mars/Olympus"`,
}

for (const [title, rows] of Object.entries(TABLE)) {
  test(title, async (group) => {
    for (const row of rows.trim().split('\n')) {
      await group.test(row.trim().replaceAll(/ +/g, ' '), () => check(row))
    }
  })
}

test('an empty schedule is rejected', () => {
  for (const text of ['', '   ', '\n']) {
    const parsed = parseSchedule(text, CONTEXT)
    assert.match(parsed.ok ? '' : parsed.problem, /^the schedule is empty: write /)
  }
})

test('a schedule longer than the limit is rejected', () => {
  const text = '0 0 0 * * 1' + ',1'.repeat(SCHEDULE_LENGTH_MAX)
  const parsed = parseSchedule(text, CONTEXT)
  assert.match(parsed.ok ? '' : parsed.problem, /characters long: use at most 256$/)
  const atLimit = '0 0 0 * * 1'.padEnd(SCHEDULE_LENGTH_MAX)
  assert.ok(parseSchedule(atLimit, CONTEXT).ok)
})

test('an unknown zone is rejected, also without effect on the schedule and for a cached text', () => {
  for (const text of ['0 0 0 * * *', '@every 1h', '@manually']) {
    assert.ok(parseSchedule(text, CONTEXT).ok)
    const parsed = parseSchedule(text, {...CONTEXT, timezone: '+02:00'})
    assert.match(
      parsed.ok ? '' : parsed.problem,
      /^the timezone "\+02:00" is not .*: use an IANA name/,
    )
  }
  assert.ok(parseSchedule('0 * * * * *', CONTEXT).ok)
  assert.ok(!parseSchedule('* * * * *', {...CONTEXT, timezone: 'UTC 0'}).ok)
})

test('errors escape control characters', () => {
  const parsed = parseSchedule('0 \u001b[31m * * * *', CONTEXT)
  assert.match(parsed.ok ? '' : parsed.problem, /"\\u001b\[31m"/)
})
