/** Output formats: tables, field lists, times. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {stripVTControlCharacters} from 'node:util'
import {parentsFirst} from '../../src/cli/commands/apply.ts'
import {duration, fieldList, relative, shownTime, table} from '../../src/cli/format.ts'
import {status} from '../../src/cli/terminal.ts'

const PLAIN = {colours: false}
const COLOURED = {colours: true}
const ESCAPE = '\u001b'

test('columns are as wide as their widest cell, without counting colours or trailing blanks', () => {
  const columns = [
    {title: 'A', text: (row: string[]) => row[0]!},
    {
      title: 'STATUS',
      text: (row: string[]) => row[1]!,
      shown: (text: string) => status(COLOURED, text),
    },
    {title: 'B', text: (row: string[]) => row[2]!},
  ]
  const rows = [
    ['long name', 'failed', 'x'],
    ['ä', 'success', ''],
  ]
  const coloured = table(COLOURED, columns, rows, 'none')
  assert.ok(coloured.includes(`${ESCAPE}[31mfailed${ESCAPE}[39m`))
  assert.equal(
    stripVTControlCharacters(coloured),
    'A          STATUS   B\nlong name  failed   x\nä          success\n',
  )
  assert.equal(table(PLAIN, columns, [], 'none'), 'none\n')
})

test('without colours, the output is plain text', () => {
  assert.equal(status(PLAIN, 'failed'), 'failed')
  assert.equal(status(COLOURED, 'unheard of'), 'unheard of')
  assert.equal(
    fieldList(PLAIN, [
      ['a', 'x'],
      ['long', 'y'],
    ]),
    'a     x\nlong  y\n',
  )
})

test('untrusted text cannot leave its table cell', () => {
  const columns = [{title: 'T', text: (row: string) => row}]
  assert.equal(table(PLAIN, columns, ['one\ntwo\u001b[2J'], ''), 'T\none two\n')
})

test('on a terminal a row fits: names are cut last, titles never', () => {
  const columns = [
    {title: 'NAME', text: (row: string[]) => row[0]!},
    {title: 'SCHEDULE', text: (row: string[]) => row[1]!},
    {title: 'OK', text: (row: string[]) => row[2]!},
  ]
  const rows = [['n'.repeat(30), 's'.repeat(40), '1234567']]
  const shown = (width?: number) =>
    table(width === undefined ? PLAIN : {...PLAIN, columns: width}, columns, rows, '').split('\n')
  assert.equal(shown()[1], `${rows[0]![0]}  ${rows[0]![1]}  1234567`, 'nothing is cut in a pipe')
  assert.equal(shown(60)[1], `${'n'.repeat(30)}  ${'s'.repeat(18)}…  1234567`)
  assert.equal(shown(40)[1], `${'n'.repeat(21)}…  ${'s'.repeat(7)}…  12345…  `.trim())
  assert.match(shown(10)[0]!, /^NAME +SCHEDULE {2}OK$/)
})

const BERLIN: readonly (readonly [time: string | null, zone: string, expected: string])[] = [
  ['2026-11-22T16:55:00.999Z', 'Europe/Berlin', '2026-11-22 17:55:00 +01:00'],
  ['2026-07-01T22:30:00Z', 'Europe/Berlin', '2026-07-02 00:30:00 +02:00'],
  ['2026-11-22T17:55:00+01:00', 'UTC', '2026-11-22 16:55:00Z'],
  ['0001-01-01T00:00:00Z', 'UTC', '-'],
  [null, 'UTC', '-'],
]

for (const [time, zone, expected] of BERLIN)
  test(`${time} is shown as ${expected} in ${zone}`, () =>
    assert.equal(shownTime(time, zone), expected))

const NOW = Date.parse('2026-03-01T12:00:00Z')
const TIMES: readonly (readonly [time: string | null, expected: string])[] = [
  [null, '-'],
  ['', '-'],
  ['0001-01-01T00:00:00Z', '-'],
  ['2026-03-01T12:00:00.900Z', 'now'],
  ['2026-03-01T12:00:59Z', 'in 59s'],
  ['2026-03-01T12:05:00Z', 'in 5m'],
  ['2026-03-01T13:30:20Z', 'in 1h30m'],
  ['2026-03-03T12:00:05Z', 'in 2d'],
  ['2026-02-27T09:00:00Z', '2d3h ago'],
]

for (const [time, expected] of TIMES)
  test(`at noon, ${time} is ${expected}`, () => assert.equal(relative(time, NOW), expected))

test('on a narrow terminal columns that can be missed are left out, the last first', () => {
  const text = (value: string) => () => value
  const columns = [
    {title: 'NAME', text: text('backup-of-the-database')},
    {title: 'NEXT', text: text('disabled'), isWhole: true as const},
    {title: 'OK', text: text('12')},
    {title: 'LAST OK', text: text('23h59m ago'), isDispensable: true as const},
    {title: 'LAST ERROR', text: text('23h59m ago'), isDispensable: true as const},
  ]
  const shown = (width: number) => table({...PLAIN, columns: width}, columns, [1], '').split('\n')
  assert.equal(shown(70)[0], 'NAME                    NEXT      OK  LAST OK     LAST ERROR')
  assert.equal(shown(46)[0], 'NAME                  NEXT      OK  LAST OK')
  assert.equal(shown(34)[1], 'backup-of-the-datab…  disabled  12')
})

test('a duration is shown only if start and end are known', () => {
  const start = '2026-03-01T12:00:00.000Z'
  assert.equal(duration(start, '2026-03-01T12:00:00.250Z'), '250ms')
  assert.equal(duration(start, '2026-03-01T12:01:30.000Z'), '1m30s')
  assert.equal(duration(start, '0001-01-01T00:00:00Z'), '-')
})

test('parents come before their dependents, otherwise the order of the file is kept', () => {
  const job = (name: string, parent?: string) => ({name, parent_job: parent})
  const names = (jobs: readonly Readonly<Record<string, unknown>>[]) =>
    parentsFirst(jobs).map((one) => one['name'])
  assert.deepEqual(names([job('c', 'b'), job('b', 'a'), job('x'), job('a')]), ['x', 'a', 'b', 'c'])
  assert.deepEqual(names([job('a', 'elsewhere'), job('b', '')]), ['a', 'b'])
  assert.deepEqual(names([job('a', 'b'), job('b', 'a'), job('c')]), ['c', 'a', 'b'])
})
