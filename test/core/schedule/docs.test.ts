/**
 * Checks the examples of docs/reference/schedules.md: every planned time in its tables, and every descriptor.
 */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {test} from 'node:test'
import {parseSchedule} from '../../../src/core/schedule/parse.ts'

const PAGE = readFileSync(new URL('../../../docs/reference/schedules.md', import.meta.url), 'utf8')

/** The rows of the tables that have these columns, by column. */
function rowsWith(columns: readonly string[]): Record<string, string>[] {
  const rows: Record<string, string>[] = []
  let head: string[] | null = null
  for (const line of PAGE.split('\n')) {
    if (!line.startsWith('|')) {
      head = null
      continue
    }
    const cells = line.split('|').slice(1, -1)
    const texts = cells.map((cell) => cell.trim().replaceAll('`', ''))
    if (head === null) head = texts
    else if (!/^-+$/.test(texts[0]!) && columns.every((column) => head!.includes(column))) {
      rows.push(Object.fromEntries(head.map((column, index) => [column, texts[index]!])))
    }
  }
  return rows
}

test('every table of planned times', async (group) => {
  const rows = rowsWith(['Schedule', 'After', 'Planned times'])
  assert.ok(rows.length >= 20, 'the page has examples')
  for (const row of rows) {
    const text = row['Schedule']!
    await group.test(`${text} after ${row['After']}`, () => {
      const timezone = row['Zone'] ?? 'UTC'
      const anchorAt = Date.parse(row['Anchor'] ?? '1970-01-01T00:00:00Z')
      const parsed = parseSchedule(text, {timezone, name: row['Name'] ?? '', anchorAt})
      assert.ok(parsed.ok, parsed.ok ? '' : parsed.problem)
      const after = Temporal.PlainDateTime.from(row['After']!).toZonedDateTime(timezone)
      let at = after.epochMilliseconds
      for (const expected of row['Planned times']!.split(', ')) {
        const next = parsed.schedule.next(at)
        assert.ok(next !== null)
        const zoned = Temporal.Instant.fromEpochMilliseconds(next).toZonedDateTimeISO(timezone)
        const offset = /[+-]\d\d:\d\d$/.test(expected) ? 'auto' : 'never'
        assert.equal(zoned.toString({timeZoneName: 'never', offset}), expected)
        at = next
      }
    })
  }
})

test('every descriptor means what its row says', () => {
  const rows = rowsWith(['Descriptor', 'Same as'])
  const context = {timezone: 'Europe/Berlin', name: 'a', anchorAt: 0}
  const instant = Date.UTC(2026, 2, 29, 0, 30)
  let checked = 0
  for (const row of rows) {
    if (!/^[\d*]/.test(row['Same as']!)) continue
    const expected = parseSchedule(row['Same as']!, context)
    for (const descriptor of row['Descriptor']!.split(', ')) {
      const parsed = parseSchedule(descriptor, context)
      assert.ok(parsed.ok && expected.ok)
      assert.equal(parsed.schedule.next(instant), expected.schedule.next(instant))
      checked += 1
    }
  }
  assert.equal(checked, 8)
})
