/**
 * Day arithmetic against two independent libraries: croner and cron-parser. Random expressions list
 * every form a day field may have, and each day of several years is compared. Expressions are
 * translated where the grammars differ. A failure prints the seed and the path that repeat it.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {CronExpressionParser} from 'cron-parser'
import {Cron} from 'croner'
import * as fc from 'fast-check'
import {parseSchedule} from '../../../src/core/schedule/parse.ts'
import {enumerate, SEED} from './cases.ts'

const DAY_MS = 86_400_000

/** Entry of a day field. */
interface Entry {
  readonly text: string
  /** The values it names; `null` for `L`, `W` and `#`, whose days depend on the month. */
  readonly span: {readonly from: number; readonly to: number; readonly step: number} | null
}

interface DayFields {
  readonly dayOfMonth: readonly Entry[]
  readonly month: string
  readonly dayOfWeek: readonly Entry[]
}

function mark(text: string): Entry {
  return {text, span: null}
}

/** Forms that both day fields have. */
function spans(min: number, max: number, writtenMax: number): fc.Arbitrary<Entry>[] {
  const value = fc.integer({min, max: writtenMax})
  const start = fc.integer({min, max})
  const step = fc.integer({min: 1, max: max - min + 1})
  const range = fc.tuple(value, value).map(([one, other]) => {
    return {from: Math.min(one, other), to: Math.max(one, other)}
  })
  return [
    value.map((at) => ({text: `${at}`, span: {from: at, to: at, step: 1}})),
    range.map(({from, to}) => ({text: `${from}-${to}`, span: {from, to, step: 1}})),
    fc.tuple(range, step).map(([{from, to}, by]) => {
      return {text: `${from}-${to}/${by}`, span: {from, to, step: by}}
    }),
    step.map((by) => ({text: `*/${by}`, span: {from: min, to: max, step: by}})),
    fc.tuple(start, step).map(([from, by]) => {
      return {text: `${from}/${by}`, span: {from, to: max, step: by}}
    }),
    fc.constant({text: '*', span: {from: min, to: max, step: 1}}),
  ]
}

const day = fc.integer({min: 1, max: 31})
const weekday = fc.integer({min: 0, max: 7})
const LAST_DAY = fc.constant(mark('L'))
const LAST_WEEKDAY = weekday.map((of) => mark(`${of}L`))
const WORKDAYS = [fc.constant(mark('LW')), day.map((near) => mark(`${near}W`))]
const NTH_WEEKDAY = fc
  .tuple(weekday, fc.integer({min: 1, max: 5}))
  .map(([of, nth]) => mark(`${of}#${nth}`))

/** A lone `*` restricts nothing, and is no list. */
const list = (entries: readonly fc.Arbitrary<Entry>[]) =>
  fc
    .array(fc.oneof(...entries), {minLength: 1, maxLength: 4})
    .filter(([first, second]) => first!.text !== '*' || second !== undefined)
const alone = (entry: fc.Arbitrary<Entry>) => entry.map((only) => [only])
const ANY = fc.constant<DayFields['dayOfMonth']>([])
const MONTH = fc.constantFrom('*', '*', '*', '2', '4,6', '2,12', '1-11/2')

/** Every form and every mixture of them. */
const ALL_FORMS: fc.Arbitrary<DayFields> = fc.record({
  dayOfMonth: fc.oneof(ANY, list([...spans(1, 31, 31), LAST_DAY, ...WORKDAYS])),
  month: MONTH,
  dayOfWeek: fc.oneof(ANY, list([...spans(0, 6, 7), LAST_WEEKDAY, NTH_WEEKDAY])),
})

/** cron-parser knows no `W`, and `#` only alone. */
const COMMON_FORMS: fc.Arbitrary<DayFields> = fc.record({
  dayOfMonth: fc.oneof(ANY, list([...spans(1, 31, 31), LAST_DAY])),
  month: MONTH,
  dayOfWeek: fc.oneof(ANY, list([...spans(0, 6, 7), LAST_WEEKDAY]), alone(NTH_WEEKDAY)),
})

/** Four years hold a leap day and most shapes of a month; 2100 is no leap year. */
const FIRST_YEAR = fc.constantFrom(1970, 1996, 2023, 2026, 2098, 2399)

type Oracle = (fields: DayFields) => (midnight: Date) => boolean

/** An empty list is a field without restriction. */
function textOf(entries: readonly string[]): string {
  return entries.length === 0 ? '*' : entries.join(',')
}

/** croner has no `N/step`: every span is written as a range. */
function cronerText(entries: readonly Entry[]): string {
  return textOf(
    entries.map(({text, span}) => (span === null ? text : `${span.from}-${span.to}/${span.step}`)),
  )
}

/** croner has `LW` only alone: a list with it is the union of two expressions. */
const croner: Oracle = ({dayOfMonth, month, dayOfWeek}) => {
  const rest = dayOfMonth.filter(({text}) => text !== 'LW')
  const hasLastWorkday = rest.length < dayOfMonth.length
  const texts = rest.length === 0 && hasLastWorkday ? [] : [cronerText(rest)]
  if (hasLastWorkday) texts.push('LW')
  const options = {mode: '6-part', utcOffset: 0, paused: true} as const
  const weekdays = cronerText(dayOfWeek)
  const crons = texts.map((days) => new Cron(`0 0 0 ${days} ${month} ${weekdays}`, options))
  return (midnight) => crons.some((cron) => cron.match(midnight))
}

/** cron-parser refuses a value that a list names twice: spans are written as their distinct values. */
function cronParserText(entries: readonly Entry[], modulus: number): string {
  const texts = new Set<string>()
  for (const {text, span} of entries) {
    if (span === null) texts.add(text)
    else for (let at = span.from; at <= span.to; at += span.step) texts.add(`${at % modulus}`)
  }
  return textOf([...texts])
}

const cronParser: Oracle = ({dayOfMonth, month, dayOfWeek}) => {
  const days = `${cronParserText(dayOfMonth, 32)} ${month} ${cronParserText(dayOfWeek, 7)}`
  const expression = CronExpressionParser.parse(`0 0 0 ${days}`, {tz: 'UTC'})
  return (midnight) => expression.includesDate(midnight)
}

function check(fields: DayFields, oracle: Oracle, from: number, until: number): void {
  const {dayOfMonth, month, dayOfWeek} = fields
  const ours = (entries: readonly Entry[]) => textOf(entries.map(({text}) => text))
  const text = `0 0 0 ${ours(dayOfMonth)} ${month} ${ours(dayOfWeek)}`
  const matches = oracle(fields)
  const expected: number[] = []
  for (let at = from; at < until; at += DAY_MS) if (matches(new Date(at))) expected.push(at)
  const parsed = parseSchedule(text, {timezone: 'UTC', name: 'a', anchorAt: 0})
  if (!parsed.ok) assert.match(parsed.problem, /never matches/)
  const planned = parsed.ok ? enumerate(parsed.schedule, from, until) : []
  assert.deepEqual(planned.map(shown), expected.map(shown), text)
  if (parsed.ok) assert.equal(parsed.schedule.count(from, until), planned.length, text)
}

function shown(at: number): string {
  return new Date(at).toISOString().slice(0, 10)
}

function checkAll(forms: fc.Arbitrary<DayFields>, oracle: Oracle, years: number, runs: number) {
  const property = fc.property(forms, FIRST_YEAR, (fields, year) => {
    check(fields, oracle, Date.UTC(year, 0, 1), Date.UTC(year + years, 0, 1))
  })
  fc.assert(property, {seed: SEED, numRuns: runs})
}

test('every mixture of day forms matches the days croner matches', () => {
  checkAll(ALL_FORMS, croner, 4, 400)
})

test('the day forms cron-parser knows match the days it matches', () => {
  checkAll(COMMON_FORMS, cronParser, 3, 150)
})
